"""
Certify that the gap is small
=============================

Show that the gap is below a limit: rows that are set aside certify it, and choose the radius in a fixed sequence.
"""

import numpy as np

from fairdro import FairDROHeadClassifier
from fairdro.errors import InputError
from fairdro.selection import CertifiedDCA, certify, rows_needed

rng = np.random.default_rng(0)
n = 12_000
sex, y = rng.choice(["f", "m"], n), rng.integers(0, 2, n)
X = np.column_stack([2 * y + 0.6 * (sex == "m") + rng.normal(size=n), (sex == "m") + 0.3 * rng.normal(size=n)])

model = FairDROHeadClassifier(rule=CertifiedDCA(0.05), certify=0.4).fit(X, y, sensitive_features=sex)
print(model.certificate_)  # with 95 % confidence, at most 5 %
assert model.certificate_.dca == 0.05

try:  # where rows do not suffice, it says so, and how many would
    FairDROHeadClassifier(rule=CertifiedDCA(0.04)).fit(X[:6000], y[:6000], sensitive_features=sex[:6000])
except InputError as error:
    print(error)

new = 1000  # rows that neither trained nor chose what is certified
certificate = certify(y[-new:], (X[-new:, 0] > 1).astype(int), sensitive_features=sex[-new:])  # of any model
print(certificate.sentence(max_dca=0.15))
print(f"Accuracies like these need {rows_needed([[0.85, 0.84], [0.80, 0.82]], 0.05)} rows to certify 5 %.")
