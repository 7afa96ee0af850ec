"""What classifiers share that choose a radius on held-out rows: the frontier, the choice, what the card says of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import NotFittedError

from fairdro.errors import InputError, unknown_name
from fairdro.estimators.saving import SavingMixin
from fairdro.methods import OBJECTIVES, FairDRO
from fairdro.metrics import Confusion
from fairdro.selection import (
    KEEP_CLASS_ACCURACY,
    KEPT,
    AsAsked,
    Guard,
    KeepAccuracy,
    Rule,
    check_rule,
    choose_radius,
    plain_radius,
    who_pays,
)

if TYPE_CHECKING:
    import altair as alt

POINTS = 20


class FrontierMixin(SavingMixin):
    """A model with a whole frontier: one radius that is asked for, or one that a selection rule chooses."""

    rho: float | None
    rhos: Sequence[float] | None
    rule: Rule | str | None
    keep_accuracy: float
    objective: str = OBJECTIVES[0]
    keep_class_accuracy: float = KEEP_CLASS_ACCURACY
    floor: float | None = None
    _guard_remark_: str = ""
    _countable_: bool

    def _check_choice(self) -> None:
        """Refuse parameters of the choice that cannot be, before anything is trained."""
        if self.rho is not None and (self.rule is not None or self.rhos is not None):
            raise InputError("With rho there is nothing to choose; leave out rule and rhos, or rho.")
        self._selection_rule()
        self._guard()
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES)
        radii = self._radii()
        if radii.ndim != 1 or len(radii) == 0 or not np.isfinite(radii).all() or (radii < 0).any():
            raise InputError(
                f"rho and rhos must be zero or positive numbers, got {self.rho if self.rhos is None else self.rhos}."
            )

    def _selection_rule(self) -> Rule:
        if self.rho is not None:
            return AsAsked()
        return KeepAccuracy(self.keep_accuracy) if self.rule is None else check_rule(self.rule)

    def _guard(self) -> Guard:
        return Guard(self.keep_class_accuracy, self.floor)

    def _radii(self) -> np.ndarray:
        """Return the radii to judge: plain training, and those to choose from."""
        try:
            if self.rho is not None:
                return np.unique([0.0, float(self.rho)])
            given = FairDRO.search["rho"].grid(POINTS) if self.rhos is None else self.rhos
            return np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"rho must be a number and rhos numbers, got {self.rho!r} and {self.rhos!r}.") from error

    def _choose(self, counts: np.ndarray, radii: np.ndarray, diverged: np.ndarray | None = None) -> None:
        """Keep how held-out rows were predicted ``(P, Y, A, Y)``, and choose a radius."""
        unseen = (self.cell_counts_ > 0) & (counts[0].sum(-1) == 0)
        if unseen.any():
            k, a = np.argwhere(unseen)[0]
            warnings.warn(
                f"No held-out row is of {self._class_names[k]} / {self.group_names_[a]}: the frontier says nothing of it.",
                UserWarning,
                stacklevel=5,
            )
        rule = self._selection_rule()
        options: dict[str, Any] = {"objective": self.objective, "guard": self._guard()}
        choice, self.frontier_ = choose_radius(counts, radii, rule, diverged=diverged, **options)
        freely, _ = choose_radius(counts, radii, rule, diverged=diverged, objective=self.objective)
        self._guard_remark_ = "" if isinstance(rule, AsAsked) else self._remark_on_guard(choice.index, freely.index)
        self.confusion_ = counts
        self.best_index_, self.rho_ = int(choice.index), float(radii[choice.index])
        self._asked_ = isinstance(rule, AsAsked)
        self._how_chosen_ = getattr(rule, "__name__", None) or str(rule)
        self._judged: dict[int, Confusion] = {}

    def _check_fitted(self) -> None:
        if not hasattr(self, "frontier_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")

    def held_out(self, index: int | None = None) -> Confusion:
        """Return how held-out rows were predicted, by the chosen radius or by that of a row of ``frontier_``."""
        self._check_fitted()
        place = self.best_index_ if index is None else index
        if not 0 <= place < len(self.frontier_):
            raise InputError(f"There is no row {place} of frontier_, which has {len(self.frontier_)}.")
        judged = self.__dict__.setdefault("_judged", {})  # what is drawn of it is drawn once
        if place not in judged:
            judged[place] = Confusion(self.confusion_[place], self._class_names, self.group_names_, self._countable_)
        return judged[place]

    def who_pays(self) -> list[str]:
        """Say in words which classes and groups lose and gain against plain training, on held-out rows."""
        words = who_pays(self.held_out(plain_radius(self.frontier_["rho"].to_numpy())), self.held_out())
        return [*words, self._guard_remark_] if self._guard_remark_ else words

    def _remark_on_guard(self, chosen: int, freely: int) -> str:
        """Say where the guard passed over a radius that the rule alone would have chosen, or could not hold."""
        plain, guard = self.frontier_.iloc[plain_radius(self.frontier_["rho"].to_numpy())], self._guard()
        if objection := guard.objection(self.frontier_.iloc[chosen], plain, self._class_names):
            remark = f"No radius that satisfies the rule passes the guard against levelling down; at this one {objection}."
            warnings.warn(remark, UserWarning, stacklevel=6)
            return remark
        if chosen == freely:
            return ""
        other = self.frontier_.iloc[freely]
        return (
            f"rho {other['rho']:.4g} with a DCA of {100 * other['dca']:.1f} % was passed over, as it levels down: "
            f"{guard.objection(other, plain, self._class_names)}."
        )

    def _own_results(self) -> list[tuple[str, Confusion]]:
        plain = plain_radius(self.frontier_["rho"].to_numpy())
        results = [(f"Held-out rows, this model (rho {self.rho_:.4g})", self.held_out())]
        if plain != self.best_index_:
            smallest = self.frontier_["rho"].iloc[plain]
            name = "plain training (rho 0)" if smallest == 0 else f"rho {smallest:.4g}"
            results.append((f"The same rows, {name}", self.held_out(plain)))
        return results

    def _remarks(self) -> Sequence[str]:
        honest = "Every row was predicted by a model that had not seen it."
        optimistic = " rho was chosen by these very figures, so they are somewhat optimistic."
        return [honest if self._asked_ else honest + optimistic, *self.who_pays()]

    def _facts(self) -> dict[str, object]:
        counted = {"balanced": "every class and group counts", "standard": "every row counts"}[self.objective]
        return {"rho": f"{self.rho_:.6g}: the {self._how_chosen_}", "objective": f"{self.objective}: {counted} the same"}

    def _fits_together(self) -> bool:
        return self.best_index_ < len(self.frontier_) == len(self.confusion_) and super()._fits_together()

    def plot_frontier(self) -> alt.LayerChart | alt.FacetChart:
        """Draw accuracy against DCA on held-out rows, the chosen radius ringed."""
        import altair as alt  # noqa: PLC0415 - a while to load

        self._check_fitted()
        kept = self.frontier_[KEPT[self.objective]]
        table = self.frontier_.assign(accuracy=100 * kept, dca=100 * self.frontier_["dca"])
        base = alt.Chart(table).encode(
            x=alt.X("accuracy:Q", title=f"{self.objective} accuracy (%), held out", scale=alt.Scale(zero=False)),
            y=alt.Y("dca:Q", title="DCA (%), lower is fairer"),
            tooltip=["rho:Q", alt.Tooltip("accuracy:Q", format=".2f"), alt.Tooltip("dca:Q", format=".2f")],
        )
        ring = base.transform_filter("datum.selected").mark_point(size=220, strokeWidth=2, color="#d1495b")
        return alt.layer(base.mark_line(opacity=0.4).encode(order="rho:Q"), base.mark_circle(size=50), ring)

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_judged"}
