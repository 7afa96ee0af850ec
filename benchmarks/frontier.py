"""The picture of README.md and of the front page: plain training and FairDRO on Adult and COMPAS, by both solvers.

python benchmarks/frontier.py collect demo      # keep what `make demo` found, in benchmarks/results/frontier.csv.gz
python benchmarks/frontier.py page              # draw docs/frontier.png from what is kept; no training
"""

from __future__ import annotations

from pathlib import Path

import pages

from fairdro.bench import Store
from fairdro.bench.figures import frontier_chart
from fairdro.bench.tables import over_seeds, select


def main() -> None:
    """Do what was asked for."""
    parser = pages.command(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("page")
    commands.add_parser("collect").add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "collect":
        pages.keep_models("frontier", Store(given.folder).results())
    else:
        points = over_seeds(pages.models("frontier"))
        frontier_chart(points, select(points)).save(pages.DOCS / "frontier.png", scale_factor=2)


if __name__ == "__main__":
    main()
