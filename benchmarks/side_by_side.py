"""Several small networks at once: one after the other, by torch.func.vmap, or as one network of grouped convolutions.

python benchmarks/side_by_side.py

Prints the images that a core trains on per second (of its own time, so that a busy machine counts less), for ResNet-18 of
width 16 on 32 pixels. Networks in processes of their own, as the bench trains them, have the speed of the first line each.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from fairdro.models.resnet import ResNet18

NETWORKS, WIDTH, SIZE, BATCH, STEPS = 4, 16, 32, 128, 6


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(NETWORKS, BATCH, 3, SIZE, SIZE), torch.randint(3, (NETWORKS, BATCH))
    steps = {
        "one by one": one_by_one(x, y),
        "one by one, bfloat16": one_by_one(x, y, bfloat16=True),
        "vmap": by_vmap(x, y),
        "grouped": grouped(x, y),
    }
    for name, step in steps.items():
        print(f"{name}: {speed(step):,.0f} images a second")


def speed(step: Callable[[], None]) -> float:
    """Return the images trained on per second of this core's time."""
    step()
    start = time.process_time()
    for _ in range(STEPS):
        step()
    return STEPS * NETWORKS * BATCH / (time.process_time() - start)


class Mapped(ResNet18):
    """A network that can be mapped over: vmap knows no memory format."""

    def features(self, x: Tensor) -> Tensor:
        """Return the last hidden layer."""
        x = self.bn1(self.conv1(x)).relu()
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((-2, -1))


def network(kind: type[ResNet18]) -> ResNet18:
    """Return a network without running statistics, which cannot be mapped over."""
    made = kind(3, width=WIDTH, small=True)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return made


def one_by_one(x: Tensor, y: Tensor, *, bfloat16: bool = False) -> Callable[[], None]:
    """Return a step of every network in turn."""
    networks = [network(ResNet18) for _ in range(NETWORKS)]

    def step() -> None:
        for own, inputs, labels in zip(networks, x, y, strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                logits = own(inputs)
            nn.functional.cross_entropy(logits.float(), labels).backward()

    return step


def by_vmap(x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a step of all networks, mapped over their stacked parameters."""
    base = network(Mapped)
    parameters, _ = stack_module_state([network(Mapped) for _ in range(NETWORKS)])

    def loss(own: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(base, own, (inputs,)), labels)

    gradients = vmap(grad(loss))
    return lambda: gradients(parameters, x, y) and None


def grouped(x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a step of one wide network whose convolutions have a group of channels per network."""
    wide = ResNet18(3, width=NETWORKS * WIDTH, small=True)
    for module in list(wide.modules()):
        for name, conv in list(module.named_children()):
            if isinstance(conv, nn.Conv2d):
                channels = 3 * NETWORKS if conv.in_channels == 3 else conv.in_channels
                size, stride, padding = conv.kernel_size, conv.stride, conv.padding
                split = nn.Conv2d(channels, conv.out_channels, size, stride, padding, groups=NETWORKS, bias=False)
                setattr(module, name, split)
    wide.to(memory_format=torch.channels_last)
    heads = torch.randn(NETWORKS, 8 * WIDTH, 3, requires_grad=True)
    inputs = x.transpose(0, 1).flatten(1, 2)

    def step() -> None:
        features = wide.features(inputs).unflatten(1, (NETWORKS, -1)).transpose(0, 1)
        nn.functional.cross_entropy((features @ heads).flatten(0, 1), y.flatten()).backward()

    return step


if __name__ == "__main__":
    main()
