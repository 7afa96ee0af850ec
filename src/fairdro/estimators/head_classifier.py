"""A FairDRO head on any scikit-learn classifier: out-of-fold probabilities of class and group, then a head."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from fairdro._utils.extras import require
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.base import BaseClassifier
from fairdro.estimators.head import FairDROHead, HeadMixin
from fairdro.estimators.parts import fit_and_predict, fit_model, proba_of
from fairdro.groups import TOO_FEW
from fairdro.selection import Rule, choose_radius, plain_radius
from fairdro.training.folds import fold_numbers, folds_of
from fairdro.training.head import OutOfFold, Part, Shape, join_parts, parts_of

Joint = Literal["independent", "conditional", "cells", "auto"]
JOINTS = list(get_args(Joint))
TRUSTED = {
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
}  # beside what skops trusts itself
FEW_ERRORS = 0.005  # of rows that a frozen model has not seen; below, it probably has


class FairDROHeadClassifier(HeadMixin, BaseClassifier):
    """Any classifier made fair on rows it has not seen, by a FairDRO head on its probabilities.

    Every row is predicted by models of class and group that were not trained on it; the head is fitted to these
    probabilities, for all radii at once, and one radius is chosen by rows the head was not fitted to. The models are then
    trained again on all rows. The wrapped classifiers get X as it was passed.

    The head infers the group of a row from X, by a second model; no group is needed to predict. With ``infer_groups=False``
    it infers none.

    Parameters
    ----------
    estimator : classifier, optional
        With ``predict_proba``; by default logistic regression. ``FrozenEstimator(model)`` is a model you already have: pass
        rows to ``fit`` that it was not trained on.
    group_estimator : classifier, optional
        Of the groups; by default a clone of ``estimator``.
    rho : float, optional
        Radius; by default one is chosen on held-out rows over a whole frontier.
    keep_accuracy : float, default 0.95
        Share of plain training's accuracy to keep: the paper's rule, on held-out rows.
    rule : callable, optional
        Another selection rule instead, see :mod:`fairdro.selection`.
    rhos : sequence of float, optional
        Radii to try; by default 0, which is plain training, and 19 over the paper's range.
    keep_class_accuracy : float, default 0.8
        A guard against levelling down: a radius at which a class keeps less than this share of plain training's accuracy,
        averaged over groups, is chosen only where no other satisfies the rule. 0 for none.
    floor : float, optional
        Likewise, the least accuracy of the worst class and group.
    objective : {"balanced", "standard"}, default "balanced"
        What is kept beside fairness, and what ``keep_accuracy`` speaks of: accuracy over classes and groups that count the
        same (the paper's), or ordinary accuracy, in which every row counts the same.
    class_weight, fair_classes
        As of :class:`~fairdro.FairDROClassifierCV`.
    joint : {"independent", "conditional", "cells", "auto"}, default "independent"
        How probabilities of class and group together are made: ``p(y|x) p(a|x)`` by two models; ``p(y|x) p(a|x,y)``
        by a model of the class and one of the group for every class; one model of all classes and groups; or the
        one of the three whose chosen radius has the smallest DCA on held-out rows, which trains 3 + Y models per fold
        instead of 2.
    infer_groups : bool, default True
        Whether the head may infer groups; without, it has one number per class and a shorter frontier.
    cv : int, splitter or list of (train, test), default 5
        Number of folds, or scikit-learn's ways to say more.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
        Of held-out rows.
    missing_groups : {"refuse", "infer", "ignore", "group"}, default "refuse"
        Where a sensitive feature is missing: raise an error; infer shares of the groups by ``group_estimator`` and the
        class; let the row train the model of the class only; or take missing as a group of its own.
    certify, delta
        As of :class:`~fairdro.FairDROClassifierCV`.
    n_jobs : int, optional
        Fits at the same time, in scikit-learn's sense: None for one, -1 for all cores.
    random_state : int, default 0
        Seed of the folds.

    Attributes
    ----------
    estimators_ : list of classifiers
        The model of the class and that of the group, with ``conditional`` one per class; or the one of all classes and
        groups. They predict codes: places in ``classes_`` and ``group_names_``, or ``y * A + a``.
    joint_ : str
        The joint that was taken; ``classes`` where no group is inferred.
    frontier_, rho_, best_index_, confusion_
        As of :class:`~fairdro.FairDROClassifierCV`; ``frontier_`` also says which heads converged.
    frontier_weights_ : ndarray of shape (P, Y, A)
        q of every radius of ``frontier_``; see :meth:`at`.
    share_ : ndarray of shape (Y, A)
        The mean probabilities of classes and groups.
    temperatures_ : ndarray of shape (2,)
        The temperatures of class and group by which probabilities are calibrated before a decision.
    calibration_ : ndarray of shape (1 + Y,)
        Inverse temperature and offsets of the classes' log-probabilities, for :meth:`predict_proba`.
    certificate_ : Certificate
        With ``certify``: upper bounds of the gaps, see :func:`fairdro.selection.certify`.
    classes_, class_weight_, group_names_, merged_groups_, cell_counts_, weights_, n_features_in_, feature_names_in_
        As of :class:`~fairdro.FairDROClassifier`.

    See Also
    --------
    fit_head : The same for probabilities from anywhere.
    FairDROBoostingClassifier : Boosted trees with a head.

    Examples
    --------
    >>> from fairdro import FairDROHeadClassifier, load_dataset
    >>> from fairdro.metrics import dca
    >>> data = load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> train, test = slice(0, 4000), slice(4000, None)
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree = DecisionTreeClassifier(max_depth=4, random_state=0)
    >>> model = FairDROHeadClassifier(tree, cv=3).fit(X[train], y[train], sensitive_features=race[train])
    >>> alone = tree.fit(X[train], y[train])
    >>> dca(y[test], alone.predict(X[test]), sensitive_features=race[test]) > 0.1
    True
    >>> dca(y[test], model.predict(X[test]), sensitive_features=race[test]) < 0.1
    True
    >>> model.at(0.0).rho_  # the same model at another radius, at once
    0.0
    """

    joint: str = "independent"

    def __init__(
        self,
        estimator: Any = None,
        group_estimator: Any = None,
        *,
        rho: float | None = None,
        keep_accuracy: float = 0.95,
        rule: Rule | str | None = None,
        rhos: Sequence[float] | None = None,
        keep_class_accuracy: float = 0.8,
        floor: float | None = None,
        objective: str = "balanced",
        class_weight: Any = None,
        fair_classes: Any = None,
        joint: str = "independent",
        infer_groups: bool = True,
        cv: Any = 5,
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        missing_groups: str = "refuse",
        certify: Any = None,
        delta: float = 0.05,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.group_estimator = group_estimator
        self.rho = rho
        self.keep_accuracy = keep_accuracy
        self.rule = rule
        self.rhos = rhos
        self.keep_class_accuracy = keep_class_accuracy
        self.floor = floor
        self.objective = objective
        self.class_weight = class_weight
        self.fair_classes = fair_classes
        self.joint = joint
        self.infer_groups = infer_groups
        self.cv = cv
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.missing_groups = missing_groups
        self.certify = certify
        self.delta = delta
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.joint not in JOINTS:
            raise unknown_name("joint", self.joint, JOINTS)

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, Cells]:
        for model in (self._of_class(), self._of_group()):
            if not hasattr(model, "predict_proba"):
                raise InputError(f"{type(model).__name__} has no predict_proba, which a head needs; calibrate it first.")
        if y is None:
            raise ValueError("This FairDROHeadClassifier estimator requires y to be passed, but the target y is None.")
        X = _as_passed(X)
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        if 0 in X.shape:
            what = "sample" if len(y) == 0 else "feature"
            raise ValueError(f"Found array with 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required.")
        check_classification_targets(y)
        if weight is not None:
            weight = _check_sample_weight(weight, np.empty((_num_samples(X), 1)), dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self._frozen and not np.array_equal(self._of_class().classes_, self.classes_):
            known = ", ".join(map(str, self._of_class().classes_))
            raise InputError(f"The rows must hold the classes that the frozen model knows, and no others: {known}.")
        return X, self._cells(codes, sensitive, weight, X)

    @property
    def _frozen(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator)

    def _of_class(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _of_group(self) -> Any:
        if self.group_estimator is not None:
            return self.group_estimator
        return self.estimator.estimator if self._frozen else self._of_class()

    def _group_model(self, X: Any) -> tuple[Any, Any]:
        return self._of_group(), X

    def _fit(self, X: Any, cells: Cells) -> None:
        held_out = self._held_out(X, cells, folds_of(self.cv, X, cells, self._seed()))
        self._fit_head(held_out, cells)
        self._fit_models(X, cells, held_out)

    def _held_out(self, X: Any, cells: Cells, folds: list[tuple[np.ndarray, np.ndarray]]) -> OutOfFold:
        """Predict every row by models that have not seen it, and take the joint that does best."""
        fold = fold_numbers(folds, len(cells))
        joints = self._joints(cells)
        parts = list(dict.fromkeys(part for joint in joints for part in parts_of(joint, cells)))
        done = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_and_predict)(self._model(part), part, cells, X, train, test)
            for part in parts
            for train, test in folds
        )
        found = {part: np.full((len(cells), part.width(cells)), np.nan) for part in parts}
        shape = Shape(cells.n_classes, cells.n_known_groups)
        for (part, test), values in zip(((part, test) for part in parts for _, test in folds), done, strict=True):
            found[part][test] = values
        if self._frozen:
            self._warn_if_known(found[Part("class")], cells)
        made = {
            joint: OutOfFold(join_parts([found[part] for part in parts_of(joint, cells)], shape), fold) for joint in joints
        }
        self.joint_ = joints[0] if len(joints) == 1 else min(joints, key=lambda name: self._gap(made[name], cells))
        return made[self.joint_]

    def _threads(self) -> int:
        return effective_n_jobs(self.n_jobs)

    def _joints(self, cells: Cells) -> list[str]:
        """Name the joints to try."""
        if not self.infer_groups or cells.n_known_groups == 1:
            return ["classes"]
        if self._frozen and self.joint == "cells":
            raise InputError("A frozen model gives classes, not classes and groups together; use another joint.")
        tried = JOINTS if self.joint == "auto" else [self.joint]
        return [name for name in tried if name != "auto" and not (self._frozen and name == "cells")]

    def _gap(self, held_out: OutOfFold, cells: Cells) -> float:
        """Return the DCA of the chosen radius on held-out rows."""
        radii, rule, guard = self._radii(), self._selection_rule(), self._guard()
        rows, predictions = self._heads_of_others(held_out, cells, radii)
        judged = rows.judge(predictions, plain_radius(radii))
        choice, frontier = choose_radius(judged.counts, radii, rule, guard=guard, seen=judged.seen, **self._kept())
        return float(frontier["dca"].iloc[choice.index])

    def _model(self, part: Part) -> Any:
        """Return a fresh model; a frozen one as it is."""
        return clone(self._of_group() if part.what == "group" else self._of_class())

    def _warn_if_known(self, p_class: np.ndarray, cells: Cells) -> None:
        """Warn where a frozen model makes so few errors that the rows must have trained it."""
        known = ~np.isnan(p_class[:, 0])
        wrong = float((p_class[known].argmax(1) != cells.y.numpy()[known]).mean())
        if wrong < FEW_ERRORS:
            warnings.warn(
                f"The frozen model is wrong on {100 * wrong:.2g} % of these rows only; were they among those it was trained "
                "on? A head needs rows that it has not seen.",
                UserWarning,
                stacklevel=5,
            )

    def _fit_models(self, X: Any, cells: Cells, held_out: OutOfFold) -> None:
        """Train the models on all rows."""
        rows = np.arange(len(cells))
        self.estimators_ = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_model)(self._model(part), part, cells, X, rows) for part in parts_of(self.joint_, cells)
        )

    def _cell_probabilities(self, X: Any) -> np.ndarray:
        """Return the probabilities of cells ``(N, Y, A)``, or of classes ``(N, Y, 1)``."""
        check_is_fitted(self)
        X = _as_passed(X)
        if hasattr(self, "n_features_in_") and len(X.shape) == 1:
            raise ValueError("Expected 2D array, got 1D array instead. Reshape your data: X.reshape(1, -1) for one row.")
        validate_data(self, X, reset=False, skip_check_array=True)
        shape = Shape(len(self.classes_), len(self.group_names_))
        parts = zip(parts_of(self.joint_, shape), self.estimators_, strict=True)
        return join_parts([proba_of(model, X, part.width(shape)) for part, model in parts], shape)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes ``(N, Y)``; of two classes, that of the second minus the first ``(N,)``.

        Parameters
        ----------
        X : array-like or DataFrame of shape (N, D)
            Rows to predict; no group is needed.
        """
        return self._head_decision(self._cell_probabilities(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``: those of the wrapped classifier, calibrated out of fold.

        They say how likely a class is, not what is decided: see :meth:`predict` and :meth:`decision_function`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (N, D)
            Rows to predict; no group is needed.
        """
        return self._head_proba(self._cell_probabilities(X))

    def _to_state(self) -> dict[str, Any]:
        skops = require("skops.io", extra="skops", what="Saved heads with their classifiers")
        packed = [skops.dumps(model) for model in self.estimators_]
        if strange := {name for content in packed for name in skops.get_untrusted_types(data=content)} - TRUSTED:
            raise InputError(
                f"The wrapped classifier cannot be saved without pickle: it holds {', '.join(sorted(strange)[:3])}. Save it "
                "by its own means, and the head by itself: model.head.save('head.json')."
            )
        return super()._to_state() | {"estimators_": [np.frombuffer(content, dtype=np.uint8) for content in packed]}

    def _from_state(self, fitted: dict[str, Any]) -> None:
        skops = require("skops.io", extra="skops", what="Saved heads with their classifiers")
        try:
            models = [skops.loads(content.tobytes(), trusted=sorted(TRUSTED)) for content in fitted["estimators_"]]
        except Exception as error:
            raise ValueError(f"its classifier cannot be read: {error}") from error
        super()._from_state(fitted | {"estimators_": models})

    @property
    def head(self) -> FairDROHead:
        """The head by itself, which takes the probabilities of cells: ``head.predict(None, p_cells)``."""
        check_is_fitted(self)
        own = self.get_params(deep=False)
        head = FairDROHead(**{name: value for name, value in own.items() if name in FairDROHead().get_params()})
        fitted = {name: value for name, value in vars(self).items() if name.endswith("_")}
        for name in fitted.keys() - {"estimators_", "joint_", "n_features_in_", "feature_names_in_"}:
            setattr(head, name, fitted[name])
        return head

    def _fits_together(self) -> bool:
        shape = Shape(len(self.classes_), len(self.group_names_))
        return len(self.estimators_) == len(parts_of(self.joint_, shape)) and super()._fits_together()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if is_classifier(self._of_class()):
            inner = get_tags(self._of_class()).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags


def _as_passed(X: Any) -> Any:
    """Return a table as it is, a sparse one so that rows can be taken of it, and what is none as an array."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    return X if hasattr(X, "shape") else np.asarray(X)
