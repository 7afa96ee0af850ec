"""
Soft groups: probabilities of the group
=======================================

Groups known as probabilities only: sex is not asked, but guessed from other columns, as others guess from names.

The guess is a table with a column per group whose rows sum to one. Training on it is compared with training on the true
groups, and both are judged by the true groups of fresh rows.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdro import FairDROClassifier, load_dataset
from fairdro.metrics import balanced_accuracy, dca

data = load_dataset("adult")
sex = pd.Series(np.array(data.group_names)[data.a])
train, test = train_test_split(np.arange(len(data)), test_size=0.4, random_state=0, stratify=data.y * 2 + data.a)

# %%
# The guess
# ---------
# Whoever knows a few groups can guess the others: here 2,000 people told theirs.
told = train[:2000]
guesser = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(data.X.iloc[told], sex.iloc[told])
shares = pd.DataFrame(guesser.predict_proba(data.X.iloc[train]), columns=guesser.classes_)
print(f"guessed right: {100 * (guesser.predict(data.X.iloc[test]) == sex.iloc[test]).mean():.0f} %")

# %%
# Training on shares
# ------------------
# Shares are passed where groups are passed otherwise.

rows = []
for rho in (0.0, 10.0):
    for name, groups in {"true groups": sex.iloc[train], "guessed shares": shares}.items():
        model = FairDROClassifier(rho).fit(data.X.iloc[train], data.y[train], sensitive_features=groups)
        predicted, a = model.predict(data.X.iloc[test]), sex.iloc[test]
        accuracy = balanced_accuracy(data.y[test], predicted, sensitive_features=a)
        gap = dca(data.y[test], predicted, sensitive_features=a)
        rows.append({"rho": rho, "groups": name, "accuracy": 100 * accuracy, "DCA": 100 * gap})
        print(f"rho = {rho:4}   {name:14}   accuracy = {100 * accuracy:.1f}   DCA = {100 * gap:.1f}")

# %%
# What a guess costs
# ------------------
# Guessed shares close a good part of the gap, and less of it than true groups do: where the guess is wrong, errors are
# counted for the wrong group.

gaps = pd.DataFrame(rows).pivot(index="rho", columns="groups", values="DCA")
gaps.index = ["plain training\n(rho = 0)", "FairDRO\n(rho = 10)"]
ax = gaps[["true groups", "guessed shares"]].plot.bar(
    rot=0, figsize=(6.5, 4), ylabel="gap between true groups, DCA (points)"
)
for bars, hatch in zip(ax.containers, ["", "//"], strict=True):
    ax.bar_label(bars, fmt="%.1f")
    for bar in bars:
        bar.set(hatch=hatch, edgecolor="white")
ax.legend(title="trained with")
plt.tight_layout()
plt.show()
