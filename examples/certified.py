"""
Certify that the gap is small
=============================

Show that the gap is below a limit: rows that are set aside certify it, and choose the radius in a fixed sequence.
"""

import matplotlib.pyplot as plt
import numpy as np

from fairdro import FairDROHeadClassifier
from fairdro.errors import InputError
from fairdro.selection import CertifiedDCA, certify, rows_needed

rng = np.random.default_rng(0)
n = 12_000
sex, y = rng.choice(["f", "m"], n), rng.integers(0, 2, n)
X = np.column_stack([2 * y + 0.6 * (sex == "m") + rng.normal(size=n), (sex == "m") + 0.3 * rng.normal(size=n)])

# %%
# Choose by certificate
# ---------------------
# ``certify=0.4`` sets 40 % of the rows aside before anything is trained. The most accurate radius whose gap is
# certified to be at most 5 % is chosen.

model = FairDROHeadClassifier(rule=CertifiedDCA(0.05), certify=0.4).fit(X, y, sensitive_features=sex)
print(model.certificate_)  # with 95 % confidence, at most 5 %
assert model.certificate_.dca == 0.05

# %%
# Too few rows
# ------------

try:  # where rows do not suffice, it says so, and how many would
    FairDROHeadClassifier(rule=CertifiedDCA(0.04)).fit(X[:6000], y[:6000], sensitive_features=sex[:6000])
except InputError as error:
    print(error)

# %%
# Any model, and how many rows it takes
# -------------------------------------
# ``certify`` needs only true classes, predictions and groups of new rows. ``rows_needed`` plans ahead.

new = 1000  # rows that neither trained nor chose what is certified
certificate = certify(y[-new:], (X[-new:, 0] > 1).astype(int), sensitive_features=sex[-new:])  # of any model
print(certificate.sentence(max_dca=0.15))
print(f"Accuracies like these need {rows_needed([[0.85, 0.84], [0.80, 0.82]], 0.05)} rows to certify 5 %.")

# %%
# The bound comes closer with more rows: the same rule for predictions, certified by growing parts of the table. The gap
# as observed is no bound.

sizes = [250, 500, 1000, 2000, 4000, 8000, 12_000]
parts = [certify(y[:m], (X[:m, 0] > 1).astype(int), sensitive_features=sex[:m]) for m in sizes]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.semilogx(sizes, [100 * part.dca for part in parts], "s-", label="certified: at most, with 95 % confidence")
ax.semilogx(sizes, [100 * part.observed["dca"] for part in parts], "o--", label="observed")
ax.set_xticks(sizes, [f"{m:,}" for m in sizes])
ax.minorticks_off()
ax.set(xlabel="rows that certify", ylabel="gap between groups, DCA (points)", ylim=(0, None))
ax.legend()
plt.show()
