"""What classifiers share that choose a radius on held-out rows: the frontier, the choice, what the card says of it."""

from __future__ import annotations

import copy
import numbers
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.certification import CertificationMixin
from fairdro.estimators.saving import SavingMixin
from fairdro.groups import TOO_FEW
from fairdro.methods import OBJECTIVES, FairDRO
from fairdro.metrics import Confusion, cell_accuracy, confusion_counts, kept_accuracy, lost_counts
from fairdro.selection import (
    AsAsked,
    CertifiedDCA,
    Guard,
    KeepAccuracy,
    Rule,
    check_rule,
    choose_radius,
    has_gap,
    judged_cells,
    plain_radius,
    points_of,
    small_cells,
    who_pays,
)
from fairdro.training.folds import FOLDS, folds_of
from fairdro.training.rows import is_shared, total
from fairdro.training.threads import torch_threads
from fairdro.who_pays import KEEP_CLASS_ACCURACY, who_pays_most

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

POINTS = 20


@dataclass(frozen=True)
class HeldOut:
    """How held-out rows are predicted by models of P radii; adds up over folds.

    Attributes
    ----------
    counts : ndarray of shape (P, Y, A, Y)
        Rows whose group is known, by radius, class, group and prediction.
    lost : ndarray of shape (P, Y, A)
        Those of them that plain training, the smallest radius, predicts right and this radius wrong.
    ordinary : ndarray of shape (Y, A, Y)
        The same rows as predicted by training as people know it, in which every row counts the same.
    seen : ndarray of shape (P, Y, A, Y), optional
        As counts, with rows whose group is inferred, by their shares; None where there are none.
    """

    counts: np.ndarray
    lost: np.ndarray
    ordinary: np.ndarray
    seen: np.ndarray | None = None

    @classmethod
    @torch_threads(1)
    def of(cls, predictions: Tensor, ordinary: Tensor, cells: Cells, plain: int) -> HeldOut:
        """Count predictions ``(P, N)`` and those of ordinary training ``(N,)``; radius ``plain`` is plain training."""
        known, rows = cells.known_part, cells.known_rows
        of_known = predictions[:, rows]
        inferred = cells.known is not None and not cells.unknown_group
        return cls(
            counts=confusion_counts(of_known, known),
            lost=lost_counts(of_known, of_known[plain], known),
            ordinary=confusion_counts(ordinary[rows], known),
            seen=confusion_counts(predictions, cells) if inferred else None,
        )

    def scaled(self, scale: float) -> HeldOut:
        """Return all counts times a number, where weights of rows were divided by it."""
        seen = None if self.seen is None else scale * self.seen
        return HeldOut(scale * self.counts, scale * self.lost, scale * self.ordinary, seen)

    def __add__(self, other: HeldOut) -> HeldOut:
        seen = None if self.seen is None or other.seen is None else self.seen + other.seen
        return HeldOut(self.counts + other.counts, self.lost + other.lost, self.ordinary + other.ordinary, seen)

    def of_all(self, X: Any) -> HeldOut:
        """Return the sum over all processes that share the rows; these have no inferred groups."""
        counts = (total(X, torch.from_numpy(part)).numpy() for part in (self.counts, self.lost, self.ordinary))
        return HeldOut(*counts) if is_shared(X) else self


