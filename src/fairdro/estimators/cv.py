"""FairDRO whose radius is chosen by cross-validation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fairdro._utils.progress import bar
from fairdro.cells import Cells
from fairdro.estimators.choice import FrontierMixin
from fairdro.estimators.linear import LayerClassifier, method_for, scaled
from fairdro.groups import TOO_FEW
from fairdro.methods import FairDRO, Method
from fairdro.metrics import confusion_counts
from fairdro.selection import Rule
from fairdro.training.folds import folds_of


class FairDROClassifierCV(FrontierMixin, LayerClassifier):
    """FairDRO whose radius is chosen by cross-validation over a whole frontier.

    Every fold trains all radii in one solve; held-out predictions of all folds are judged together, and the chosen radius is
    trained again on all rows.

    Parameters
    ----------
    rho : float, optional
        Radius; by default one is chosen on held-out rows over a whole frontier.
    keep_accuracy : float, default 0.95
        Share of plain training's accuracy to keep: the paper's rule, on held-out rows.
    rule : callable, optional
        Another selection rule instead: ``LimitDCA(0.05)`` or ``Knee()``, or one of your own; see :mod:`fairdro.selection`.
    rhos : sequence of float, optional
        Radii to try; by default 0, which is plain training, and 19 over the paper's range.
    cv : int, splitter or list of (train, test), default 5
        Number of folds, or scikit-learn's ways to say more.
    keep_class_accuracy : float, default 0.8
        A guard against levelling down: a radius at which a class keeps less than this share of plain training's accuracy,
        averaged over groups, is chosen only where no other satisfies the rule. 0 for none.
    floor : float, optional
        Likewise, the least accuracy of the worst class and group.
    objective : {"balanced", "standard"}, default "balanced"
        What is kept beside fairness, and what ``keep_accuracy`` speaks of: accuracy over classes and groups that count the
        same (the paper's), or ordinary accuracy, in which every row counts the same.
    model : {"linear", "mlp"}, default "linear"
    errors : {"training", "out_of_fold"}, default "training"
        As of :class:`FairDROClassifier`.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    random_state : int, default 0
        Seed of the folds, and of the multi-layer perceptron.
    verbose : bool, default False
        Show a progress bar on a terminal.

    Attributes
    ----------
    frontier_ : DataFrame
        A row per radius: rho, metrics on held-out rows, whether training diverged, and which is selected.
    rho_ : float
    best_index_ : int
        Row of ``frontier_``.
    confusion_ : ndarray of shape (P, Y, A, Y)
        Held-out rows by radius, class, group and prediction.
    classes_, group_names_, merged_groups_, cell_counts_, weights_, n_features_in_, feature_names_in_
        As of :class:`FairDROClassifier`.
    coef_, intercept_, coefs_, intercepts_
        Likewise.
    """

    def __init__(
        self,
        rho: float | None = None,
        *,
        keep_accuracy: float = 0.95,
        rule: Rule | str | None = None,
        rhos: Sequence[float] | None = None,
        cv: Any = 5,
        keep_class_accuracy: float = 0.8,
        floor: float | None = None,
        objective: str = "balanced",
        model: str = "linear",
        errors: str = "training",
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.rho = rho
        self.keep_accuracy = keep_accuracy
        self.rule = rule
        self.rhos = rhos
        self.cv = cv
        self.keep_class_accuracy = keep_class_accuracy
        self.floor = floor
        self.objective = objective
        self.model = model
        self.errors = errors
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: Any, cells: Cells) -> None:
        self._check_choice()
        radii = self._radii()
        counts, diverged = self._cross_validate(self._fairdro(tuple(radii.tolist())), X, cells)
        self._choose(counts, radii, diverged)
        self._fit_layers(self._fairdro(self.rho_), X, cells)

    def _cross_validate(self, sweep: Method, X: Any, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Return the confusion of held-out rows of all folds ``(P, Y, A, Y)``, and who diverged in one ``(P,)``."""
        total = np.zeros((sweep.points, cells.n_classes, cells.n_groups, cells.n_classes))
        diverged = np.zeros(sweep.points, dtype=bool)
        folds = folds_of(self.cv, X, cells, self._seed())
        with bar("cross-validation", len(folds), show=self.verbose) as part:
            for i, (train, test) in enumerate(folds):
                trained, scaler = self._train(sweep, X, cells, train, part(i))
                double = next(trained.model.parameters()).dtype == torch.float64
                predictions = trained.predict(scaled(X, test, scaler, double=double))
                total += confusion_counts(predictions[0], cells.take(torch.from_numpy(test)))
                diverged |= trained.diverged[0].numpy()
        return total, diverged

    def _fairdro(self, rho: float | tuple[float, ...]) -> Method:
        return method_for(self.model, FairDRO, {"rho": rho, "objective": self.objective})

    def _method(self) -> Method:
        return self._fairdro(1.0)
