"""
Who pays for equal accuracies
=============================

Who pays for fairness? Three classes whose scores lie otherwise in each group can be made equal by giving one up.

The guard against levelling down passes such a radius over, and words say who loses and gains.
"""

import numpy as np

from fairdro import FairDROBoostingClassifier, FairDROClassifierCV

rng = np.random.default_rng(0)
n = 6000
group = rng.choice(["u", "v", "w"], n)
score = rng.normal(size=n) + 0.9 * np.searchsorted(["u", "v", "w"], group)
grade = np.array(["low", "middle", "top"])[np.digitize(score + 0.8 * rng.normal(size=n), [0.3, 1.5])]
X = np.column_stack([score + 0.3 * rng.normal(size=n), rng.normal(size=n)])

for name, model in {
    "without a guard": FairDROClassifierCV(keep_accuracy=0.8, keep_class_accuracy=0, cv=3, rhos=[0, 0.1, 0.5, 2, 10]),
    "with the guard": FairDROClassifierCV(keep_accuracy=0.8, cv=3, rhos=[0, 0.1, 0.5, 2, 10]),
    "boosted trees": FairDROBoostingClassifier(keep_accuracy=0.8, cv=3, n_estimators=60),
}.items():
    model.fit(X, grade, sensitive_features=group)
    worst = model.frontier_["worst_accuracy"][model.best_index_]
    print(f"{name}: rho = {model.rho_:.3g}   worst class and group = {100 * worst:.1f}")
    print("".join(f"  {sentence}\n" for sentence in model.who_pays()))
print(model.frontier_[["rho", "accuracy", "dca", "levels_down", "who_pays", "selected"]].iloc[::4].to_string())
