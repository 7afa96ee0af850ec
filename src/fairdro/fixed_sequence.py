"""Choosing among models whose gaps are certified: fixed-sequence testing, so that trying many costs nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fairdro.certificates import METHOD, Certificate, certify, check_delta, confidence, percent_of
from fairdro.errors import InputError, check_share
from fairdro.frontier import non_dominated
from fairdro.metrics import Confusion


@dataclass(frozen=True)
class CertifiedDCA:
    """The most accurate radius whose DCA is certified to be at most a limit, by fixed-sequence testing.

    Radii are put in order by held-out rows: from the smallest DCA on, each more accurate than the one before. Then each is
    certified at the full delta on rows that neither trained nor chose anything, until the first that fails; the last one
    before it is taken. As the order does not depend on these rows, the DCA of what is taken exceeds the limit with a
    probability of at most delta, however many radii are tried (Angelopoulos et al., Learn then Test, 2021).

    Parameters
    ----------
    max_dca : float, default 0.05
        The limit.
    delta : float, default 0.05
        Probability with which the DCA of what is taken may exceed it.

    See Also
    --------
    certify : Bounds of a model that was chosen by other rows.

    Examples
    --------
    >>> from fairdro import FairDROClassifierCV
    >>> from fairdro.selection import CertifiedDCA
    >>> print(CertifiedDCA(0.1))
    most accurate whose DCA is certified to be at most 10 %, with 95 % confidence
    >>> model = FairDROClassifierCV(rule=CertifiedDCA(0.1))  # then sets a fifth of the rows aside to certify
    """

    max_dca: float = 0.05
    delta: float = 0.05

    def __post_init__(self) -> None:
        check_share(self.max_dca, "max_dca")
        check_delta(self.delta)

    def __str__(self) -> str:
        return (
            f"most accurate whose DCA is certified to be at most {percent_of(self.max_dca)} %, "
            f"with {confidence(self.delta)} % confidence"
        )

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Any:
        """Refuse: points alone do not certify anything.

        Parameters
        ----------
        points : DataFrame
            A row per point, with its metrics.
        plain : Series
            The row of plain training.
        """
        raise InputError(
            "CertifiedDCA needs rows that are set aside to certify: it is a rule for FairDROClassifierCV, heads and boosted "
            "trees; choose by LimitDCA here."
        )

    def sequence(self, points: pd.DataFrame) -> list[int]:
        """Return the positions of the points to certify, in order.

        Parameters
        ----------
        points : DataFrame
            A row per point, with ``accuracy`` and ``dca`` on held-out rows.

        Returns
        -------
        list of int
        """
        return [int(i) for i in non_dominated(points["accuracy"], points["dca"])[::-1]]

    def certificate(self, judged: Confusion, tried: int) -> Certificate:
        """Return what holds of the point that was taken: the limit of the DCA, and all else as if all were certified.

        Which point is taken depends on the rows: its own bound of the DCA, below the limit, would not hold, and bounds of
        other figures need delta divided by the number ``tried``, the length of the sequence.

        Parameters
        ----------
        judged : Confusion
            How the rows that were set aside are predicted.
        tried : int
            Length of the sequence.

        Returns
        -------
        Certificate
        """
        found = certify(judged, delta=self.delta / max(tried, 1))
        deo = self.max_dca if len(judged.class_names) == 2 else found.deo
        method = f"{METHOD}; fixed-sequence testing of {tried} radii"
        return replace(found, dca=self.max_dca, deo=deo, delta=self.delta, method=method)

    def walk(self, sequence: Sequence[int], judge: Callable[[int], Confusion]) -> int:
        """Return the last position before the first that is not certified.

        Parameters
        ----------
        sequence : sequence of int
            Of :meth:`sequence`.
        judge : callable
            Gives how the rows that were set aside are predicted at a position; asked for no more than needed.
        """
        taken = None
        for position in sequence:
            certificate = certify(judge(position), delta=self.delta)
            if not certificate.dca <= self.max_dca:
                if taken is None:
                    raise InputError(
                        f"No radius is certified to have a DCA of at most {percent_of(self.max_dca)} %. Of the fairest: "
                        f"{certificate.sentence(self.max_dca)}"
                    )
                break
            taken = position
        if taken is None:
            raise InputError("There is no radius to certify.")
        return taken
