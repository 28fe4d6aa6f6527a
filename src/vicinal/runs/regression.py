"""Training on texts with a number each, such as STS-B: what `vicinal train` does with them in place of classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vicinal import _random, models
from vicinal._atomic import FORMAT, Json, write_json
from vicinal._checks import Argument, Sentence
from vicinal.data.options import records_from
from vicinal.data.regression import ScoredTexts, Scores, load_scores
from vicinal.experiment import Experiment
from vicinal.expressions import parse
from vicinal.metrics import Evaluation, evaluate
from vicinal.objectives.sequence import mixed_at_embeddings
from vicinal.training import FitConfig, fit
from vicinal.training.defaults import NETWORKS, default_config
from vicinal.training.environment import joined_process
from vicinal.training.predicting import iter_logits

#: Options of an experiment that mean nothing where a number is learned.
_OF_CLASSES = (
    "eval_data",
    "watch",
    "corrupt",
    "class_weight",
    "ensemble",
    "fast",
    "pretrained",
    "calibrate",
    "temperature",
)
#: Options of data that numbers have; texts are never split by their numbers.
_OF_DATA = ("data_root", "seed", "val", "test", "max_length", "tokenizer", "kind")


@dataclass(frozen=True)
class ScoresResult:
    """What a training on numbers led to."""

    sets: dict[str, Evaluation]
    """The squared error and Spearman's correlation of the validation and of the test set."""
    notes: Sequence[str]

    def to_dict(self) -> Json:
        """Return plain values for JSON."""
        return {"target_type": "regression", **{name: one.to_dict() for name, one in self.sets.items()}}


def train_scores(
    experiment: Experiment,
    out: Path,
    *,
    progress: bool = True,
    on_metrics: Callable[[Json], None] | None = None,
) -> ScoresResult | None:
    """Train on the numbers of a data set of texts, and measure; None in other processes than the first.

    The folder is that of `vicinal.training.fit`: the same call resumes it. `evaluation.json` has what is measured.
    """
    _check(experiment)
    name = str(experiment.model or NETWORKS["text"])
    options = {key: value for key, value in experiment.data.items() if key != "kind"}
    options.setdefault("tokenizer", models.tokenizer_of(name))
    sets = load_scores(experiment.source, *records_from(options))
    given = {"group_by_length": False, **experiment.training}
    config = default_config("text", name, given, seed=experiment.seed, n_train=len(sets.train))
    objective = mixed_at_embeddings(parse(experiment.method))
    with _random.restored_globals():
        _random.seed_globals(_random.seed_from("weights", experiment.seed))
        model = models.build(name, **sets.spec, **experiment.model_options)
    result = fit(
        model,
        objective,
        sets.train,
        sets.val if len(sets.val) else None,
        out=out,
        config=config,
        collate_fn=sets.collate_fn,
        target_type="regression",
        progress=progress,
        on_metrics=on_metrics,
    )
    if not joined_process().is_main_process:
        return None
    held_out = {"validation": sets.val, "test": sets.test}
    found = {name: _evaluated(result.model, sets, of, config) for name, of in held_out.items() if len(of)}
    measured = ScoresResult(found, sets.notes)
    write_json(out / "evaluation.json", {"format": FORMAT, **measured.to_dict()})
    return measured


def _check(experiment: Experiment) -> None:
    """Raise if an option was given that numbers do not have."""
    defaults = {one.name: one.default for one in dataclasses.fields(Experiment)}
    given = [name for name in _OF_CLASSES if getattr(experiment, name) != defaults[name]]
    given += [name for name in experiment.data if name not in _OF_DATA]
    if given:
        raise ValueError(Sentence(Argument(given[0]), f" needs classes, and {experiment.source} has numbers"))


def _evaluated(model: torch.nn.Module, sets: ScoredTexts, scores: Scores, config: FitConfig) -> Evaluation:
    """Return the metrics of numbers, predicted on the device that trained."""
    device = next(model.parameters()).device
    loader = DataLoader(scores, batch_size=config.eval_batch_size or config.batch_size, collate_fn=sets.collate_fn)
    batches = ((torch.empty(0), x, y) for x, y in loader)
    predicted: list[Tensor] = [logits for logits, _ in iter_logits(model.eval(), batches, device)]
    return evaluate(scores.values, logits=torch.cat(predicted), target_type="regression")
