"""
COMPAS: one split says little
=============================

Who is arrested again within two years? The table is small: a quarter of it is 1,500 people for testing, and of the
smallest class and group there are about two hundred. A gap measured on so few is mostly chance, so this example repeats
everything on six random splits.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from fairdro import FairDROClassifier, FairDROClassifierCV, load_dataset
from fairdro.metrics import confusion

data = load_dataset("compas")
race = np.array(data.group_names)[data.a]
print(pd.crosstab(race, np.array(data.class_names)[data.y], rownames=["group"], colnames=["class"]))

# %%
# Six splits
# ----------
# On each one, FairDRO chooses its radius by cross-validation within the training rows, and both models are judged on
# the test rows.

rows = []
for seed in range(6):
    X, X_test, y, y_test, a, a_test = train_test_split(data.X, data.y, race, random_state=seed)
    plain = FairDROClassifier(0.0).fit(X, y, sensitive_features=a)
    fair = FairDROClassifierCV(keep_accuracy=0.95, rhos=[0, 1, 3, 10], cv=3).fit(X, y, sensitive_features=a)
    for name, model in {"plain": plain, "FairDRO": fair}.items():
        judged = confusion(y_test, model.predict(X_test), sensitive_features=a_test)
        gap, low, high = judged.metrics().loc["dca"]
        rows.append([seed, name, judged.metric("accuracy"), gap, low, high])
table = pd.DataFrame(rows, columns=["split", "model", "accuracy", "dca", "low", "high"]).set_index(["model", "split"])
table *= 100
print(table.groupby(level="model", sort=False)[["accuracy", "dca"]].agg(["mean", "std"]).round(1))

# %%
# What one split would have said
# ------------------------------
# The vertical lines are 95 % intervals of each gap, by a bootstrap of the test rows. They are about as long as the
# improvement itself, and how much is gained differs from split to split. The mean over splits (thick lines) is what to
# go by.

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, style, color, shift in [("plain", "o", "tab:blue", -0.12), ("FairDRO", "s", "tab:orange", 0.12)]:
    own = table.loc[name]
    ax.errorbar(
        own.index + shift, own["dca"], yerr=[own["dca"] - own["low"], own["high"] - own["dca"]], fmt=style, label=name
    )
    ax.axhline(own["dca"].mean(), color=color, lw=3, alpha=0.4, ls="-" if name == "plain" else "--")
ax.set(xlabel="random split", ylabel="gap between groups on test rows, DCA (points)", ylim=(0, None))
ax.legend()
plt.show()

difference = table.loc["plain", "dca"] - table.loc["FairDRO", "dca"]
print(f"mean gap: plain = {table.loc['plain', 'dca'].mean():.1f}   FairDRO = {table.loc['FairDRO', 'dca'].mean():.1f}")
print(f"FairDRO has the smaller gap on {(difference > 0).sum()} of {len(difference)} splits")
