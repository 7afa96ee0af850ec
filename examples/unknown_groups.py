"""
Missing groups
==============

Half of the groups, or nearly all, are unknown: a few people told their sex, the others are inferred in shares.

The groups of fresh rows, by which all are judged, are known here.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from fairdro import FairDROClassifier, load_dataset
from fairdro.metrics import balanced_accuracy, dca

data = load_dataset("adult")
X, X_test, y, y_test, sex, sex_test = train_test_split(
    data.X.to_numpy(float), data.y, data.sensitive["sex"].to_numpy(), random_state=0
)
told = np.where(np.random.default_rng(0).random(len(y)) < 0.05, sex, None)  # one in twenty
known = np.array([value is not None for value in told])

# %%
# Five ways
# ---------
# ``missing_groups="infer"`` replaces an unknown group by shares, inferred from the features and the class by a model of
# the known ones. ``"ignore"`` trains on such rows without counting them for fairness.

rows = {}
for name, model in {
    "plain training": FairDROClassifier(0.0).fit(X, y, sensitive_features=sex),
    "all groups known": FairDROClassifier(10.0).fit(X, y, sensitive_features=sex),
    "inferred": FairDROClassifier(10.0, missing_groups="infer").fit(X, y, sensitive_features=told),
    "ignored": FairDROClassifier(10.0, missing_groups="ignore").fit(X, y, sensitive_features=told),
    "known rows only": FairDROClassifier(10.0).fit(X[known], y[known], sensitive_features=sex[known]),
}.items():
    predicted = model.predict(X_test)
    accuracy = balanced_accuracy(y_test, predicted, sensitive_features=sex_test)
    rows[name] = 100 * accuracy, 100 * dca(y_test, predicted, sensitive_features=sex_test)
    print(
        f"{name:17}  accuracy = {100 * accuracy:.1f}   DCA = {100 * dca(y_test, predicted, sensitive_features=sex_test):.1f}"
    )

# %%
# What is lost
# ------------
# On test rows. With one group in twenty known, inferring the others gets nearest to knowing them all; leaving them out,
# in one way or the other, closes little of the gap, as the known rows of the smallest class and group are only a few
# dozen.

gaps = pd.DataFrame(rows, index=["accuracy", "DCA"]).loc["DCA"][::-1]
ax = gaps.plot.barh(figsize=(7, 3.8), xlabel="gap between groups, DCA (points)")
ax.bar_label(ax.containers[0], fmt="%.1f", padding=3)
plt.tight_layout()
plt.show()
