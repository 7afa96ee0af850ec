"""
Audit decisions of any model
============================

Audit decisions without knowing who was right: selection rates by sex, by origin and by both, as a page to hand in.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
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

# %%
# In short
# --------
# The table needs one row per person: the groups, and what was decided, here before and after a change of the procedure.

audit = audit_table(table, groups=["sex", "origin"], predictions=["old", "new"], favourable="hired")
for sentence in in_short(audit):
    print(sentence)

# %%
# Selection rates
# ---------------
# ``parts`` has the tables behind these sentences: by sex, by origin and by both. Lines are 95 % intervals; below the
# dashed line a group is hired less than four fifths as often as the group hired most.

by_sex = audit.parts[0]
for rates in by_sex.rates:
    print(f"{rates.outcome.column}: impact ratio = {rates.table.loc['female', 'ratio']:.2f}")
((_, changed),) = by_sex.rate_changes
print(changed.round(3))  # paired: both decisions are about the same people

by_both = audit.parts[-1]
fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.8), sharey=True, sharex=True, layout="constrained")
for ax, rates in zip(axes, by_both.rates, strict=True):
    told = 100 * rates.table[["rate", "low", "high"]]
    ax.errorbar(told["rate"], told.index, xerr=[told["rate"] - told["low"], told["high"] - told["rate"]], fmt="o", capsize=4)
    ax.axvline(80 * rates.table["rate"].max(), color="black", ls="--", lw=1)
    ax.set(title=f"{rates.outcome.column} procedure", xlabel="hired (% of the group)")
plt.show()

# %%
# The page
# --------
# One file to hand in, with all tables and pictures.

with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "audit.html"
    write_audit(audit, page, title="Hiring, before and after")  # or audit.md, audit.json
    print(f"The page has {page.stat().st_size:,} bytes and needs nothing but a browser.")
