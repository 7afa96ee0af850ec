"""The engines: how a bank of models is trained by any method."""

from fairdro.training.fullbatch import train_fullbatch
from fairdro.training.minibatch import train_minibatch
from fairdro.training.trained import History, TrainedBank

__all__ = ["History", "TrainedBank", "train_fullbatch", "train_minibatch"]
