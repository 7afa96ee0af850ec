"""
Groups that are not known
=========================

Half of the groups, or nearly all, are unknown: a few people told their sex, the others are inferred in shares.

The groups of fresh rows, by which all are judged, are known here.
"""

import numpy as np
from sklearn.model_selection import train_test_split

from fairdro import FairDROClassifier, load_dataset
from fairdro.metrics import balanced_accuracy, dca

data = load_dataset("adult")
X, X_test, y, y_test, sex, sex_test = train_test_split(
    data.X.to_numpy(float), data.y, data.sensitive["sex"].to_numpy(), random_state=0
)
told = np.where(np.random.default_rng(0).random(len(y)) < 0.05, sex, None)  # one in twenty
known = np.array([value is not None for value in told])

for name, model in {
    "plain training": FairDROClassifier(0.0).fit(X, y, sensitive_features=sex),
    "all groups known": FairDROClassifier(10.0).fit(X, y, sensitive_features=sex),
    "inferred": FairDROClassifier(10.0, missing_groups="infer").fit(X, y, sensitive_features=told),
    "ignored": FairDROClassifier(10.0, missing_groups="ignore").fit(X, y, sensitive_features=told),
    "known rows only": FairDROClassifier(10.0).fit(X[known], y[known], sensitive_features=sex[known]),
}.items():
    predicted = model.predict(X_test)
    accuracy = balanced_accuracy(y_test, predicted, sensitive_features=sex_test)
    print(
        f"{name:17}  accuracy = {100 * accuracy:.1f}   DCA = {100 * dca(y_test, predicted, sensitive_features=sex_test):.1f}"
    )