class FrontierMixin(CertificationMixin, SavingMixin):
    """A model with a whole frontier: one radius that is asked for, or one that a selection rule chooses."""

    rho: float | None
    rhos: Sequence[float] | None
    rule: Rule | str | None
    keep_accuracy: float
    keep_class_accuracy: float = KEEP_CLASS_ACCURACY
    floor: float | None = None
    cv: Any = FOLDS
    _counted: ClassVar[str] = "held-out rows"
    _on_choice_: list[str]

    def _check_parameters(self) -> None:
        super()._check_parameters()
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
                if isinstance(self.rho, str | bool):
                    raise TypeError("not a number")  # noqa: TRY301 - one sentence for all that is none
                return np.unique([0.0, float(self.rho)])
            given = FairDRO.search["rho"].grid(POINTS) if self.rhos is None else self.rhos
            return np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"rho must be a number and rhos numbers, got {self.rho!r} and {self.rhos!r}.") from error

    def _held_out_counts(self, X: Any, cells: Cells) -> np.ndarray:
        """Return how many rows of every cell are held out in a fold ``(Y, A)``: all, unless a splitter says otherwise."""
        if isinstance(self.cv, numbers.Integral | Iterator):  # what can be gone through once is left for the folds
            return super()._held_out_counts(X, cells)
        held = np.unique(np.concatenate([test for _, test in folds_of(self.cv, X, cells, 0)]))
        return total(X, cells.take(torch.from_numpy(held)).known_part.counts).numpy()

    def _kept(self) -> dict[str, Any]:
        """Return what is kept and made equal, as :func:`~fairdro.selection.points_of` takes it."""
        return {"objective": self.objective, **self._by_class()}

    def _choose(self, judged: HeldOut, radii: np.ndarray, diverged: np.ndarray | None = None) -> None:
        """Keep how held-out rows were predicted, and choose a radius."""
        judged, asked = judged.scaled(self._weight_scale_), self._selection_rule()
        rule = (
            KeepAccuracy(0.0) if isinstance(asked, CertifiedDCA) else asked
        )  # the smallest DCA, from which on it certifies
        options = {"diverged": diverged, "seen": judged.seen, **self._kept()}
        choice, self.frontier_ = choose_radius(judged.counts, radii, rule, guard=self._guard(), **options)
        self.confusion_, self._lost_, self._ordinary_ = judged.counts, judged.lost, judged.ordinary
        self.best_index_, self.rho_ = int(choice.index), float(radii[choice.index])
        self._asked_ = isinstance(rule, AsAsked)
        self._how_chosen_ = getattr(asked, "__name__", None) or str(asked)
        self._judged: dict[int, Confusion] = {}
        plain = plain_radius(radii)
        self.frontier_["who_pays"] = [
            who_pays_most(self.held_out(plain), self.held_out(p), judged.lost[p]) for p in range(len(radii))
        ]
        shown = judged.counts if judged.seen is None else judged.seen
        self._warn_unseen(shown)
        self._on_choice_ = []
        if not self._asked_:
            unguarded, _ = choose_radius(judged.counts, radii, rule, **options)
            points = points_of(judged_cells(shown, self._by_class()["fair_classes"]), **self._kept())
            if isinstance(asked, CertifiedDCA):  # which counts every cell
                self._sequence = self._to_certify(asked, points, plain)
                return
            self._on_choice_ = self._remark_on_guard(points, plain, choice.index, unguarded.index, radii)
            if small := self._small_cells_named(shown):
                by_all, _ = choose_radius(judged.counts, radii, rule, guard=self._guard(), every_cell=True, **options)
                self._on_choice_ += self._remark_on_small_cells(small, shown, radii, choice.index, by_all.index)

    def _to_certify(self, rule: CertifiedDCA, points: pd.DataFrame, plain: int) -> list[int]:
        """Return the rows of the frontier to certify, in order; those that level down only where all do."""
        sound = ~self.frontier_["diverged"].to_numpy()
        passing = sound & self._guard().passes(points, points.iloc[plain])
        eligible = np.flatnonzero(passing if passing.any() else sound)
        return [int(eligible[i]) for i in rule.sequence(points.iloc[eligible])]

    def _remark_on_certified(self) -> list[str]:
        own, plain = (
            self.frontier_.iloc[self.best_index_],
            self.frontier_.iloc[plain_radius(self.frontier_["rho"].to_numpy())],
        )
        objection = self._guard().objection(own, plain, self._class_names)
        return (
            [f"No radius to certify passes the guard against levelling down; at this one {objection}."] if objection else []
        )

    def _moved(self, place: int) -> Self:
        """Return a copy that stands at another row of the frontier."""
        other = copy.copy(self)
        other.best_index_, other.rho_ = place, float(self.frontier_["rho"].iloc[place])
        other.frontier_ = self.frontier_.assign(selected=np.arange(len(self.frontier_)) == place)
        return other

    def _refitted(self, place: int, X: Any, cells: Cells) -> Self:
        return self._moved(place)

    def _warn_unseen(self, counts: np.ndarray) -> None:
        """Warn of classes and groups without a held-out row, and where there is nothing to be fair between."""
        unseen = np.argwhere((self.cell_counts_ > 0) & (counts[0].sum(-1) == 0))
        sentence = ""
        if len(unseen):
            k, a = unseen[0]
            sentence = (
                f"No held-out row is of {self._class_names[k]} / {self.group_names_[a]}: the frontier says nothing of it."
            )
        elif len(self.group_names_) > 1 and not has_gap(counts, self._by_class()["fair_classes"]):
            sentence = "No class that is to be fair has held-out rows of two groups: there is no gap to choose a radius by."
        if sentence:
            warnings.warn(sentence, UserWarning, stacklevel=6)

    def _small_cells_named(self, counts: np.ndarray) -> str:
        names = [f"{self._class_names[k]} / {self.group_names_[a]}" for k, a in np.argwhere(small_cells(counts))]
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

    def _remark_on_small_cells(
        self, named: str, counts: np.ndarray, radii: np.ndarray, chosen: int, by_all: int
    ) -> list[str]:
        """Say what cells with too few rows to judge have to do with the choice."""
        few = f"Fewer than {TOO_FEW} held-out rows"
        if judged_cells(counts, self._by_class()["fair_classes"]) is counts:
            remark = f"{few}: {named}. Without them there is no gap, so that the radius was chosen by what is mostly chance."
        else:
            same = "they would not change the choice"
            effect = same if chosen == by_all else f"by them too, rho would be {radii[by_all]:.4g}"
            remark = f"{few}, too few to choose a radius by: {named}; {effect}."
        worst = np.nanmin(cell_accuracy(counts[chosen]))
        if self.floor is not None and worst < self.floor:
            remark += f" One of them has {100 * worst:.1f} %, less than the floor of {100 * self.floor:g} %."
        if self.small_cells != "warn":  # otherwise all cells have been looked at, and those with few rows are known
            warnings.warn(remark, UserWarning, stacklevel=6)
        return [remark]

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
            judged[place] = self._confusion(self.confusion_[place])
        return judged[place]

    def _confusion(self, counts: np.ndarray) -> Confusion:
        return Confusion(counts, self._class_names, self.group_names_, self._countable_, self._fair_codes_)

    def ordinary(self) -> Confusion:
        """Return how held-out rows are predicted by training as people know it, in which every row counts the same."""
        self._check_fitted()
        return self._confusion(self._ordinary_)

    def who_pays(self) -> list[str]:
        """Say in words which classes and groups lose and gain against plain training, on held-out rows."""
        self._check_fitted()
        plain = plain_radius(self.frontier_["rho"].to_numpy())
        return [*who_pays(self.held_out(plain), self.held_out(), self._lost_[self.best_index_]), *self._on_choice_]

    def _remark_on_guard(self, points: pd.DataFrame, plain: int, chosen: int, freely: int, radii: np.ndarray) -> list[str]:
        """Say where the guard passed over a radius that the rule alone would have chosen, or could not hold."""
        guard, names = self._guard(), self._class_names
        if objection := guard.objection(points.iloc[chosen], points.iloc[plain], names):
            remark = f"No radius that satisfies the rule passes the guard against levelling down; at this one {objection}."
            warnings.warn(remark, UserWarning, stacklevel=6)
            return [remark]
        if chosen == freely:
            return []
        return [
            f"rho {radii[freely]:.4g} with a DCA of {100 * points['dca'].iloc[freely]:.1f} % was passed over, as it levels "
            f"down: {guard.objection(points.iloc[freely], points.iloc[plain], names)}."
        ]

    def _own_results(self) -> list[tuple[str, Confusion]]:
        plain = plain_radius(self.frontier_["rho"].to_numpy())
        results = [(f"Held-out rows, this model (rho {self.rho_:.4g})", self.held_out())]
        if plain != self.best_index_:
            smallest = self.frontier_["rho"].iloc[plain]
            name = "plain training (rho 0)" if smallest == 0 else f"rho {smallest:.4g}"
            results.append((f"The same rows, {name}", self.held_out(plain)))
        results.append(("The same rows, training as usual, in which every row counts the same", self.ordinary()))
        return results

    def _remarks(self) -> Sequence[str]:
        honest = "Every row was predicted by a model that had not seen it."
        optimistic = " rho was chosen by these very figures, so they are somewhat optimistic."
        return [honest if self._asked_ else honest + optimistic, *self.who_pays()]

    def _facts(self) -> dict[str, object]:
        counted = {"balanced": "every class and group counts", "standard": "every row counts"}[self.objective]
        own = {"rho": f"{self.rho_:.6g}: the {self._how_chosen_}", "objective": f"{self.objective}: {counted} the same"}
        return own | super()._facts()

    def plot_frontier(self) -> alt.LayerChart | alt.FacetChart:
        """Draw accuracy against DCA on held-out rows, the chosen radius ringed."""
        import altair as alt  # noqa: PLC0415 - a while to load

        self._check_fitted()
        costs = self._by_class()["class_weight"]
        kind = self.objective if costs is None else f"{self.objective}, weighted"
        kept = kept_accuracy(self.confusion_, self.objective, costs)
        table = self.frontier_.assign(accuracy=100 * kept, dca=100 * self.frontier_["dca"])
        base = alt.Chart(table).encode(
            x=alt.X("accuracy:Q", title=f"{kind} accuracy (%), held out", scale=alt.Scale(zero=False)),
            y=alt.Y("dca:Q", title="DCA (%), lower is fairer"),
            tooltip=["rho:Q", alt.Tooltip("accuracy:Q", format=".2f"), alt.Tooltip("dca:Q", format=".2f"), "who_pays:N"],
        )
        ring = base.transform_filter("datum.selected").mark_point(size=220, strokeWidth=2, color="#d1495b")
        return alt.layer(base.mark_line(opacity=0.4).encode(order="rho:Q"), base.mark_circle(size=50), ring)

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_judged"}
