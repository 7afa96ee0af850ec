"""The engines: how models are trained by any method."""

from fairdro.training.controller import Controller, History
from fairdro.training.fullbatch import train_fullbatch
from fairdro.training.minibatch import train_minibatch
from fairdro.training.trained import Trained, TrainedBank

__all__ = ["Controller", "History", "Trained", "TrainedBank", "train_fullbatch", "train_minibatch"]
