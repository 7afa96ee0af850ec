"""Audits of predictions, whoever made them: selection rates, impact ratios, accuracies and calibration by group.

:func:`audit_table` computes, :func:`write_audit` writes a page, Markdown or JSON; nothing here gives a verdict.
"""

from fairdro.audit.compute import Audit, audit_table
from fairdro.audit.outputs import FORMATS, write_audit

__all__ = ["FORMATS", "Audit", "audit_table", "write_audit"]
