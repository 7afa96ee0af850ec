"""``fairdro certify``, and what the options that certify a model in training mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fairdro._utils.markdown import percent
from fairdro.cli import options
from fairdro.cli.terminal import console, sentences, status, tell
from fairdro.errors import InputError, check_share


def certifying(share: float | None, max_dca: float | None, delta: float | None) -> dict[str, Any]:
    """Return the parameters of a classifier for these options."""
    from fairdro.selection import CertifiedDCA

    if share is not None:
        check_share(share, "--certify")
        if share in (0, 1):
            raise InputError(f"--certify must leave rows to train on and rows to certify, got {share:g}; 0.2 is usual.")
    if delta is not None and share is None and max_dca is None:
        raise InputError("--delta is for a certificate; add --certify 0.2, or --certified-dca 0.05.")
    rule = None if max_dca is None else CertifiedDCA(max_dca, **options.given_of(delta=delta))
    return options.given_of(certify=share, rule=rule, delta=delta)


def certify(
    model: Annotated[Path, typer.Argument(help="Folder of a model made by `fairdro fit`, or file of a head.")],
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet, of rows that neither trained nor chose the model.")],
    target: Annotated[str, typer.Option(help="Column with the true class.")],
    group: Annotated[list[str], typer.Option(help="Sensitive column; give several for their combinations.")],
    delta: options.Delta = None,
    max_dca: Annotated[
        float | None, typer.Option(help="The gap that is wanted, 0.05 for 5 %; says how many rows would certify it.")
    ] = None,
    missing_groups: options.MissingGroups = None,
    out: Annotated[Path | None, typer.Option(help="File for the same in JSON.")] = None,
    *,
    force: options.Force = False,
) -> None:
    """Certify that the gaps between groups of a model are at most so large, by rows it has never seen."""
    from fairdro._utils.files import check_new, read_table, write_whole
    from fairdro.certificates import CERTIFIED, check_delta, percent_up
    from fairdro.estimators import FairDROHead, load
    from fairdro.estimators.certified_tables import certify_table
    from fairdro.estimators.tables import string_columns

    if out is not None:
        check_new(out, force=force, inputs=[file, *(model.iterdir() if model.is_dir() else [model])])
    given = options.given_of(delta=delta, missing_groups=missing_groups)
    check_delta(given.get("delta", 0.05))
    if max_dca is not None:
        check_share(max_dca, "--max-dca")
    with status(f"Predicting {file} ..."), sentences():
        fitted = load(model)
        strings = [] if isinstance(fitted, FairDROHead) else string_columns(fitted)
        certificate, notes = certify_table(fitted, read_table(file, strings=strings), target=target, groups=group, **given)
    for note in notes:
        tell(note)
    table = Table("in percent", "observed", "certified at most", title=f"{certificate.rows:,} rows")
    for name, title in CERTIFIED.items():
        table.add_row(title, percent(certificate.observed[name]), percent_up(certificate.bounds[name]))
    console.print(table)
    tell(certificate.sentence(max_dca))
    tell("This holds if the rows neither trained the model nor chose it, or anything of it; each figure by itself.")
    if out is not None:
        write_whole(out, json.dumps(certificate.to_dict(), indent=1, allow_nan=False) + "\n")
        tell(f"The same is in {out}.")
