"""Hugging Face's Trainer with a fair loss."""

from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from fairdro._utils.files import write_whole
from fairdro.errors import InputError, MissingExtraError
from fairdro.networks.loss import FairLoss

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise MissingExtraError(
        "The Trainer of Hugging Face needs transformers and accelerate: pip install 'fairdro[text]'."
    ) from error

FILE = "fair_loss.safetensors"


class FairTrainer(Trainer):
    """A Trainer that minimises a fair loss; every sample has a ``group`` beside its ``labels``.

    The method is updated after every epoch, or every ``update_every`` steps of the optimiser. What it remembers is saved
    with every checkpoint and read when training resumes.

    Parameters
    ----------
    *arguments, **options
        Those of ``transformers.Trainer``; ``remove_unused_columns=False`` of its arguments keeps the groups.
    criterion : FairLoss
        The loss, e.g. a :class:`~fairdro.FairDROLoss`.
    update_every : int, optional
        Steps of the optimiser between two updates of the method; by default an epoch.

    Examples
    --------
    >>> import torch
    >>> from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, TrainingArguments
    >>> from fairdro import FairDROLoss
    >>> from fairdro.networks.huggingface import FairTrainer
    >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    >>> model = BertForSequenceClassification(BertConfig(vocab_size=20, **sizes))
    >>> rows = [{"input_ids": torch.tensor([i % 20, 1]), "labels": i % 2, "group": i // 2 % 2} for i in range(32)]
    >>> quiet = {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "report_to": [], "use_cpu": True}
    >>> arguments = TrainingArguments("run", num_train_epochs=2, remove_unused_columns=False, **quiet)
    >>> criterion = FairDROLoss(n_classes=2, n_groups=2, rho=1.0, total_steps=2)
    >>> trainer = FairTrainer(model, arguments, train_dataset=rows, criterion=criterion)
    >>> trainer.remove_callback(PrinterCallback)
    >>> trainer.train().global_step
    8
    >>> int(criterion.controller.updates)
    2
    """

    def __init__(self, *arguments: Any, criterion: FairLoss, update_every: int | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.model_accepts_loss_kwargs = False  # the loss is a mean: over accumulated batches, the Trainer takes their mean
        self.criterion = criterion.to(self.args.device)
        self.add_callback(_Steps(criterion, update_every))

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 - the Trainer's signature
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the fair loss of a batch."""
        if "group" not in inputs:
            raise InputError("Every sample needs a 'group'; set remove_unused_columns=False to keep it.")
        labels, groups = inputs["labels"], inputs["group"]
        outputs = model(**{key: value for key, value in inputs.items() if key not in ("labels", "group")})
        self.criterion.train(model.training)
        loss = self.criterion(outputs.logits, labels, groups)
        return (loss, outputs) if return_outputs else loss

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        path = Path(resume_from_checkpoint) / FILE
        if not path.exists():
            raise InputError(f"{resume_from_checkpoint} holds no {FILE}: it was not written by a FairTrainer.")
        self.criterion.load_state_dict(safetensors.torch.load_file(path))


class _Steps(TrainerCallback):
    def __init__(self, criterion: FairLoss, update_every: int | None) -> None:
        self.criterion, self.update_every = criterion, update_every

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.update_every is not None and state.global_step % self.update_every == 0:
            self.criterion.step()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.update_every is None:
            self.criterion.step()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        tensors = {key: value.cpu().contiguous() for key, value in self.criterion.state_dict().items()}
        write_whole(Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE, safetensors.torch.save(tensors))
