"""
Audit decisions of any model
============================

Audit decisions without knowing who was right: selection rates by sex, by origin and by both, as a page to hand in.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from fairdro.audit import audit_table, in_short, write_audit

rng = np.random.default_rng(0)
n = 5000
sex, origin = rng.choice(["female", "male"], n), rng.choice(["abroad", "here"], n, p=[0.3, 0.7])
skill = rng.normal(size=n)
table = pd.DataFrame({"sex": sex, "origin": origin})
table["old"] = np.where(skill + rng.normal(size=n) - 0.5 * (sex == "female") > 0.8, "hired", "rejected")
table["new"] = np.where(skill + 0.5 * rng.normal(size=n) > 0.8, "hired", "rejected")
table.loc[rng.random(n) < 0.02, "sex"] = None  # some did not say

audit = audit_table(table, groups=["sex", "origin"], predictions=["old", "new"], favourable="hired")
for sentence in in_short(audit):
    print(sentence)
by_sex = audit.parts[0]
for rates in by_sex.rates:
    print(f"{rates.outcome.column}: impact ratio = {rates.table.loc['female', 'ratio']:.2f}")
((_, changed),) = by_sex.rate_changes
print(changed.round(3))  # paired: both decisions are about the same people

with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "audit.html"
    write_audit(audit, page, title="Hiring, before and after")  # or audit.md, audit.json
    print(f"The page has {page.stat().st_size:,} bytes and needs nothing but a browser.")
