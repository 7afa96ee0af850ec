"""
Three classes and five groups
=============================

Three classes and five groups on real data: working hours on Adult, groups by sex and race.

Does a person work less than 40 hours a week, 40, or more? fairlearn's reductions refuse more than two classes.
"""

import numpy as np
import pandas as pd
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from fairdro import FairDROClassifier, load_dataset
from fairdro.metrics import balanced_accuracy, dca, worst_accuracy

data = load_dataset("adult", sensitive=["sex", "race"])
hours = data.X["hours-per-week"]
y = np.select([hours < 40, hours == 40], ["less", "40 hours"], "more")
X = data.X.drop(columns="hours-per-week").assign(income=data.y)

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

for rho in (0.0, 0.1, 0.3, 1.0):
    model = FairDROClassifier(rho).fit(X.iloc[train], y[train], sensitive_features=groups.iloc[train])
    predicted, a = model.predict(X.iloc[test]), groups.iloc[test]
    print(
        f"rho = {rho:4}   accuracy = {100 * balanced_accuracy(y[test], predicted, sensitive_features=a):.1f}   "
        f"DCA = {100 * dca(y[test], predicted, sensitive_features=a):.1f}   "
        f"worst class and group = {100 * worst_accuracy(y[test], predicted, sensitive_features=a):.1f}"
    )
