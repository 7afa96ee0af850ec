"""
A model that is already trained
===============================

The model is there, was costly, and must not be touched. ``FrozenEstimator`` of scikit-learn keeps it as it is; only a
head is fitted, to rows that the model was not trained on. The second half shows why these rows must be new to it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from fairdro import FairDROHeadClassifier, load_dataset
from fairdro.metrics import confusion

data = load_dataset("adult")
income, sex = np.array(data.class_names)[data.y], data.sensitive["sex"].to_numpy()
X, y = data.X.to_numpy(), income
X_old, X, y_old, y, sex_old, sex = train_test_split(X, y, sex, train_size=0.4, random_state=0)
X_new, X_test, y_new, y_test, sex_new, sex_test = train_test_split(X, y, sex, test_size=0.5, random_state=0)

forest = RandomForestClassifier(60, n_jobs=2, random_state=0).fit(X_old, y_old)  # "the model you have"
groups = HistGradientBoostingClassifier(max_iter=60)  # guesses the group of a row

# %%
# A head on new rows, and one on old rows
# ---------------------------------------
# The forest has nearly memorised the rows it was trained on. There its errors, to which a head is fitted, are few and
# not those that it makes on new people: what such a head promises on old rows, it does not keep. How far it is off depends
# on how much a model has memorised: a forest with larger leaves, or boosting, does less harm. This one shows it best.

heads = {}
for name, rows in {"new rows": (X_new, y_new, sex_new), "old rows": (X_old, y_old, sex_old)}.items():
    head = FairDROHeadClassifier(FrozenEstimator(forest), group_estimator=groups, keep_accuracy=0.97, cv=3)
    heads[name] = head.fit(rows[0], rows[1], sensitive_features=rows[2])

judged = {"forest as it is": confusion(y_test, forest.predict(X_test), sensitive_features=sex_test)}
for name, head in heads.items():
    judged[f"head fitted to {name}"] = confusion(y_test, head.predict(X_test), sensitive_features=sex_test)
    promised, kept = head.held_out().metric("dca"), judged[f"head fitted to {name}"].metric("dca")
    print(f"head fitted to {name}: DCA promised = {100 * promised:.1f}, on test rows = {100 * kept:.1f}")

# %%
# On test rows
# ------------
# Bars are accuracies of each class and group with 95 % intervals. Both heads also make up for the rare class, which
# plain forests neglect, because by default every class and group counts the same.

cells = {name: 100 * one.cells()[["accuracy", "low", "high"]] for name, one in judged.items()}
accuracy = pd.DataFrame({name: table["accuracy"] for name, table in cells.items()})
reach = [[table["accuracy"] - table["low"], table["high"] - table["accuracy"]] for table in cells.values()]
accuracy.index = [f"{group}\n{label}" for label, group in accuracy.index]
ax = accuracy.plot.bar(yerr=np.array(reach), rot=0, capsize=3, figsize=(7.5, 4.5), ylim=(0, 100))
for bars, hatch in zip(ax.containers[1::2], ["", "//", ".."], strict=True):
    for bar in bars:
        bar.set(hatch=hatch, edgecolor="white")
ax.set(ylabel="predicted right (% of test rows)")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize="small")
plt.tight_layout()
plt.show()
