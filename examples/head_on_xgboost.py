"""
A fair head on XGBoost
======================

FairDRO does not have to be inside training. A *head* is a handful of numbers on top of the probabilities of any
classifier, here of XGBoost, fitted to rows that the trees were not grown on.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

from fairdro import FairDROHeadClassifier, load_dataset
from fairdro.metrics import balanced_accuracy, dca

data = load_dataset("adult")
income, sex = np.array(data.class_names)[data.y], data.sensitive["sex"]
X, X_test, y, y_test, sex, sex_test = train_test_split(data.X, income, sex, random_state=0)

# %%
# Fit
# ---
# Trees for the class and for the group are grown in folds, so that every row is predicted by trees that have not seen
# it. The head is fitted to these predictions for all radii at once, and the fairest radius that keeps 98 % of the
# accuracy is chosen.

trees = XGBClassifier(n_estimators=80, max_depth=4, learning_rate=0.2, n_jobs=2)
model = FairDROHeadClassifier(trees, keep_accuracy=0.98, cv=3).fit(X, y, sensitive_features=sex)
print("w, the weights of the head: a row per class, a column per group")
print(pd.DataFrame(model.weights_, index=model.classes_, columns=model.group_names_).round(2))

# %%
# The same trees at every radius
# ------------------------------
# ``at`` gives the model at another radius without any training, so the whole frontier on test rows costs only
# predictions. XGBoost on its own gives every row the same weight: it is right about most people, and about few of the
# rare class.


def judge(predicted: np.ndarray) -> tuple[float, float]:
    """Return accuracy over classes and groups, and the gap, in percent of test rows."""
    told = {"sensitive_features": sex_test}
    return 100 * balanced_accuracy(y_test, predicted, **told), 100 * dca(y_test, predicted, **told)


points = {
    "XGBoost as it is": judge(model.classes_[model.estimators_[0].predict(X_test)]),
    "head, rho = 0": judge(model.at(0.0).predict(X_test)),
    "head, chosen": judge(model.predict(X_test)),
}
for name, (accuracy, gap) in points.items():
    print(f"{name:17} balanced accuracy = {accuracy:.1f}   DCA = {gap:.1f}")

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
frontier = np.array([judge(model.at(rho).predict(X_test)) for rho in model.frontier_["rho"]])
ax.plot(*frontier.T, ".-", color="tab:gray", label="head, all radii")
for (name, point), marker in zip(points.items(), "XDs", strict=True):
    ax.plot(*point, marker, ms=10, label=name)
ax.set(
    xlabel="accuracy, mean over classes and groups (% of test rows)",
    ylabel="gap between groups, DCA (points)",
    ylim=(0, None),
)
ax.legend()
plt.show()
