"""Hugging Face's Trainer with a fair loss."""

import importlib
import sys

import pytest
import torch

from fairdro import FairDROLoss
from fairdro.errors import InputError, MissingExtraError
from problems import biased_problem

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from fairdro.networks.huggingface import FairTrainer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Linear(torch.nn.Module):
    def __init__(self, inputs):
        super().__init__()
        torch.manual_seed(0)
        self.top = torch.nn.Linear(inputs, 2)

    def forward(self, x, **loss_options):
        return transformers.modeling_outputs.SequenceClassifierOutput(logits=self.top(x))


def trainer(folder, *, epochs=4, update_every=None, accumulate=1, **change):
    X, cells = biased_problem(2, 2, n=256)
    keys = ["x", "labels", "group"]
    rows = [dict(zip(keys, row, strict=True)) for row in zip(X, cells.y, cells.groups, strict=True)]
    if change.get("lose_groups"):
        rows = [{key: row[key] for key in keys[:2]} for row in rows]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), num_train_epochs=epochs, per_device_train_batch_size=64 // accumulate, learning_rate=0.05,
        gradient_accumulation_steps=accumulate, report_to=[],
        remove_unused_columns=False, save_strategy="epoch", disable_tqdm=True, logging_strategy="no", use_cpu=True, seed=0,
    )  # fmt: skip
    criterion = FairDROLoss(2, 2, rho=1.0, total_steps=4)
    return FairTrainer(Linear(X.shape[1]), arguments, train_dataset=rows, criterion=criterion, update_every=update_every)


@pytest.mark.parametrize(("update_every", "steps"), [(None, 4), (8, 2)])
def test_the_method_is_updated_after_every_epoch_or_so_many_batches(tmp_path, update_every, steps):
    run = trainer(tmp_path, update_every=update_every)
    run.train()
    assert int(run.criterion.controller.updates) == steps
    assert not torch.allclose(run.criterion.q, torch.full((2, 2), 0.5, dtype=torch.float64))


def test_a_checkpoint_resumes_with_what_the_method_remembers(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.train()
    resumed = trainer(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-8"))
    torch.testing.assert_close(resumed.criterion.q, whole.criterion.q)
    torch.testing.assert_close(resumed.model.top.weight, whole.model.top.weight)


def test_accumulated_batches_weigh_as_one(tmp_path):
    one, four = (trainer(tmp_path / str(n), epochs=1, accumulate=n).train().training_loss for n in (1, 4))
    assert four == pytest.approx(one, rel=0.2)


def test_a_checkpoint_of_another_trainer_is_one_sentence(tmp_path):
    run = trainer(tmp_path, epochs=1)
    run.train()
    (tmp_path / "checkpoint-4" / "fair_loss.safetensors").unlink()
    with pytest.raises(InputError, match="not written by a FairTrainer"):
        run.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_samples_without_groups_are_one_sentence(tmp_path):
    with pytest.raises(InputError, match="needs a 'group'"):
        trainer(tmp_path, lose_groups=True).train()


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "fairdro.networks.huggingface")
    with pytest.raises(MissingExtraError, match=r"pip install 'fairdro\[text\]'") as caught:
        importlib.import_module("fairdro.networks.huggingface")
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, InputError)
