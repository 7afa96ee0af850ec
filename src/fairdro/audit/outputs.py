"""An audit as a file: a page, Markdown or JSON with the same content."""

import json
import math
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from fairdro._utils.files import write_whole
from fairdro._utils.markdown import escape, markdown_table
from fairdro.audit.compute import Audit, Part, Rates
from fairdro.audit.document import Block, Heading, Picture, Sentences, Table, Terms, document
from fairdro.audit.page import build_page
from fairdro.audit.words import METHODS, SOURCES, in_short
from fairdro.errors import InputError

VERSION = 1  # of the JSON schema in docs/audit.md


def write_audit(audit: Audit, path: Path | str, *, title: str = "Audit") -> None:
    """Write an audit by the name of the file: ``.html``, ``.md`` or ``.json``.

    Parameters
    ----------
    audit : Audit
        Of :func:`audit_table`.
    path : path
        Of the file.
    title : str, default "Audit"
        What was audited, in words.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.audit import audit_table, write_audit
    >>> table = pd.DataFrame({
    ...     "sex": ["f"] * 100 + ["m"] * 100,
    ...     "hired": ["no"] * 70 + ["yes"] * 30 + ["no"] * 50 + ["yes"] * 50,
    ... })
    >>> audit = audit_table(table, groups=["sex"], predictions=["hired"])
    >>> write_audit(audit, "hiring.md", title="Hiring in 2024")
    >>> from pathlib import Path
    >>> Path("hiring.md").read_text(encoding="utf-8").splitlines()[0]
    '# Hiring in 2024'
    """
    path = Path(path)
    write_whole(path, FORMATS[check_format(path)](audit, title))


def check_format(path: Path) -> str:
    """Return the suffix of a file for an audit, if it is one of a known format."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{path} must end in {', '.join(FORMATS)}: a page, Markdown or JSON.")
    return suffix


def to_markdown(audit: Audit, title: str = "Audit") -> str:
    """Return the audit in Markdown; pictures are left out, as tables have their figures."""
    blocks = [f"# {escape(title)}\n", *(text for block in document(audit) if (text := _markdown(block)))]
    return "\n".join([*blocks, f"Made by fairdro {metadata.version('fairdro')}.\n"])


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {escape(text)}\n"
        case Sentences(texts, listed):
            return "".join(f"- {escape(text)}\n" for text in texts) if listed else f"{escape(' '.join(texts))}\n"
        case Terms(meanings):
            return "".join(f"- **{escape(word)}.** {escape(meaning)}\n" for word, meaning in meanings.items())
        case Table(columns, rows):
            return markdown_table(map(escape, columns), [map(escape, row) for row in rows])
        case Picture():
            return ""


def to_json(audit: Audit, title: str = "Audit") -> str:
    """Return the audit in JSON, by the schema in ``docs/audit.md``; shares are fractions, null is undefined."""
    return json.dumps(to_dict(audit, title), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def to_dict(audit: Audit, title: str = "Audit") -> dict[str, Any]:
    """Return the audit as plain data, as it is in JSON."""
    return {
        "format": "fairdro audit",
        "version": VERSION,
        "fairdro": metadata.version("fairdro"),
        "title": title,
        "rows": audit.rows,
        "predictions": audit.predictions,
        "target": audit.target,
        "score": audit.score,
        "threshold": audit.threshold,
        "at_median": audit.at_median,
        "favourable": audit.favourable,
        "in_short": in_short(audit),
        "notes": audit.notes,
        "groupings": [_part(part) for part in audit.parts],
        "methods": METHODS,
        "sources": SOURCES,
    }


def _part(part: Part) -> dict[str, Any]:
    known = {
        "columns": part.grouping.columns,
        "unknown": int(part.grouping.sizes[part.grouping.unknown].sum()),
        "rates": [_rates(rates) for rates in part.rates],
        "rate_changes": [{"value": outcome.value, "groups": _records(table)} for outcome, table in part.rate_changes],
        "accuracy": [
            {
                "prediction": judged.prediction,
                "metrics": _records(judged.confusion.metrics().rename_axis("metric")),
                "cells": _records(judged.cells),
                "certificate": judged.certificate.to_dict(),
            }
            for judged in part.judged
        ],
    }
    if part.since:
        known["since"] = [{"words": words, "changes": _records(table)} for words, table in part.since]
    optional = {"accuracy_changes": part.accuracy_changes, "scores": part.scores, "calibration": part.calibration}
    return known | {name: _records(table) for name, table in optional.items() if table is not None}


def _rates(rates: Rates) -> dict[str, Any]:
    outcome = rates.outcome
    named = {"column": outcome.column, "value": outcome.value, "words": outcome.words, "reference": rates.reference}
    return named | {"groups": _records(rates.table)}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table as a list of rows, names of the index included; JSON knows no NaN."""
    named = table if isinstance(table.index, pd.RangeIndex) else table.reset_index()
    return [{str(key): _plain(value) for key, value in row.items()} for row in named.to_dict("records")]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


FORMATS: dict[str, Callable[[Audit, str], str]] = {".html": build_page, ".md": to_markdown, ".json": to_json}
