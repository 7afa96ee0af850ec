"""Tables and figures as people read them; whatever comes from data is escaped."""

import math
import re
from collections.abc import Iterable


def escape(text: object) -> str:
    """Return a text that Markdown and HTML show as it is, on one line."""
    entities = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#!$])", r"\\\1", " ".join(entities.split()))


def markdown_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *map(list, rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def percent(share: float) -> str:
    """Write a share in percent; nothing for one that is missing."""
    return "" if math.isnan(share) else f"{100 * share:.1f}"
