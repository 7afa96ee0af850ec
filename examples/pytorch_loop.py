"""
A PyTorch loop of your own
==========================

``FairDROLoss`` takes the place of the cross-entropy in a loop that stays as it is: one more argument for the groups,
and ``step()`` every few batches. The picture shows what it does while a small network learns: the weights q respond to
whoever falls behind.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fairdro import FairDROLoss, load_dataset
from fairdro.metrics import balanced_accuracy, dca

data = load_dataset("adult")
x, x_test, y, y_test, a, a_test = train_test_split(data.X.to_numpy("float32"), data.y, data.a, random_state=0)
scaler = StandardScaler().fit(x)
x, x_test = torch.from_numpy(scaler.transform(x)), torch.from_numpy(scaler.transform(x_test))
rows = TensorDataset(x, torch.from_numpy(y).long(), torch.from_numpy(a).long())

# %%
# The loop
# --------
# ``criterion(logits, y, a)`` is the loss, and it counts the errors of every class and group as it goes.
# ``criterion.step()`` lets q respond to them, here after every six batches: with one step per epoch, so few for so
# short a training, q swings from one group to the other, and the gap may end larger than in plain training. The learning
# rate falls to zero, so that q can converge. With ``rho=0`` this is plain training in
# which every class and group counts the same.

EPOCHS, EVERY = 10, 6
loader = DataLoader(rows, batch_size=512, shuffle=True)


def train(rho: float) -> tuple[nn.Module, np.ndarray]:
    """Return the network, and q after every step of it."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 2))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS * len(loader))
    criterion = FairDROLoss(n_classes=2, n_groups=2, rho=rho, total_steps=EPOCHS * (len(loader) // EVERY))
    history = [criterion.q.clone()]
    for _ in range(EPOCHS):
        for i, (batch, label, group) in enumerate(loader, start=1):
            optimiser.zero_grad()
            criterion(network(batch), label, group).backward()
            optimiser.step()
            schedule.step()
            if i % EVERY == 0:
                criterion.step()
                history.append(criterion.q.clone())
    return network, torch.stack(history).numpy()


networks, weights = {}, {}
for rho in (0.0, 2.0):
    networks[rho], weights[rho] = train(rho)
    predicted = networks[rho](x_test).argmax(1).numpy()
    accuracy = balanced_accuracy(y_test, predicted, sensitive_features=a_test)
    gap = dca(y_test, predicted, sensitive_features=a_test)
    print(f"rho = {rho}   balanced accuracy = {100 * accuracy:.1f}   DCA = {100 * gap:.1f}")

# %%
# The weights
# -----------
# In each class the two weights sum to one. They swing at first and calm down as the learning rate falls. The group with
# the larger error gains weight. Where rho is large, that of the better group may become negative: its errors are then
# no longer avoided, which is how an advantage is given back.

fig, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
for k, (ax, label) in enumerate(zip(axes, data.class_names, strict=True)):
    for j, (name, style) in enumerate(zip(data.group_names, ["-", "--"], strict=True)):
        ax.plot(weights[2.0][:, k, j], style, label=name)
    ax.axhline(0, color="black", lw=0.8)
    ax.set(title=f"class {label}", xlabel="step of q")
axes[0].set_ylabel("weight q of the group in its class")
axes[0].legend()
plt.show()
