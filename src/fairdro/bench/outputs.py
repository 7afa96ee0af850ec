"""What a bench leaves behind for people, made from the store alone."""

from fairdro._utils.files import write_whole
from fairdro.bench.report import build_report
from fairdro.bench.summary import Summary
from fairdro.bench.tables import to_latex, to_markdown


def write_outputs(summary: Summary) -> None:
    """Write ``results.csv``, ``report.html``, the table and the pictures into the folder of the store.

    Parameters
    ----------
    summary : Summary
        Of a bench.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fairdro.bench import Store, Summary, write_outputs
    >>> summary = Summary(Store(Path("results")))  # of a bench that was run into this folder
    >>> write_outputs(summary)  # doctest: +SKIP
    """
    from fairdro.bench.figures import pictures, save_chart  # noqa: PLC0415 - a second to load, which workers can do without

    out = summary.store.out
    summary.store.write_results(summary.results)
    texts = {
        "table.md": f"{summary.how_chosen}.\n\n{to_markdown(summary.table)}",
        "table.csv": summary.table.to_csv(index=False),
        "table.tex": to_latex(summary.table),
        "report.html": build_report(summary),
    }
    for name, text in texts.items():
        write_whole(out / name, text)
    for name, chart in pictures(summary):
        save_chart(chart, out / "figures" / name)
