"""
Three classes and five groups
=============================

Three classes and five groups on real data: working hours on Adult, groups by sex and race.

Does a person work less than 40 hours a week, 40, or more? fairlearn's reductions refuse more than two classes.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from fairdro import FairDROClassifier, load_dataset
from fairdro.metrics import balanced_accuracy, dca, group_report, worst_accuracy

data = load_dataset("adult", sensitive=["sex", "race"])
hours = data.X["hours-per-week"]
y = np.select([hours < 40, hours == 40], ["less", "40 hours"], "more")
X = data.X.drop(columns="hours-per-week").assign(income=data.y)

# %%
# Classes and groups
# ------------------

# five groups with enough people of every class in each
race = data.sensitive["race"].where(data.sensitive["race"].isin(["White", "Black"]), "other")
groups = (data.sensitive["sex"] + ", " + race).replace({"Female, other": "other", "Male, other": "other"})
print(pd.crosstab(groups, y, rownames=["group"], colnames=["class"]), end="\n\n")

train, test = train_test_split(np.arange(len(y)), test_size=0.4, random_state=0, stratify=groups + y)
try:
    reduction = ExponentiatedGradient(LogisticRegression(), EqualizedOdds())
    reduction.fit(X.iloc[train], y[train], sensitive_features=groups.iloc[train])
except ValueError as refusal:
    print(f"fairlearn: {refusal}")

# %%
# Four radii
# ----------
# With five groups, weights stay positive up to rho = 1/4. All figures are of test rows.

cells = {}
for rho in (0.0, 0.1, 0.3, 1.0):
    model = FairDROClassifier(rho).fit(X.iloc[train], y[train], sensitive_features=groups.iloc[train])
    predicted, a = model.predict(X.iloc[test]), groups.iloc[test]
    cells[rho] = 100 * group_report(y[test], predicted, sensitive_features=a)["accuracy"]
    print(
        f"rho = {rho:4}   accuracy = {100 * balanced_accuracy(y[test], predicted, sensitive_features=a):.1f}   "
        f"DCA = {100 * dca(y[test], predicted, sensitive_features=a):.1f}   "
        f"worst class and group = {100 * worst_accuracy(y[test], predicted, sensitive_features=a):.1f}"
    )

# %%
# Fifteen accuracies
# ------------------
# Groups of a class move together. None of the classes becomes easy to predict: the accuracies are made alike, at about
# the same mean.

fig, axes = plt.subplots(1, 3, figsize=(9, 4.2), sharey=True, layout="constrained")
for ax, label in zip(axes, ["less", "40 hours", "more"], strict=True):
    own = pd.DataFrame({rho: table[label] for rho, table in cells.items()}).T
    for group, style in zip(own, ["o-", "s--", "D-.", "^:", "v-"], strict=True):
        ax.plot([f"{rho:g}" for rho in own.index], own[group], style, label=group)
    ax.set(title=label if "40" in label else f"{label} than 40 hours", xlabel="rho")
axes[0].set_ylabel("predicted right (% of test rows)")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()
