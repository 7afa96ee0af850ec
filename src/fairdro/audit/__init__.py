"""Audits of predictions, whoever made them: selection rates, impact ratios, accuracies and calibration by group.

:func:`audit_table` computes, :func:`in_short` says what was found, :func:`write_audit` writes a page, Markdown or JSON.
Nothing here gives a verdict.
"""

from fairdro.audit.compute import Audit, audit_table
from fairdro.audit.outputs import write_audit
from fairdro.audit.words import in_short

__all__ = ["Audit", "audit_table", "in_short", "write_audit"]
