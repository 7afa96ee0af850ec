"""FairDRO whose radius is chosen by cross-validation."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch

from fairdro._utils.progress import bar
from fairdro.cells import Cells
from fairdro.estimators.choice import FrontierMixin, HeldOut
from fairdro.estimators.layers import pieces_of, scaled
from fairdro.estimators.linear import LayerClassifier, method_for
from fairdro.groups import TOO_FEW
from fairdro.methods import FairDRO, Method
from fairdro.selection import Rule, plain_radius
from fairdro.training.calibration import MOST_ROWS
from fairdro.training.folds import folds_of
from fairdro.training.rows import RowsOnDisk, gathered, total
from fairdro.training.trained import UNSETTLED


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
    class_weight : dict or "balanced", optional
        What errors on a class cost, by its label, on top of the objective; ``keep_accuracy`` then speaks of accuracy
        weighted by them. ``balanced`` makes classes count the same.
    fair_classes : list of labels, optional
        Classes whose accuracy is to be equal over groups, e.g. ``["approved"]`` for equal opportunity; by default all.
    model : {"linear", "mlp"}, default "linear"
    errors : {"training", "out_of_fold"}, default "training"
        As of :class:`FairDROClassifier`.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
        Of held-out rows.
    missing_groups : {"refuse", "infer", "ignore", "group"}, default "refuse"
        As of :class:`FairDROClassifier`. Figures count rows of known group only; the choice also counts inferred shares.
    max_iter, tol
        As of :class:`FairDROClassifier`.
    certify : float or array of bool, optional
        Share of rows, or which rows, to set aside before anything else, stratified by class and group: they neither train
        nor choose the model, and then certify it. By default none; 0.2 with ``rule=CertifiedDCA()``. Steps of a pipeline
        before this one see these rows; where they learn from them, set rows aside yourself and use
        :func:`fairdro.selection.certify`.
    delta : float, default 0.05
        Probability with which the certificate may be wrong; a ``CertifiedDCA`` has its own.
    random_state : int, default 0
        Seed of the folds, and of the multi-layer perceptron.
    verbose : bool, default False
        Show a progress bar on a terminal.

    Attributes
    ----------
    frontier_ : DataFrame
        A row per radius: rho, metrics on held-out rows, whether training diverged, who loses most against plain training,
        and which is selected.
    rho_ : float
    best_index_ : int
        Row of ``frontier_``.
    confusion_ : ndarray of shape (P, Y, A, Y)
        Held-out rows by radius, class, group and prediction.
    certificate_ : Certificate
        With ``certify``: upper bounds of the gaps, see :func:`fairdro.selection.certify`.
    classes_, class_weight_, group_names_, merged_groups_, cell_counts_, weights_, n_features_in_, feature_names_in_
        As of :class:`FairDROClassifier`.
    coef_, intercept_, coefs_, intercepts_, plain_coefs_, plain_intercepts_
        Likewise.

    See Also
    --------
    FairDROClassifier : One radius, without a choice.
    FairDROHeadClassifier : The same for any classifier of yours.

    Examples
    --------
    >>> from fairdro import FairDROClassifierCV, load_dataset
    >>> from fairdro.metrics import dca
    >>> data = load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> train, test = slice(0, 4000), slice(4000, None)
    >>> model = FairDROClassifierCV(keep_accuracy=0.95, rhos=[0, 1, 10], cv=3)
    >>> model = model.fit(X[train], y[train], sensitive_features=race[train])
    >>> model.frontier_[["rho", "accuracy", "dca", "selected"]].round(2)
        rho  accuracy   dca  selected
    0   0.0      0.65  0.19     False
    1   1.0      0.64  0.12      True
    2  10.0      0.59  0.05     False
    >>> round(dca(y[test], model.predict(X[test]), sensitive_features=race[test]), 2)
    0.12
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
        class_weight: Any = None,
        fair_classes: Any = None,
        model: str = "linear",
        errors: str = "training",
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        missing_groups: str = "refuse",
        max_iter: int | None = None,
        tol: float = UNSETTLED,
        certify: Any = None,
        delta: float = 0.05,
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
        self.class_weight = class_weight
        self.fair_classes = fair_classes
        self.model = model
        self.errors = errors
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.missing_groups = missing_groups
        self.max_iter = max_iter
        self.tol = tol
        self.certify = certify
        self.delta = delta
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: Any, cells: Cells) -> None:
        radii = self._radii()
        with self._converging():
            judged, plain_logits, rows, diverged = self._cross_validate(self._fairdro(tuple(radii.tolist())), X, cells)
            self._choose(judged, radii, diverged)
            with bar("training", 2, show=self.verbose) as part:
                self._fit_layers(self._fairdro(self.rho_), X, cells, part(0))
                plain = self._train_plain(X, cells, np.arange(len(cells)), part(1))
        self._keep_plain(plain, *_to_calibrate_by(X, plain_logits, rows, cells))

    def _refitted(self, place: int, X: Any, cells: Cells) -> Self:
        other = self._moved(place)
        other._fit_layers(self._fairdro(other.rho_), X, cells, None)
        return other

    def _cross_validate(self, sweep: Method, X: Any, cells: Cells) -> tuple[HeldOut, np.ndarray, np.ndarray, np.ndarray]:
        """Judge all points on held-out rows; return also plain training's logits of these, their numbers, and who diverged.

        A point has diverged ``(P,)`` if it did so in one fold.
        """
        folds = folds_of(self.cv, X, cells, self._seed())
        judged, logits, diverged = [], [], np.zeros(sweep.points, dtype=bool)
        with bar("cross-validation", len(folds), show=self.verbose) as part:
            for i, (train, test) in enumerate(folds):
                trained, scaler = self._train(sweep, X, cells, train, part(i))
                double = next(trained.model.parameters()).dtype == torch.float64
                logits.append(self._train_plain(X, cells, train, None).logits(X, test))
                pieces = pieces_of(test, X.shape[1])
                ordinary = torch.from_numpy(logits[-1].argmax(1)).split([len(rows) for rows in pieces])
                for rows, as_usual in zip(pieces, ordinary, strict=True):
                    predictions = trained.predict(scaled(X, rows, scaler, double=double)[:])[0]
                    own = cells.take(torch.from_numpy(rows))
                    judged.append(HeldOut.of(predictions, as_usual, own, plain_radius(self._radii())))
                diverged |= trained.diverged[0].numpy()
        first, *others = judged
        everything = sum(others, first).of_all(X)
        return everything, np.concatenate(logits), np.concatenate([test for _, test in folds]), diverged

    def _fairdro(self, rho: float | tuple[float, ...]) -> Method:
        return self._for_classes(method_for(self.model, FairDRO, {"rho": rho, "objective": self.objective}))

    def _method(self) -> Method:
        return self._fairdro(1.0)


def _to_calibrate_by(X: Any, logits: np.ndarray, rows: np.ndarray, cells: Cells) -> tuple[np.ndarray, Cells]:
    """Return logits of held-out rows and their cells; of rows on disk, those of a sample of all processes."""
    if not isinstance(X, RowsOnDisk):
        return logits, cells.take(torch.from_numpy(rows))
    drawn = X.drawn(rows, MOST_ROWS / float(total(X, torch.tensor(float(len(rows))))))
    y = gathered(X, cells.y[torch.from_numpy(rows[drawn])])
    everyone = Cells(y, torch.zeros_like(y), n_classes=cells.n_classes, n_groups=1)
    return gathered(X, torch.from_numpy(logits[drawn])).numpy(), everyone
