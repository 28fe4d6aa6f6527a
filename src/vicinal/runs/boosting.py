"""What only runs with trees need: gradient boosting in place of the training loop, and trees beside a network.

Boosted trees have the split, calibration and report of networks. Those of scikit-learn are kept as arrays, those of
other libraries in their own text formats.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._checks import Argument, Sentence, require
from vicinal._portable import versions
from vicinal._typing import Step
from vicinal.data import Split, Task
from vicinal.data.class_folders import listed
from vicinal.experiment import Experiment
from vicinal.metrics import Tally
from vicinal.metrics.registry import watched
from vicinal.models import Boosted, CatBoostTrees, LightGBMTrees, MLPAndTrees, Stack
from vicinal.models.stack import TREES
from vicinal.models.tree_fitting import gather, grow
from vicinal.objectives.base import Objective, row_weights
from vicinal.objectives.erm import ERM
from vicinal.training import FitConfig, FitResult
from vicinal.training.batches import KeyedDataset, evaluation_batches
from vicinal.training.config import MECHANICAL
from vicinal.training.environment import joined_process
from vicinal.training.folder import TrainingFolder
from vicinal.training.loop import resampled
from vicinal.training.predicting import iter_logits

#: Models of trees alone, and of trees beside a network, by name.
_ALONE, _BESIDE = ("hgb", "lightgbm", "catboost"), ("mlp-and-trees", "best")
#: The metrics of every so many trees are kept, for the curves of the report.
_KEPT = 10
#: Rows that are encoded at a time: all at once would take the memory of the whole table twice.
_ROWS = 2**16


def boosted(
    model: nn.Module,
    train: Split,
    val: Split | None,
    class_weights: Tensor | None = None,
    *,
    out: Path,
    config: FitConfig,
    method: str,
    about: Mapping[str, object],
) -> FitResult | None:
    """Fit trees, keep as many as suit the validation set best by NLL, and return them as a training.

    A model that is not of trees alone is left to the training loop, and the result is None. The model says how many
    trees there are at most, and how large; without validation rows all are kept. Of the config the seed counts.
    `method` is recorded as the objective, `about` are the facts that a run in this folder must share, and
    `class_weights` say how much the rows of each class count, `[K]`. A stopped fit starts again from the beginning.
    """
    if not isinstance(model, Boosted | LightGBMTrees | CatBoostTrees):
        return None
    process = joined_process()
    folder = TrainingFolder(out, main=process.is_main_process)
    began = time.perf_counter()
    with folder.locked():
        folder.check_in({"method": method, "config": {"seed": config.seed}, "about": dict(about)})
        process.wait_for_everyone()
        # Trees are grown again even if result.json is there: the fit is deterministic, and needs no checkpoint.
        rows = gather(model, _batches(train, class_weights))
        history, n_trees = grow(model, rows, None if val is None else gather(model, _held_out(val)), seed=config.seed)
        model.eval()
        best, last = history[n_trees - 1], history[-1]
        kept = [line for line in history if line["epoch"] % _KEPT in (0, 1) or line is best or line is last]
        predictions = None if val is None else _predictions(model, val, config.evaluation_batch_size)
        if predictions is not None:  # the others are the library's own records
            tally = Tally(metrics=watched()).update(predictions["labels"], logits=predictions["logits"])
            best |= {f"val_{name}": value for name, value in tally.values().items() if name != "nll"}
        info = {
            "method": method,
            "config": config.to_dict(),
            **_facts(model, n_trees),
            "seed": config.seed,
            "best": best,
            "last": last,
            "seconds": round(time.perf_counter() - began, 3),
            "about": dict(about),
        }
        if (done := folder.result(rewrites_metrics=True)) is None:
            done = folder.finish(model.state_dict(), predictions, info, kept)
    return FitResult.of(model, done, kept, predictions, folder)


def check_trees(name: str, experiment: Experiment, task: Task, objective: Objective) -> None:
    """Refuse what the model of this name cannot do, if it has trees.

    Gradient boosting minimises the cross-entropy of rows as they are. Trees beside a network have no last weights.
    """
    if name not in (*_ALONE, *_BESIDE):
        return
    model = Argument("model", name)
    if name in _ALONE and objective != ERM():
        raise ValueError(Sentence(model, " mixes no rows: pass ", Argument("method", "ERM()")))
    if task.target_type != "multiclass":
        raise ValueError(Sentence(model, " needs classes, and this target is several columns"))
    if name in _BESIDE:
        if experiment.corrupt:
            alone = Argument("model", "two-view-mlp")
            raise ValueError(Sentence(Argument("corrupt"), " follows one network to its last weights: pass ", alone))
        return
    for option, asked in (("ensemble", experiment.ensemble > 1), ("watch", bool(experiment.watch))):
        if asked:
            raise ValueError(Sentence(Argument(option), " is for networks: leave it out with ", model))
    check_training_options(name, experiment.training)


def check_training_options(name: str, training: Iterable[str]) -> None:
    """Refuse options of the training of networks for a model of trees alone."""
    model = Argument("model", name)
    if name in _ALONE and (given := [option for option in training if option not in MECHANICAL]):
        sizes = (
            ": iterations, rate and the size of trees"
            if name != "hgb"
            else (" and its like: iterations, rate, leaves, depth, l2")
        )
        instead = Argument("model_option", "iterations=500")
        raise ValueError(Sentence(Argument(given[0]), " is for networks; ", model, " takes ", instead, sizes))


def training_summary(model: nn.Module, name: str, members: int, config: FitConfig, *, validated: bool) -> str:
    """Return what is about to be trained, in words."""
    if isinstance(model, Boosted):
        return f"gradient boosting by scikit-learn, at most {model.iterations} trees a class"
    if isinstance(model, LightGBMTrees | CatBoostTrees):
        return f"gradient boosting by {model.library}, at most {model.iterations} trees"
    amount, unit = (config.epochs, "epoch") if config.steps is None else (config.steps, "step")
    networks = f"{members} networks" if members > 1 else "network"
    n_weights = sum(p.numel() for p in model.parameters())
    steps = f"{amount} {unit}{'s' * (amount > 1)} of {config.optimizer}"
    beside = ""
    if validated and config.patience is not None:
        steps = f"at most {steps}, stopped early after {config.patience} evaluations without a lower validation NLL"
    if isinstance(model, MLPAndTrees) and validated:
        beside = f"; then at most {model.trees.iterations} boosted trees a class, by scikit-learn"
    if isinstance(model, Stack) and validated:
        beside = f"; then the trees of {listed(list(model.trees))}"
        if len(model.trees) < len(TREES):
            beside += "; pip install 'vicinal[boosting]' adds those of LightGBM and CatBoost"
    return f"{networks} {name}, {n_weights:,} weights; {steps}{beside}"


def stop_notice(info: Mapping[str, Any]) -> str | None:
    """Return that a training was stopped early, and which weights are kept; None if it was not."""
    if not info.get("stopped_early"):
        return None
    asked, best = info["config"], info["best"].get("epoch", info["epochs"])
    most = f"{asked['epochs']:g} epochs" if asked.get("steps") is None else f"{asked['steps']:,} steps"
    ended = f"{info['epochs']:g} epochs" if asked.get("steps") is None else f"{info['steps']:,} steps"
    return f"stopped early after {ended} of at most {most}; the weights of epoch {best:g} are kept"


def network_share(model: nn.Module) -> float:
    """Return how much a network counts beside trees; 1 without trees, and the mean over the members of an ensemble."""
    shares = [float(part.share) for part in model.modules() if isinstance(part, MLPAndTrees)]
    shares += [float(part.shares[0]) for part in model.modules() if isinstance(part, Stack)]
    return sum(shares) / len(shares) if min(shares, default=1) < 1 else 1.0


def share_notice(model: nn.Module) -> str | None:
    """Return how much a network and trees count in the answers; None without trees that count."""
    if (share := network_share(model)) == 1:
        return None
    percent = round(100 * share)
    said = f"by validation rows the network counts {percent} % in the answers, and the trees {100 - percent} %"
    if isinstance(model, Stack):
        each = [f"{name} {round(100 * of)} %" for name, of in model.share_of().items() if name != "network"]
        said += f" ({', '.join(each)})"
    return said


def _facts(model: Boosted | LightGBMTrees | CatBoostTrees, n_trees: int) -> dict[str, object]:
    library, size = "scikit-learn", ""
    if isinstance(model, Boosted):
        size = f" a class of {model.leaves} leaves at most, learning rate {model.rate:g}"
    else:
        library, size = model.library, f" {model.size}"
    module = {"scikit-learn": "sklearn"}.get(library, library.lower())
    return {
        "training": f"{n_trees} of {model.iterations} trees{size}, by {library}",
        "epochs": float(n_trees),
        "device": "cpu",
        "versions": {**versions(), library: require(module, "boosting").__version__},
    }


def _batches(part: Split, class_weights: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    for rows in torch.arange(len(part)).split(_ROWS):
        x, y = part.take(rows)
        weight = None if part.weights is None else torch.from_numpy(part.weights[rows.numpy()])
        yield x, y, row_weights(y, Step(weight=weight, class_weights=class_weights))


def _held_out(val: Split) -> Iterator[tuple[Tensor, Tensor, None]]:
    """Yield validation rows, as often as their weights say."""
    places = torch.arange(len(val)) if val.weights is None else resampled(torch.from_numpy(val.weights))
    for rows in places.split(_ROWS):
        x, y = val.take(rows)
        yield x, y, None


def _predictions(model: nn.Module, val: Split, batch_size: int) -> dict[str, Tensor]:
    """Return logits and labels by the loop that serves them: every row holds its place in all trees at once."""
    keyed = KeyedDataset(val, 0, purpose="evaluation", collate_fn=val.collate_fn)
    batches = evaluation_batches(keyed, range(len(val)), batch_size=batch_size)
    logits, labels = zip(*iter_logits(model, batches, torch.device("cpu")), strict=True)
    return {"logits": torch.cat(logits), "labels": torch.cat(labels)}
