"""The page of an audit: one file in HTML that loads nothing, runs nothing and fits a phone."""

import math
from html import escape
from importlib import metadata, resources

from fairdro._utils.pages import fill
from fairdro.audit.compute import Audit
from fairdro.audit.document import Bar, Block, Heading, Picture, Sentences, Table, Terms, document
from fairdro.audit.words import between

WORDS = {"note", "test"}  # columns of words among figures
AXIS = (
    '<div class="row axis" aria-hidden="true"><span></span><div class="bars"><div class="bar"><div class="marks">'
    "<span>0</span><span>50</span><span>100</span></div><span>%</span></div></div></div>"
)


def build_page(audit: Audit, title: str = "Audit") -> str:
    """Return the audit as an HTML page, which needs nothing but a browser.

    Parameters
    ----------
    audit : Audit
    title : str
        What was audited, in words.
    """
    template = resources.files("fairdro.audit").joinpath("page.html").read_text(encoding="utf-8")
    chapters: list[list[str]] = []
    contents = []
    for block in document(audit):
        if isinstance(block, Heading) and block.level == 2:
            contents.append(f'<li><a href="#chapter-{len(chapters)}">{escape(block.text)}</a></li>')
            chapters.append([f'<h2 id="chapter-{len(chapters)}">{escape(block.text)}</h2>'])
        else:
            chapters[-1].append(_html(block))
    body = "\n".join(f"<section>{''.join(chapter)}</section>" for chapter in chapters)
    version = escape(metadata.version("fairdro"))
    return fill(template, title=_name(title), contents="".join(contents), body=body, version=version)


def _name(text: object) -> str:
    """Return a text that may come from data: escaped, and with a direction of its own."""
    return f"<bdi>{escape(str(text))}</bdi>"


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h3>{_name(text)}</h3>"
        case Sentences(texts, listed):
            return (
                f"<ul>{''.join(f'<li>{_name(t)}</li>' for t in texts)}</ul>"
                if listed
                else f"<p>{_name(' '.join(texts))}</p>"
            )
        case Terms(meanings):
            told = (f"<div><dt>{escape(word)}</dt><dd>{escape(meaning)}</dd></div>" for word, meaning in meanings.items())
            return f'<dl class="terms">{"".join(told)}</dl>'
        case Table(columns, rows, names):
            return _table(columns, rows, names)
        case Picture():
            return _picture(block)


def _table(columns: list[str], rows: list[list[str]], names: int) -> str:
    kinds = ["" if i < names or column in WORDS else ' class="figure"' for i, column in enumerate(columns)]
    head = "".join(f'<th scope="col"{kind}>{_name(column)}</th>' for column, kind in zip(columns, kinds, strict=True))
    body = ""
    for row in rows:
        cells = [f'<th scope="row">{_name(cell)}</th>' for cell in row[:names]]
        cells += [f"<td{kind}>{_name(cell)}</td>" for cell, kind in zip(row[names:], kinds[names:], strict=True)]
        body += f"<tr>{''.join(cells)}</tr>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Table">{table}</div>'


def _picture(picture: Picture) -> str:
    legend = "".join(
        f'<span class="series{i}"><svg class="swatch" viewBox="0 0 24 12" aria-hidden="true"><rect class="part" x="1" y="1" '
        f'width="22" height="10"/></svg>{_name(name)}</span>'
        for i, name in enumerate(picture.legend)
    )
    by_name: dict[str, list[Bar]] = {}
    for bar in picture.bars:
        by_name.setdefault(bar.name, []).append(bar)
    rows = "".join(
        f'<div class="row"><span class="name">{_name(name)}</span><div class="bars">{"".join(map(_bar, bars))}</div></div>'
        for name, bars in by_name.items()
    )
    caption = _name(picture.title) + (f'<span class="legend">{legend}</span>' if legend else "")
    return f"<figure><figcaption>{caption}</figcaption>{rows}{AXIS}</figure>"


def _bar(bar: Bar) -> str:
    value, low, high = bar.figures
    told = between(value, low, high)
    whose = f"{bar.label}: " if bar.label else ""
    drawn = ""
    if not math.isnan(value):
        drawn = f'<rect class="part" width="{100 * value:.2f}" height="12"/>'
        if not math.isnan(low):
            drawn += (
                f'<rect class="whisker" x="{100 * low:.2f}" y="5" width="{max(100 * (high - low), 0.3):.2f}" height="2"/>'
            )
    return (
        f'<div class="bar series{bar.series}"><svg viewBox="0 0 100 12" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(whose + (told or "no rows"))} %"><rect class="all" width="100" height="12"/>{drawn}</svg>'
        f'<span class="value">{told or "no rows"}</span></div>'
    )
