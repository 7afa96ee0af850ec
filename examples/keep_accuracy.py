"""
Keep the ordinary accuracy
==========================

If you must keep ordinary accuracy: every row counts the same, and 99 % of the correct predictions are kept.

By default every class and group counts the same, which costs correct predictions where a class is rare.
"""

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdro import FairDROClassifierCV, load_dataset
from fairdro.metrics import dca

data = load_dataset("adult")
X, X_test, y, y_test, sex, sex_test = train_test_split(data.X, data.y, data.sensitive["sex"], random_state=0)

# %%
# Three models
# ------------
# Logistic regression knows nothing of groups. ``objective="standard"`` lets every row count the same, so that
# ``keep_accuracy`` speaks of ordinary accuracy.

results = {}
models = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y),
    "balanced (default)": FairDROClassifierCV(rhos=[0, 1, 10, 30, 100], cv=3),
    "standard objective": FairDROClassifierCV(objective="standard", keep_accuracy=0.99, rhos=[0, 1, 10, 30, 100], cv=3),
}
for name, model in models.items():
    if isinstance(model, FairDROClassifierCV):
        model.fit(X, y, sensitive_features=sex)
    predicted = model.predict(X_test)
    gap = dca(y_test, predicted, sensitive_features=sex_test)
    results[name] = 100 * (predicted == y_test).mean(), 100 * gap
    print(f"{name:20}  correct = {100 * (predicted == y_test).mean():.1f}   DCA = {100 * gap:.1f}")

# %%
# What is bought for what
# -----------------------
# On test rows: the standard objective stays beside logistic regression and has a much smaller gap. The balanced model
# has the smallest gap, and pays with correct predictions of the frequent class.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, (correct, gap)), marker in zip(results.items(), "XDs", strict=True):
    ax.plot(correct, gap, marker, ms=11, label=name)
ax.set(xlabel="predicted right (% of test rows)", ylabel="gap between groups, DCA (points)", ylim=(0, None))
ax.legend()
plt.show()
