"""
Probabilities and decisions
===========================

They are two things: how likely a class is, and what FairDRO decides.

``predict_proba`` is about people as they are, so it can be used for expected costs and ranks; ``predict`` treats groups
alike.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdro import FairDROClassifier, load_dataset

data = load_dataset("adult")
X, X_test, y, y_test, sex, sex_test = train_test_split(data.X, data.y, data.sensitive["sex"], random_state=0)
plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
fair = FairDROClassifier(10.0).fit(X, y, sensitive_features=sex)

# %%
# How good are the probabilities?
# -------------------------------
# The Brier score of FairDRO's probabilities is close to that of logistic regression, and their mean close to the share
# of the class. Decisions for the rare class are more frequent than that, since every class and group counts the same.

for name, model in {"logistic regression": plain, "FairDROClassifier": fair}.items():
    likely, predicted = model.predict_proba(X_test)[:, 1], model.predict(X_test)
    print(
        f"{name:20}  Brier score = {brier_score_loss(y_test, likely):.4f}   mean probability = {100 * likely.mean():.1f} % "
        f"(true: {100 * y_test.mean():.1f} %)   decided for >50K: {100 * predicted.mean():.1f} %"
    )
# %%
# Calibration
# -----------
# Of people with a probability of 30 %, about 30 % should have the class. On test rows, both models are near the
# diagonal, here by sex for FairDRO.

margin = fair.decision_function(X_test)  # what predict is based on
assert ((margin > 0) == (fair.predict(X_test) == 1)).all()
for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
    likely = fair.predict_proba(X_test)[:, 1]
    rows = np.flatnonzero((likely >= low) & (likely < high))
    print(f"probability {low:.1f} to {high:.1f}: {100 * y_test[rows].mean():.1f} % of {len(rows)} are above 50K")

fig, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
ax.plot([0, 100], [0, 100], color="gray", lw=1, label="perfect")
for name, model, rows, style in [
    ("logistic regression, all", plain, sex_test.notna(), "D:"),
    ("FairDROClassifier, women", fair, sex_test == "Female", "o-"),
    ("FairDROClassifier, men", fair, sex_test == "Male", "s--"),
]:
    found, foretold = calibration_curve(y_test[rows], model.predict_proba(X_test[rows])[:, 1], n_bins=8)
    ax.plot(100 * foretold, 100 * found, style, label=name)
ax.set(xlabel="predicted probability of >50K (%)", ylabel="truly >50K (% of test rows)")
ax.legend()
plt.show()
