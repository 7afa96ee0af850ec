"""The cheap way to a fair network: whole frontiers on the features of its last hidden layer, kept in a file."""

from pathlib import Path

from torch import nn

from fairdro._utils.files import make_folder
from fairdro._utils.hashing import digest
from fairdro._utils.progress import Stage, quiet
from fairdro.data.features import save_features
from fairdro.methods import Scratch
from fairdro.networks.onnx import faster
from fairdro.networks.runs import Job, load_examples
from fairdro.training.inputs import features_of, some_of
from fairdro.training.network import train_network


def last_layer(
    job: Job, out: Path, *, network: nn.Module | None = None, epochs: int | None = None, stage: Stage = quiet
) -> Path:
    """Write the features of a network's last hidden layer into a file, a dataset for benches; return its path.

    The name of the file tells networks, parts and data apart; what is there already is not made again.

    Parameters
    ----------
    job : Job
        A pretrained network is taken as it is unless ``epochs`` is given; others are trained plainly first.
    out : Path
        Folder of the file.
    network : nn.Module, optional
        One that is trained already, on the training part, with a method ``features(x)``, to take instead.
    epochs : int, optional
        By default the paper's.
    stage : callable, optional
        Makes a context for a named stage of the work, and says whom to tell its steps.

    Returns
    -------
    Path

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import pandas as pd
    >>> from PIL import Image
    >>> from fairdro import load_dataset
    >>> from fairdro.networks.last_layer import last_layer
    >>> from fairdro.networks.runs import Job
    >>> Path("faces").mkdir()
    >>> files = [f"{i}.png" for i in range(40)]
    >>> for i, file in enumerate(files):
    ...     Image.fromarray(np.full((16, 16, 3), 6 * i, dtype=np.uint8)).save(Path("faces", file))
    >>> table = pd.DataFrame({"image": files, "label": np.arange(40) % 2, "group": np.arange(40) // 2 % 2})
    >>> table.to_csv("faces/labels.csv", index=False)
    >>> job = Job("images", Path("faces"), size=16, width=4, protocol="paper")
    >>> path = last_layer(job, Path("features"), epochs=1)
    >>> load_dataset(str(path)).X.shape
    (40, 32)
    """
    to_train = network is None and (epochs is not None or not job.backbone.pretrained)
    recipe = job.recipe(epochs=epochs) if to_train else None
    trained = recipe is not None or network is not None
    with stage(f"reading {job.dataset}") as on_step:
        examples = load_examples(job, on_step)
    make_folder(out)
    network = job.network(len(examples.class_names)) if network is None else network
    labels = [examples.y, examples.groups.values, *examples.parts.values()]
    known = digest(repr(recipe), trained, *network.state_dict().values(), *some_of(examples.inputs), *labels)
    path = out / f"{job.name}-{known[:8]}.safetensors"
    if path.exists():
        return path
    if recipe is not None:
        inputs, cells = examples.part("train")
        checkpoint = path.with_suffix(".checkpoint")
        with stage("training the network") as on_step:
            train_network(network, inputs, cells, Scratch(), recipe, seed=job.seed, checkpoint=checkpoint, on_step=on_step)
    network = faster(network, examples.inputs)
    with stage("taking the features") as on_step:
        features = features_of(network, examples.inputs, on_step=on_step).numpy()
    save_features(path, features, examples, trained=trained)
    return path
