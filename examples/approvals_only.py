"""
Only approvals matter
=====================

Good applicants of all groups are to be approved equally often, which is equal opportunity.

And a loan that is not repaid costs five times as much as a good applicant who is turned down. The table is made up.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from fairdro import FairDROClassifierCV
from fairdro.metrics import dca, group_report

rng = np.random.default_rng(0)
n = 12_000
group, repays = rng.choice(["a", "b"], n), rng.random(n) < 0.7
income = rng.normal(size=n) + 1.2 * repays - 0.8 * (group == "b")
debt = rng.normal(size=n) - 0.6 * repays + 0.3 * (group == "b")
district = rng.normal(size=n) + 2.0 * (group == "b")
X, y = np.column_stack([income, debt, district]), np.where(repays, "repays", "defaults")
X, X_test, y, y_test, group, group_test = train_test_split(X, y, group, test_size=0.5, random_state=0)

# %%
# Two ways to be fair
# -------------------
# By default both classes are made equal over groups. ``fair_classes`` names those that matter, and ``class_weight``
# says what errors cost. Both models choose their radius on held-out rows, and are judged on test rows.

decisions = {}
costs = {"repays": 1, "defaults": 5}
for name, fair in {"both classes": None, "those who repay": ["repays"]}.items():
    model = FairDROClassifierCV(fair_classes=fair, class_weight=costs, rhos=[0, 0.3, 1, 3, 10, 30], cv=3)
    predicted = model.fit(X, y, sensitive_features=group).predict(X_test)
    decisions[name] = predicted
    opportunity = dca(y_test, predicted, sensitive_features=group_test, fair_classes=["repays"])
    cost = sum(costs[label] for label in y_test[predicted != y_test]) / len(y_test)
    print(f"equal for {name:16}  gap of those who repay = {100 * opportunity:.1f}   cost per applicant = {cost:.3f}")

# %%
# Who is approved
# ---------------
# Good applicants of both groups are approved equally often by both models. Being fair to good applicants alone leaves
# the other class free, which is cheaper, and there a gap remains. Lines are 95 % intervals.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, predicted), style, shift in zip(decisions.items(), "os", [-0.1, 0.1], strict=True):
    cells = 100 * group_report(y_test, predicted, sensitive_features=group_test)[["accuracy", "low", "high"]]
    cells.loc["defaults"] = 100 - cells.loc["defaults"].to_numpy()[:, [0, 2, 1]]  # not refused is approved
    reach = [cells["accuracy"] - cells["low"], cells["high"] - cells["accuracy"]]
    ax.errorbar(
        np.arange(len(cells)) + shift, cells["accuracy"], yerr=reach, fmt=style, capsize=4, label=f"equal for {name}"
    )
ax.set_xticks(range(len(cells)), [f"{label}\ngroup {group}" for label, group in cells.index])
ax.set(ylabel="approved (% of test applicants)")
ax.legend(loc="upper left")
plt.show()
