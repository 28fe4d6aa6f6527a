"""Hugging Face: a small ResNet learns digits with Mixup or CutMix, drawn anew for each batch."""

import tempfile

import torch
from sklearn.datasets import load_digits
from transformers import ResNetConfig, ResNetForImageClassification, TrainingArguments
from transformers.utils import logging

from vicinal import CutMix, Mixup, RandomChoice
from vicinal.integrations.huggingface import MixupTrainer, compute_metrics

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.manual_seed(0)
digits = load_digits()
images = torch.nn.functional.interpolate(torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], scale_factor=4)
rows = [{"pixel_values": x, "labels": int(y)} for x, y in zip(images, digits.target, strict=True)]
config = ResNetConfig(
    num_channels=1, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10
)


with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder,
        learning_rate=5e-3,
        per_device_train_batch_size=25,
        num_train_epochs=6,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = MixupTrainer(
        ResNetForImageClassification(config),
        args,
        train_dataset=rows[:1000],
        eval_dataset=rows[1000:],
        compute_metrics=compute_metrics,
        objective=RandomChoice(Mixup(alpha=0.2), CutMix(alpha=1.0), probs=[0.5, 0.5]),
    )
    trainer.train()
    result = trainer.evaluate()
    for name in ("accuracy", "nll", "brier", "ece", "oe", "n_bins"):
        print(f"{name:10}{result['eval_' + name]:.3f}")
