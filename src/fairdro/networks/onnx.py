"""Features of images on a CPU by onnxruntime, where that is faster than torch."""

import io
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairdro.training.inputs import Inputs, hidden

BATCH = 32  # images whose maps fit the cache
EXPORT_SECONDS = 10.0  # about what an export takes; torch is not left for less
CLOSE = 1e-3  # relative to the largest feature; otherwise the export is not the network


def faster(network: nn.Module, inputs: Inputs) -> nn.Module:
    """Return a network that gives the same features by onnxruntime, or the network itself where torch is done sooner."""
    on_cpu = next(network.parameters()).device.type == "cpu"
    x = inputs.batch(torch.arange(min(BATCH, len(inputs))))
    if not on_cpu or not isinstance(x, Tensor) or any(find_spec(name) is None for name in ("onnxruntime", "onnxscript")):
        return network
    was_training = network.training
    network.eval()
    expected, seconds = _timed(_Features(network), x)
    found = network
    if seconds * len(inputs) / len(x) > EXPORT_SECONDS:
        exported = _exported(network, x)
        if exported is not None:
            features, by_onnx = _timed(exported.features, x)
            same = bool((features - expected).abs().max() <= CLOSE * expected.abs().max())
            found = exported if same and by_onnx < seconds else network
    network.train(was_training)
    return found


class _Features(nn.Module):
    """A network up to its last hidden layer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return hidden(self.network, x).flatten(1)


class _Exported(nn.Module):
    """A network whose features come from a session of onnxruntime."""

    def __init__(self, network: nn.Module, session: Any) -> None:
        super().__init__()
        self.network, self.session = network, session

    def features(self, x: Tensor) -> Tensor:
        return torch.cat([torch.from_numpy(self.session.run(None, {"x": part.numpy()})[0]) for part in x.split(BATCH)])


@torch.no_grad()
def _timed(features: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, float]:
    """Return the features of a batch, and the seconds they take once all is warm."""
    features(x)
    began = time.perf_counter()
    return features(x), time.perf_counter() - began


def _exported(network: nn.Module, x: Tensor) -> _Exported | None:
    """Return the network in onnxruntime, if it can be exported."""
    try:
        with _quiet(), tempfile.TemporaryDirectory() as folder:
            import onnxruntime  # noqa: PLC0415

            path, rows = Path(folder) / "network.onnx", torch.export.Dim("rows", min=1)
            torch.onnx.export(
                _Features(network), (x,), path, input_names=["x"], dynamic_shapes=({0: rows},), dynamo=True, verbose=False
            )
            settings = onnxruntime.SessionOptions()
            settings.intra_op_num_threads = torch.get_num_threads()
            session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
            return _Exported(network, session)
    except Exception:  # noqa: BLE001 - whatever an exporter cannot do, torch can
        return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what an exporter prints, logs and warns of from the user."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
