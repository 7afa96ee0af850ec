"""Find measured numbers in prose that are not on the page they are said to be from.

A block is a paragraph, a list item or a table. A block with decimal numbers links the page of results they are from; a list
item or a table may leave that to the paragraph before it. Every decimal number of the block stands on one of these pages,
with the same digits; numbers that belong together, as in 79.1 / 1.9, 4.6 ± 1.9 or 1.7 to 2.8, follow each other there. In a
block that links a page which benchmarks/ writes, whole numbers stand there, too, if they are like 45,222 or in %, points, s
or times.

Code, other whole numbers and versions (Python 3.11) are not looked at. Other numbers that nobody measured are named in a
comment of the block: <!-- given: 0.02 0.95 -->
"""

import re
from collections.abc import Iterator
from pathlib import Path

NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*\.\d+(?![\w]|\.\d)")
WHOLE = re.compile(r"(?<![\w.,/-])(?:\d{1,3}(?:,\d{3})+(?!\w|[.,]\d)|\d+(?=\s(?:%|(?:points?|s|times)\b)))")
STANDING = re.compile(r"(?<![\w.,])\d(?:[\d,]*\d)?(?!\w|[.,]\d)")
RESULTS = {f"{path.stem}.md" for path in (Path(__file__).parents[1] / "benchmarks").iterdir()}
TOGETHER = re.compile(rf"{NUMBER.pattern}(?:\s*(?:/|±|to|\()\s*{NUMBER.pattern})+")
GIVEN = re.compile(r"<!--\s*given:(.*?)-->", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]+\.md)(?:#[^)]*)?\)")
VERSION = re.compile(rf"\b(?:Python|fairlearn|oxonfair|AIF360|pyspark|release|version|before) {NUMBER.pattern}")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s")


def unsourced(text: str, folder: Path) -> list[str]:
    """Return a sentence for each number of a text in ``folder`` that is not on the pages its block links."""
    found, lead = [], ""
    for block in blocks(text):
        linked = LINK.findall(block)
        if block.lstrip().startswith("|") or ITEM.match(block):
            linked += LINK.findall(lead)
        else:
            lead = block
        found += [f"{problem}: {' '.join(block.split())[:90]}" for problem in problems(block, folder, linked)]
    return found


def blocks(text: str) -> Iterator[str]:
    """Give paragraphs, list items and tables, without code."""
    text = re.sub(r"^(\s*)(```|~~~).*?^\1\2$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", text)
    block: list[str] = []
    for line in [*text.split("\n"), ""]:
        table = line.lstrip().startswith("|")
        another = ITEM.match(line) or line.startswith("#") or table != block[-1].lstrip().startswith("|") if block else False
        if block and (another or not line.strip()):
            yield "\n".join(block)
            block = []
        if line.strip():
            block.append(line)


def problems(block: str, folder: Path, linked: list[str]) -> Iterator[str]:
    """Give what is wrong with the numbers of a block."""
    given = set(" ".join(GIVEN.findall(block)).split())
    said = VERSION.sub("", GIVEN.sub(" ", re.sub(r"\]\([^)]*\)", "]", block)))
    pages = [(folder / page).read_text(encoding="utf-8") for page in linked if (folder / page).exists()]
    lines = [line for page in pages for line in page.split("\n")]
    anywhere = {number for line in lines for number in NUMBER.findall(line)}
    for number in dict.fromkeys(NUMBER.findall(said)):
        if number not in given and number not in anywhere:
            yield f"{number} is not on {' or '.join(linked)}" if linked else f"{number} has no page"
    whole = {number for line in lines for number in STANDING.findall(line)}
    for number in dict.fromkeys(WHOLE.findall(said)) if RESULTS.intersection(Path(page).name for page in linked) else ():
        if number not in given | whole:
            yield f"{number} is not on {' or '.join(linked)}"
    for row in said.split("\n") if said.lstrip().startswith("|") else [" ".join(said.split())]:
        for run in TOGETHER.finditer(row):
            numbers = [number for number in NUMBER.findall(run[0]) if number not in given]
            if anywhere.issuperset(numbers) and not any(within(numbers, line, run[0]) for line in lines):
                yield f"{run[0]} does not stand together on {' or '.join(linked)}"


def within(numbers: list[str], line: str, run: str) -> bool:
    """Whether numbers follow each other in a line, from which intervals are left out where the run of numbers has none."""
    there = NUMBER.findall(line if "±" in run else re.sub(rf"±\s*{NUMBER.pattern}", "", line))
    return any(there[i : i + len(numbers)] == numbers for i in range(len(there)))
