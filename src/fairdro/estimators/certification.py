"""Rows that are set aside before anything else, by which a classifier's gaps are certified when it is fitted."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils import _safe_indexing

from fairdro.cells import Cells
from fairdro.certificates import Certificate, certify, check_delta
from fairdro.errors import InputError, check_share
from fairdro.estimators.base import CellsMixin
from fairdro.fixed_sequence import CertifiedDCA
from fairdro.groups import encode_groups, encode_labels
from fairdro.metrics import Confusion, confusion_counts
from fairdro.training.folds import hold_out

SET_ASIDE = 0.2  # share of rows, where a rule needs them and nothing else is said


def rows_to_set_aside(y: Any, sensitive_features: Any, missing_groups: str, options: Mapping[str, Any]) -> np.ndarray | None:
    """Return which rows options of a classifier set aside ``(N,)``, for what learns from rows before it; None for none."""
    needed = isinstance(options.get("rule"), CertifiedDCA)
    share = options.get("certify", SET_ASIDE if needed else 0)
    if share == 0 and not needed:
        return None
    _check_aside(share)
    codes, labels = encode_labels(y, "y")
    cells = Cells.from_labels(codes, encode_groups(sensitive_features, missing_groups), n_classes=len(labels))
    mask = np.zeros(len(codes), dtype=bool)
    mask[hold_out(cells, share, 0)[1]] = True
    return mask


def _check_aside(share: Any) -> None:
    check_share(share, "certify")
    if share in (0, 1):
        raise InputError(f"certify must leave rows to train on and rows to certify, got {share!r}; 0.2 is usual.")


class CertificationMixin(CellsMixin):
    """A model that is trained and chosen without some rows, which then certify it."""

    certify: Any = None
    delta: float = 0.05
    cv: Any
    best_index_: int
    predict: Callable[..., np.ndarray]
    _certified_: np.ndarray
    _delta_: float
    _limit_: float | None
    _tried_: int
    _sequence: list[int]
    _on_choice_: list[str]

    @property
    def certificate_(self) -> Certificate:
        """What the rows that were set aside certify; only where there are some."""
        if not hasattr(self, "_certified_"):
            raise AttributeError("No rows were set aside to certify this model; fit it with certify=0.2.")
        judged = self._confusion(self._certified_)
        if self._limit_ is None:
            return certify(judged, delta=self._delta_)
        return CertifiedDCA(self._limit_, self._delta_).certificate(judged, self._tried_)

    def _certifying_rule(self) -> CertifiedDCA | None:
        """Return the selection rule, if it needs rows to certify."""
        rule = self._selection_rule()
        return rule if isinstance(rule, CertifiedDCA) else None

    def _share_aside(self) -> float:
        """Return the share of rows to set aside, 0 for none."""
        asked = self.certify
        if asked is None:
            return 0.0 if self._certifying_rule() is None else SET_ASIDE
        if np.ndim(asked) == 1:
            mask = np.asarray(asked)
            if mask.dtype != np.bool_ or mask.all() or not mask.any():
                raise InputError("certify must be a share such as 0.2, or True and False for the rows to set aside.")
            return float(mask.mean())
        if asked != 0 or self._certifying_rule() is not None:
            _check_aside(asked)
        return float(asked)

    def _share_trained(self) -> float:
        return 1 - self._share_aside()

    def _set_aside(self, cells: Cells, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows to train on, and those to set aside."""
        check_delta(self.delta)
        if (rule := self._certifying_rule()) is not None and self.delta not in (0.05, rule.delta):
            raise InputError(f"delta is {self.delta:g}, but that of the rule {rule.delta:g}; give it to the rule alone.")
        if not self._countable_:
            raise InputError("Rows with weights, and groups in shares, cannot be certified; leave out certify.")
        if not isinstance(self.cv, numbers.Integral) and not hasattr(self.cv, "split"):
            raise InputError(
                "Where rows are set aside by certify, cv must be a number of folds or a splitter, no list of rows."
            )
        if np.ndim(self.certify) == 1:
            mask = np.asarray(self.certify)
            if len(mask) != len(cells):
                raise InputError(f"certify says of {len(mask)} rows whether to set them aside, but there are {len(cells)}.")
            return np.flatnonzero(~mask), np.flatnonzero(mask)
        if min(share, 1 - share) * len(cells) < 1:
            raise InputError(f"There are too few rows ({len(cells)}) to set some aside; leave out certify.")
        return hold_out(cells, share, self._seed())

    def _fit_rows(self, passed: Any, X: Any, cells: Cells) -> None:
        self.__dict__.pop("_certified_", None)  # of rows it was fitted to before
        if (share := self._share_aside()) == 0:
            return super()._fit_rows(passed, X, cells)
        train, aside = self._set_aside(cells, share)
        own, others = (cells.take(torch.from_numpy(rows)) for rows in (train, aside))
        self.cell_counts_ = own.known_part.counts.numpy()
        X = _safe_indexing(X, train)
        super()._fit_rows(None, X, own)
        passed = _safe_indexing(passed, aside)
        if (rule := self._certifying_rule()) is None:
            self._certified_ = self._counts_of(passed, others)
            self._delta_, self._limit_, self._tried_ = float(self.delta), None, 1
            return None
        return self._walk(rule, X, self._settled(X, own), passed, others)

    def _walk(self, rule: CertifiedDCA, X: Any, own: Cells, passed: Any, others: Cells) -> None:
        """Certify radii one after another as the rule says, and become the model of the last that is."""
        models: dict[int, CertificationMixin] = {}
        counts: dict[int, np.ndarray] = {}

        def judge(place: int) -> Confusion:
            models[place] = self if place == self.best_index_ else self._refitted(place, X, own)
            counts[place] = models[place]._counts_of(passed, others)
            return self._confusion(counts[place])

        sequence = self.__dict__.pop("_sequence")
        taken = rule.walk(sequence, judge)
        self.__dict__.update(models[taken].__dict__)
        self._certified_, self._tried_ = counts[taken], len(sequence)
        self._delta_, self._limit_ = float(rule.delta), float(rule.max_dca)
        self._on_choice_ = self._remark_on_certified()

    def _counts_of(self, passed: Any, cells: Cells) -> np.ndarray:
        """Count how rows that were set aside are predicted ``(Y, A, Y)``."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            codes = pd.Index(self.classes_).get_indexer(pd.Index(self._classes_of(passed)))
        return confusion_counts(torch.from_numpy(codes)[cells.known_rows], cells.known_part)

    def _facts(self) -> dict[str, object]:
        """Return what the card says of the certificate."""
        if not hasattr(self, "_certified_"):
            return super()._facts()
        certificate = self.certificate_
        use = "chose the radius by fixed-sequence testing only" if self._limit_ is not None else "did not choose it"
        rows = f"The rows were set aside before anything else: they did not train the model, and {use}."
        return super()._facts() | {"certificate": f"{certificate.sentence()} {certificate.further()} {rows}"}

    def _classes_of(self, passed: Any) -> Any:
        """Predict rows as they were passed."""
        return self.predict(passed)

    def _refitted(self, place: int, X: Any, cells: Cells) -> Self:
        """Return the same model at another place of its frontier, trained on the same rows."""
        raise NotImplementedError

    def _remark_on_certified(self) -> list[str]:
        """Say what there is to say of the radius that was certified."""
        raise NotImplementedError

    def _selection_rule(self) -> Any:
        raise NotImplementedError

    def _confusion(self, counts: np.ndarray) -> Confusion:
        raise NotImplementedError
