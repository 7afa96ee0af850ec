"""
The last layer of a network
===========================

Training a network again for every radius is expensive, and it learns its training rows so well that gaps closed there
open again on new rows. A cheaper way: train it once and plainly, freeze it, and work on its last hidden layer with rows
that it has not seen. Two ways to do so are compared: FairDRO in a new last layer, and a head on the network's own
probabilities.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

from fairdro import FairDROClassifier, fit_head, load_dataset
from fairdro.metrics import balanced_accuracy, dca

data = load_dataset("adult")
rows = np.arange(len(data))
seen, rest = train_test_split(rows, train_size=0.4, random_state=0)
held, test = train_test_split(rest, test_size=0.5, random_state=0)
x = torch.from_numpy(StandardScaler().fit(data.X.iloc[seen]).transform(data.X).astype("float32"))
y, a = torch.from_numpy(data.y).long(), data.a

# %%
# A network, trained plainly
# --------------------------
# It stands for any network that you have: it has seen neither the held-out nor the test rows.

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
last = nn.Linear(16, 2)
optimiser = torch.optim.Adam([*body.parameters(), *last.parameters()], lr=1e-3)
for _ in range(8):
    for batch in torch.from_numpy(seen)[torch.randperm(len(seen))].split(256):
        optimiser.zero_grad()
        nn.functional.cross_entropy(last(body(x[batch])), y[batch]).backward()
        optimiser.step()

with torch.no_grad():
    features = body(x).numpy()
    p_class = last(body(x)).softmax(-1).numpy()

# %%
# Two ways to go on
# -----------------
# A head also needs the probability of each group; a linear probe on the same features infers it. Both are fitted to the
# held-out rows and judged on the test rows, at every radius.


def judge(predicted: np.ndarray) -> tuple[float, float]:
    """Return accuracy over classes and groups, and the gap, in percent of test rows."""
    told = {"sensitive_features": a[test]}
    return 100 * balanced_accuracy(data.y[test], predicted, **told), 100 * dca(data.y[test], predicted, **told)


rhos = [0, 0.3, 1, 2, 4, 7, 12, 25]
inside = [
    judge(FairDROClassifier(rho).fit(features[held], data.y[held], sensitive_features=a[held]).predict(features[test]))
    for rho in rhos
]
probe = LogisticRegression(max_iter=1000).fit(features[seen], a[seen])
p_group = probe.predict_proba(features)
head = fit_head(p_class[held], p_group[held], data.y[held], a[held], rhos=rhos)
on_top = [judge(head.at(rho).predict(p_class[test], p_group[test])) for rho in rhos]
alone = judge(p_class[test].argmax(1))
print(f"network as it is     balanced accuracy = {alone[0]:.1f}   DCA = {alone[1]:.1f}")
chosen = on_top[head.best_index_]
print(f"head, rho = {head.rho_:<7.3g}  balanced accuracy = {chosen[0]:.1f}   DCA = {chosen[1]:.1f}")

# %%
# The frontiers
# -------------
# The network as it is counts every row the same. Both frontiers begin at the right with rho = 0, where every class and
# group counts the same. Which of the two is better differs between tables and networks: try both, and choose on
# held-out rows.

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ax.plot(*alone, "X", ms=11, color="black", label="network as it is")
ax.plot(*np.transpose(inside), "s--", label="FairDRO in a new last layer")
ax.plot(*np.transpose(on_top), "o-", label="head on the network")
ax.set(
    xlabel="accuracy, mean over classes and groups (% of test rows)",
    ylabel="gap between groups, DCA (points)",
    ylim=(0, None),
)
ax.legend()
plt.show()
