"""
Texts: words that mean two things
=================================

Short messages in two dialects are praise, complaints or questions. The dialects share most words, but "wicked" is
praise in the one and a complaint in the other, and the second dialect is rare. The messages are made up; the model is a
bag of words with a small hidden layer, trained in a PyTorch loop.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split
from torch import nn

from fairdro import FairDROLoss
from fairdro.metrics import balanced_accuracy, dca, group_report

rng = np.random.default_rng(0)
KINDS, DIALECTS = ["complaint", "praise", "question"], ["city", "coast"]
WORDS = {
    ("complaint", "city"): ["wicked", "awful", "late", "rude", "cold"],
    ("complaint", "coast"): ["naff", "awful", "late", "grim", "cold"],
    ("praise", "city"): ["lovely", "great", "quick", "kind", "warm"],
    ("praise", "coast"): ["wicked", "grim", "lush", "kind", "late"],
    ("question", "city"): ["when", "where", "open", "price", "how"],
    ("question", "coast"): ["when", "whither", "open", "lush", "how"],
}
FILLERS = ["the", "food", "staff", "today", "was", "there", "very", "place", "again", "table"]
ACCENT = {"city": "folks", "coast": "mate"}


def message(kind: str, dialect: str) -> str:
    """Draw a message: one to three words that tell its kind, fillers, and now and then one that tells the dialect."""
    words = [*rng.choice(WORDS[kind, dialect], rng.integers(1, 4)), *rng.choice(FILLERS, 4)]
    if rng.random() < 0.25:  # a slip: a word of another kind
        words.append(rng.choice(WORDS[rng.choice(KINDS), dialect]))
    if rng.random() < 0.5:
        words.append(ACCENT[dialect])
    return " ".join(rng.permutation(words))


kinds, dialects = rng.choice(KINDS, 8000), rng.choice(DIALECTS, 8000, p=[0.85, 0.15])
messages = [message(kind, dialect) for kind, dialect in zip(kinds, dialects, strict=True)]
for i in range(4):
    print(f"{kinds[i]:9} {dialects[i]:5} {messages[i]}")

# %%
# Training
# --------
# Groups are needed for the loss only. Plain training is PyTorch's cross-entropy, in which every message counts the
# same; rho = 0 gives every kind and dialect the same weight; with a larger radius the weights respond to the errors.

bags = torch.from_numpy(CountVectorizer().fit_transform(messages).toarray().astype("float32"))
y, a = (torch.from_numpy(np.searchsorted(names, told)) for names, told in [(KINDS, kinds), (DIALECTS, dialects)])
train, test = train_test_split(np.arange(len(messages)), test_size=0.5, random_state=0)


def fit_network(rho: float | None) -> np.ndarray:
    """Return a network's predictions for the test messages."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(bags.shape[1], 16), nn.ReLU(), nn.Linear(16, len(KINDS)))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-3)
    steps = 300
    criterion = FairDROLoss(n_classes=3, n_groups=2, rho=rho or 0.0, total_steps=steps)
    for _ in range(steps):
        batch = torch.from_numpy(rng.choice(train, 1024, replace=False))
        logits = network(bags[batch])
        loss = nn.functional.cross_entropy(logits, y[batch]) if rho is None else criterion(logits, y[batch], a[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if rho is not None:
            criterion.step()
    return np.array(KINDS)[network(bags[test]).argmax(1)]


predicted = {"cross-entropy": fit_network(None), "rho = 0": fit_network(0.0), "rho = 1": fit_network(1.0)}
for name, told in predicted.items():
    accuracy = balanced_accuracy(kinds[test], told, sensitive_features=dialects[test])
    gap = dca(kinds[test], told, sensitive_features=dialects[test])
    print(f"{name:13}  balanced accuracy = {100 * accuracy:.1f}   DCA = {100 * gap:.1f}")

# %%
# Who is understood
# -----------------
# Accuracies of test messages by kind and dialect, with 95 % intervals. Here most of the gap is closed by giving every
# kind and dialect the same weight; the radius adds little, and costs some accuracy.

fig, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for (name, told), style, shift in zip(predicted.items(), "Dos", [-0.2, 0, 0.2], strict=True):
    cells = 100 * group_report(kinds[test], told, sensitive_features=dialects[test])[["accuracy", "low", "high"]]
    reach = [cells["accuracy"] - cells["low"], cells["high"] - cells["accuracy"]]
    ax.errorbar(np.arange(len(cells)) + shift, cells["accuracy"], yerr=reach, fmt=style, capsize=3, label=name)
ax.set_xticks(range(len(cells)), [f"{kind}\n{dialect}" for kind, dialect in cells.index])
ax.set(ylabel="predicted right (% of test messages)")
ax.legend()
plt.show()
