"""
A fair threshold for a credit score
===================================

A bank has a score and a threshold. A head moves the threshold, so that the groups are treated alike, without asking
for the group: it is guessed from the application, and an uncertain guess moves the threshold less.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split

from fairdro import fit_head
from fairdro.metrics import balanced_accuracy, dca

rng = np.random.default_rng(0)
n = 12_000
woman, repays = rng.random(n) < 0.4, rng.random(n) < 0.6
income = rng.normal(size=n) + 1.2 * repays - 0.7 * woman
debt = rng.normal(size=n) - 0.8 * repays
part_time = rng.random(n) < 0.15 + 0.55 * woman
X, sex = np.column_stack([income, debt, part_time]), np.where(woman, "female", "male")
X, X_test, repays, repays_test, sex, sex_test = train_test_split(X, repays, sex, test_size=0.5, random_state=0)

# %%
# One score, one threshold
# ------------------------
# The score is the probability that a loan is repaid. Women earn less in this made-up table, though they repay as often:
# with one threshold, more of those who would repay are turned down.

score = LogisticRegression().fit(X, repays)
guess = LogisticRegression().fit(X, sex)
p_repays, p_sex = score.predict_proba(X_test), guess.predict_proba(X_test)

# %%
# A head on the score
# -------------------
# It needs probabilities of rows that the models were not trained on, here out of fold, and chooses its radius on
# rows that its weights were not fitted to.

held_repays = cross_val_predict(LogisticRegression(), X, repays, method="predict_proba")
held_sex = cross_val_predict(LogisticRegression(), X, sex, method="predict_proba")
head = fit_head(held_repays, held_sex, repays, sex, keep_accuracy=0.97)

decisions = {"one threshold": p_repays[:, 1] > repays.mean(), "a head": head.predict(p_repays, p_sex)}
for name, approved in decisions.items():
    accuracy = balanced_accuracy(repays_test, approved, sensitive_features=sex_test)
    gap = dca(repays_test, approved, sensitive_features=sex_test)
    print(f"{name:14} balanced accuracy = {100 * accuracy:.1f}   DCA = {100 * gap:.1f}")

# %%
# The threshold that this is
# --------------------------
# For every guess of the group, the lowest score that the head approves. Points are test applicants. The more likely
# the applicant is a woman, the lower the threshold. That the group is inferred does not make a rule lawful everywhere:
# ask a lawyer before you use one.

scores, guesses = np.linspace(0, 1, 501), np.linspace(p_sex[:, 0].min(), p_sex[:, 0].max(), 60)
both = [np.column_stack([1 - values, values]) for values in (np.repeat(scores, 60), np.tile(1 - guesses, 501))]
approved = head.predict(*both).reshape(501, 60)
thresholds = scores[approved.argmax(0)]
print(f"threshold for the surest man = {thresholds[0]:.2f}, for the surest woman = {thresholds[-1]:.2f}")

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
some = slice(0, 1500)
ax.scatter(p_sex[some, 0], p_repays[some, 1], s=4, color="0.7", label="applicants")
ax.axhline(repays.mean(), color="C0", linestyle="--", label="one threshold")
ax.plot(guesses, thresholds, color="C1", linewidth=2, label="a head")
ax.set(xlabel="probability that the applicant is a woman", ylabel="score: probability that the loan is repaid")
ax.legend(loc="lower left")
plt.show()
