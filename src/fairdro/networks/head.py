"""A fair head on a trained network: the class from the network, the group from a linear probe on its last hidden layer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fairdro._utils.files import write_whole
from fairdro.cells import Cells
from fairdro.data import Examples
from fairdro.errors import InputError
from fairdro.estimators.head import FairDROHead, fit_head
from fairdro.metrics import Confusion, confusion_counts
from fairdro.training.head import Part
from fairdro.training.inputs import Inputs, features_of, logits_of
from fairdro.training.linear_head import train_part

PROBE, HEAD = "probe.safetensors", "head.json"


@dataclass(frozen=True)
class NetworkHead:
    """A head on a network's probabilities of the class and a probe's probabilities of the group.

    Attributes
    ----------
    head : FairDROHead
        With ``frontier_``, ``at`` and all else a head has.
    probe : nn.Linear
        From the features of the last hidden layer to logits of the groups.

    See Also
    --------
    fit_network_head : Makes one.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from fairdro.data import Examples
    >>> from fairdro.groups import Groups
    >>> from fairdro.networks.head import NetworkHead, fit_network_head
    >>> class Rows:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def __len__(self):
    ...         return len(self.x)
    ...     def batch(self, rows, rng=None):
    ...         return self.x[rows]
    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.top = torch.nn.Linear(4, 2)
    ...     def features(self, x):
    ...         return x  # the last hidden layer
    ...     def forward(self, x):
    ...         return self.top(self.features(x))
    >>> _ = torch.manual_seed(0)
    >>> x, y, group = torch.randn(600, 4), torch.arange(600) % 2, torch.arange(600) // 2 % 2
    >>> x[:, 0] += y + group
    >>> parts = {"train": np.arange(200), "validation": np.arange(200, 500), "test": np.arange(500, 600)}
    >>> examples = Examples("made", Rows(x), y.numpy(), Groups(group.numpy(), ["f", "m"]), ["no", "yes"], parts, card="")
    >>> network = Net()
    >>> head = fit_network_head(network, examples, rhos=[0, 1])
    >>> from pathlib import Path
    >>> head.save(Path())  # beside the weights of the network
    >>> again = NetworkHead.read(Path())
    >>> bool((again.predict(network, Rows(x)) == head.predict(network, Rows(x))).all())
    True
    >>> int(head.judge(network, examples, "test").counts.sum())
    100
    """

    head: FairDROHead
    probe: nn.Linear

    def probabilities(self, network: nn.Module, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities of classes ``(N, Y)`` and groups ``(N, A)`` that the head reads.

        Parameters
        ----------
        network : nn.Module
            With a method ``features(x)``.
        inputs : Inputs
            What the network reads.
        """
        return _classes(network, inputs), group_probabilities(self.probe, features_of(network, inputs))

    def predict(self, network: nn.Module, inputs: Inputs) -> np.ndarray:
        """Return the names of the classes of inputs ``(N,)``; no group is needed.

        Parameters
        ----------
        network : nn.Module
            With a method ``features(x)``.
        inputs : Inputs
            What the network reads.
        """
        return self.head.predict(*self.probabilities(network, inputs))

    def judge(self, network: nn.Module, examples: Examples, part: str) -> Confusion:
        """Return how a part is predicted that neither the network nor the head was fitted to.

        Parameters
        ----------
        network : nn.Module
            With a method ``features(x)``.
        examples : Examples
            With classes and groups.
        part : str
            Name of the part.

        Returns
        -------
        Confusion
        """
        inputs, cells = examples.part(part)
        codes = pd.Index(examples.class_names).get_indexer(pd.Index(self.predict(network, inputs)))
        counts = confusion_counts(torch.from_numpy(codes), cells)
        return Confusion(counts, examples.class_names, examples.groups.names, not examples.groups.soft)

    def save(self, folder: Path) -> None:
        """Write the head and the probe into the folder of the network.

        Parameters
        ----------
        folder : Path
            It must be there.
        """
        write_whole(folder / PROBE, safetensors.torch.save(dict(self.probe.state_dict())))
        self.head.save(folder / HEAD)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        folder : Path
            Where it was saved.

        Returns
        -------
        NetworkHead
        """
        head = FairDROHead.read(folder / HEAD)
        try:
            weights = safetensors.torch.load_file(folder / PROBE)
            probe = _linear(weights["weight"], weights["bias"])
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise InputError(f"The probe in {folder} cannot be read ({error}); train the network anew.") from error
        return cls(head, probe)


def fit_network_head(network: nn.Module, examples: Examples, **choice: Any) -> NetworkHead:
    """Fit a head to the validation part, which the network was not trained on; the probe is trained on the training part.

    Parameters
    ----------
    network : nn.Module
        With a method ``features(x)``; trained on the training part of the examples.
    examples : Examples
        With a validation part.
    **choice
        ``keep_accuracy``, ``rho`` and others of :func:`~fairdro.fit_head`.

    Returns
    -------
    NetworkHead

    Raises
    ------
    InputError
        If there is no validation part.

    See Also
    --------
    fairdro.fit_head : The same for probabilities from anywhere.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from fairdro.data import Examples
    >>> from fairdro.groups import Groups
    >>> from fairdro.networks.head import fit_network_head
    >>> class Rows:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def __len__(self):
    ...         return len(self.x)
    ...     def batch(self, rows, rng=None):
    ...         return self.x[rows]
    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.top = torch.nn.Linear(4, 2)
    ...     def features(self, x):
    ...         return x  # the last hidden layer
    ...     def forward(self, x):
    ...         return self.top(self.features(x))
    >>> _ = torch.manual_seed(0)
    >>> x, y, group = torch.randn(600, 4), torch.arange(600) % 2, torch.arange(600) // 2 % 2
    >>> x[:, 0] += y + group
    >>> parts = {"train": np.arange(200), "validation": np.arange(200, 500), "test": np.arange(500, 600)}
    >>> examples = Examples("made", Rows(x), y.numpy(), Groups(group.numpy(), ["f", "m"]), ["no", "yes"], parts, card="")
    >>> network = Net()
    >>> head = fit_network_head(network, examples, rhos=[0, 1])
    >>> head.head.frontier_["rho"].tolist()
    [0.0, 1.0]
    >>> head.predict(network, Rows(x[:3])).shape
    (3,)
    """
    if "validation" not in examples.parts:
        raise InputError("A head needs rows that the network was not trained on; keep a validation part.")
    seen, cells = examples.part("train")
    held, _ = examples.part("validation")
    probe = train_probe(features_of(network, seen), cells)
    p_class, p_group = _classes(network, held), group_probabilities(probe, features_of(network, held))
    return NetworkHead(fit_validation_head(p_class, p_group, examples, **choice), probe)


def fit_validation_head(p_class: np.ndarray, p_group: np.ndarray, examples: Examples, **choice: Any) -> FairDROHead:
    """Fit a head to what a network and its probe say of the validation part."""
    rows, names = examples.parts["validation"], np.array(examples.class_names)
    return fit_head(
        p_class, p_group, names[examples.y[rows]], examples.groups.take(rows), classes=examples.class_names, **choice
    )


def train_probe(features: Tensor, cells: Cells) -> nn.Linear:
    """Train a linear layer that tells the group by features ``(N, F)``."""
    mean, scale = features.mean(0), features.std(0)
    scale[scale == 0] = 1
    trained = train_part((features - mean) / scale, cells, Part("group"), np.arange(len(cells)))
    ((weight, bias),) = [(W[0, 0].T / scale, b[0, 0]) for W, b in trained.model.layers]
    return _linear(weight, bias - weight @ mean)


@torch.no_grad()
def group_probabilities(probe: nn.Linear, features: Tensor) -> np.ndarray:
    """Return the probabilities of the groups ``(N, A)``."""
    return probe(features).double().softmax(-1).numpy()


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight.float().contiguous(), "bias": bias.float().contiguous()})
    return layer


def _classes(network: nn.Module, inputs: Inputs) -> np.ndarray:
    return logits_of(network, inputs).double().softmax(-1).numpy()
