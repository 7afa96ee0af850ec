"""
Coming from fairlearn
=====================

For users of fairlearn: the same task with ExponentiatedGradient and with fairdro, judged by fairlearn's own
MetricFrame.

What changes: one estimator instead of a reduction around one, a deterministic prediction, and ``rho`` or a share of
accuracy to keep instead of a bound. What stays: ``fit(X, y, sensitive_features=...)``, ``predict(X)`` without groups,
``MetricFrame``.
"""

import time
import warnings

import matplotlib.pyplot as plt
import pandas as pd
from fairlearn.metrics import MetricFrame, equalized_odds_difference
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from fairdro import FairDROClassifier, FairDROClassifierCV, load_dataset
from fairdro.metrics import balanced_accuracy, dca

warnings.filterwarnings("ignore", "Setting a")  # fairlearn with the newest pandas
data = load_dataset("compas")
X, y, race = data.X, data.y, pd.Series(data.a, name="race").map(dict(enumerate(data.group_names)))
X_train, X_test, y_train, y_test, a_train, a_test = train_test_split(X, y, race, test_size=0.4, random_state=0)

# %%
# Both, one after the other
# -------------------------

before = ExponentiatedGradient(LogisticRegression(max_iter=1000), EqualizedOdds(difference_bound=0.02), max_iter=10)
after = FairDROClassifier(rho=3.0)
chosen = FairDROClassifierCV(keep_accuracy=0.97)  # or let it choose rho on held-out rows

scaler = StandardScaler().fit(X_train)  # fairdro scales by itself; logistic regression needs it
scaled = scaler.transform(X_train), scaler.transform(X_test)
rows = {}
for name, model, (seen, fresh) in [
    ("ExponentiatedGradient", before, scaled),
    ("FairDRO", after, (X_train, X_test)),
    ("FairDRO, chosen", chosen, (X_train, X_test)),
]:
    start = time.perf_counter()
    model.fit(seen, y_train, sensitive_features=a_train)
    seconds = time.perf_counter() - start
    predicted = model.predict(fresh)
    recall = MetricFrame(metrics=recall_score, y_true=y_test, y_pred=predicted, sensitive_features=a_test)
    rows[name] = {
        "balanced accuracy": balanced_accuracy(y_test, predicted, sensitive_features=a_test),
        "DCA": dca(y_test, predicted, sensitive_features=a_test),
        "equalized odds": equalized_odds_difference(y_test, predicted, sensitive_features=a_test),
        "gap in recall": recall.difference(),
        "seconds": seconds,
    }
table = pd.DataFrame(rows).T
print(table.round(3).T.to_string())

# %%
# Side by side
# ------------
# All gaps are on test rows of one small split, where a few points are chance: on this table neither side is clearly
# better. What differs is what you write, and that ``predict`` gives the same row the same answer every time.

gaps = 100 * table.drop(columns="seconds")
ax = gaps.T.plot.bar(rot=0, figsize=(8, 4.2), ylabel="percent, or points between groups")
for bars, hatch in zip(ax.containers, ["", "//", ".."], strict=True):
    for bar in bars:
        bar.set(hatch=hatch, edgecolor="white")
plt.tight_layout()
plt.show()
