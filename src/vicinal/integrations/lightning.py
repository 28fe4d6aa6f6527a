"""Lightning: train a `LightningModule` with any objective, and watch its calibration while it trains.

>>> import torch
>>> from lightning import LightningModule
>>> from vicinal import Mixup
>>> class Classifier(MixupMixin, LightningModule):
...     objective = Mixup(alpha=0.4)
...
...     def __init__(self):
...         super().__init__()
...         self.net = torch.nn.Linear(64, 10)
...
...     def forward(self, x):
...         return self.net(x)
...
...     def configure_optimizers(self):
...         return torch.optim.Adam(self.parameters())

The steps come from the mixin: the objective's loss in training, plain cross-entropy with accuracy, ECE and OE in
validation and testing. Gradient accumulation, precision, checkpoints and devices are Lightning's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data.distributed import DistributedSampler

import vicinal
from vicinal import _random
from vicinal._atomic import Json
from vicinal._checks import require
from vicinal._typing import Batch
from vicinal.expressions import parse
from vicinal.metrics import Tally
from vicinal.metrics.registry import watched
from vicinal.objectives.base import Objective, as_objective, total
from vicinal.objectives.forward import call
from vicinal.objectives.guided.aum import AUM, AUMRecorder

require("lightning", "integrations")
from lightning import LightningModule  # noqa: E402

if TYPE_CHECKING:
    _AnyModule = LightningModule
else:
    _AnyModule = object


class MixupMixin(_AnyModule):
    """The steps of a classifier, put before `LightningModule`; set its attributes in the class or in `__init__`.

    A batch is `(x, y)`, `(x, y, index)` with each sample's position in the training set, or a mapping with `labels`
    (and `index`), whose other entries the model receives as keyword arguments. The model is the module itself, so
    layers are named as seen from there: `ManifoldMixup(layers=["net.hidden"])`.

    Training logs `train_loss`. Validation logs `val_accuracy`, `val_mcc`, `val_nll`, `val_brier`, `val_ece` and
    `val_oe`, with the `val_n_bins` that the last two mean, of all samples in all processes, exactly; testing logs
    `test_nll` and so on. Of soft targets the largest class counts as the label; of several labels, and of one logit,
    the metrics are means over labels; regression has `val_mse` and `val_spearman`.

    Attributes
    ----------
    objective
        What is minimised, an objective or its expression, such as `"LogitMix(Mixup(alpha=3.0))"`. It receives the epoch
        as a float. The state of a bound objective is saved with each checkpoint.
    n_bins
        Bins of ECE and OE.
    aum
        An `AUM` tracker that records every training sample's margin, saved with each checkpoint and merged over
        processes after each epoch. Margins are of clean samples, so the objective has to be `ERM`.
    class_weights
        How much the samples of each class count in training, `[K]`. A batch that is a mapping may hold `weight` too,
        how much each sample counts.
    target_type
        What the labels are, as in the call of an objective: `"multiclass"`, `"binary"`, `"multilabel"` or
        `"regression"`.

    Examples
    --------
    >>> class Classifier(MixupMixin, LightningModule):
    ...     objective = "Mixup(alpha=0.4)"
    ...
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.net = torch.nn.Linear(4, 2)
    ...
    ...     def forward(self, x):
    ...         return self.net(x)
    >>> Classifier()(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    objective: Objective | Callable[..., Tensor] | str
    target_type: str = "multiclass"
    n_bins: int = 15
    aum: AUM | None = None
    class_weights: Tensor | Sequence[float] | None = None

    def training_step(self, batch: object, batch_idx: int) -> Tensor:
        """Return the objective's loss."""
        # A weight is taken from mappings only: in a tuple its place would have to be guessed.
        x, y, index = _parts(batch)
        weight = batch.get("weight") if isinstance(batch, Mapping) else None
        epoch = self.current_epoch + batch_idx / self.trainer.num_training_batches  # inf batches: whole epochs
        how: dict[str, Any] = {"weight": weight, "class_weights": self.class_weights, "target_type": self.target_type}
        terms = self._tracked().terms(self, x, y, index=index, epoch=epoch, generator=self._generator(), **how)
        loss = total(terms)
        self.log("train_loss", loss.detach(), batch_size=len(y), prog_bar=True)
        if len(terms) > 1:
            self.log_dict({f"train_loss_{name}": term.detach() for name, term in terms.items()}, batch_size=len(y))
        return loss

    def predict_step(self, batch: Batch | Sequence[Batch], batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        """Return the logits of a batch, with labels or without."""
        if isinstance(batch, Mapping):
            return call(self, {name: value for name, value in batch.items() if name not in _NOT_INPUTS})
        # A loader of a TensorDataset without labels gives lists of one tensor.
        return call(self, batch if isinstance(batch, Tensor) else batch[0])

    def on_validation_epoch_start(self) -> None:
        """Start from an empty table."""
        super().on_validation_epoch_start()
        self._tallies: dict[int, Tally] = {}
        self._seen: dict[int, int] = {}

    def validation_step(self, batch: object, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add the batch to the table of its loader."""
        self._count(batch, dataloader_idx)

    def on_validation_epoch_end(self) -> None:
        """Log what the tables say."""
        super().on_validation_epoch_end()
        self._log_tallies("val")

    def on_test_epoch_start(self) -> None:
        """Start from an empty table."""
        super().on_test_epoch_start()
        self._tallies, self._seen = {}, {}

    def test_step(self, batch: object, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add the batch to the table of its loader."""
        self._count(batch, dataloader_idx)

    def on_test_epoch_end(self) -> None:
        """Log what the tables say."""
        super().on_test_epoch_end()
        self._log_tallies("test")

    def on_fit_start(self) -> None:
        """Draw on from where the checkpoint was saved: a resumed run mixes as an uninterrupted one."""
        super().on_fit_start()
        # Lightning restores no generators, so that a resumed run would mix otherwise than the one that was stopped.
        if (state := getattr(self, "_random_state", None)) is not None:
            _random.set_global_states(state)

    def on_train_start(self) -> None:
        """Forget what the loader has drawn to begin an epoch that had begun already when the checkpoint was saved."""
        super().on_train_start()
        batches, state = self.trainer.fit_loop.epoch_loop.batch_progress, getattr(self, "_random_state", None)
        if state is not None and batches.current.ready and not batches.is_last_batch:
            _random.set_global_states(state)
        self._random_state = None

    def on_train_epoch_end(self) -> None:
        """Give every process what all of them have tracked."""
        super().on_train_epoch_end()
        self._tracked().all_reduce()

    def on_save_checkpoint(self, checkpoint: dict[str, object]) -> None:
        """Save the state of the objective and of the tracker."""
        super().on_save_checkpoint(checkpoint)
        state = self._tracked().state_dict()
        # Under a key of our own: Lightning's keys are its own business, and another plug-in may add some.
        checkpoint["vicinal"] = {self._state_name(): state, "random": _random.global_states()}

    def on_load_checkpoint(self, checkpoint: Json) -> None:
        """Restore what was saved."""
        super().on_load_checkpoint(checkpoint)
        objective, name = self._tracked(), self._state_name()
        self._random_state = checkpoint.get("vicinal", {}).get("random")
        if objective.state_dict():
            if not checkpoint.get("vicinal", {}).get(name):
                raise ValueError(f"the checkpoint has no state of {name}: it was saved without {objective!r}")
            objective.load_state_dict(checkpoint["vicinal"][name])

    def _tracked(self) -> Objective:
        """Return the objective, which feeds the tracker where there is one."""
        given = self.objective
        objective = parse(given) if isinstance(given, str) else as_objective(given)
        # Made again for each step, from what the attributes are: a user may change the objective between epochs.
        return objective if self.aum is None else AUMRecorder(self.aum, objective)

    def _state_name(self) -> str:
        return "objective" if self.aum is None else "aum"

    def _generator(self) -> torch.Generator | None:
        """Return where this process draws from, None for torch's global generator, where it is the only one.

        Lightning gives all processes the same seed, so their global generators would draw the same λ.
        """
        if self.trainer.world_size == 1:
            return None
        # Drawn from the global generator, which is the same on all ranks, then made different by the rank.
        shared = int(_random.integers(2**62, 1))
        return torch.Generator().manual_seed(_random.seed_from("rank", shared, self.trainer.global_rank))

    def _count(self, batch: object, dataloader_idx: int) -> None:
        x, y, _ = _parts(batch)
        logits = call(self, x)
        # Counted before the tally: a row that the sampler repeats must be predicted, to keep ranks in step, but not
        # measured.
        new = min(len(y), self._rows_left(dataloader_idx))
        self._seen[dataloader_idx] = self._seen.get(dataloader_idx, 0) + len(y)
        y, logits = y[:new], logits[:new]
        tally = self._tallies.setdefault(
            dataloader_idx, Tally(self.n_bins, target_type=self.target_type, metrics=watched(self.target_type))
        )
        if self.target_type == "multiclass" and y.is_floating_point() and y.ndim == 2:
            y = y.argmax(dim=1)
        elif self.target_type == "regression":
            y, logits = y.reshape(new), logits.reshape(new)
        if new:
            tally.update(y, logits=logits)

    def _rows_left(self, dataloader_idx: int) -> int:
        """Return how many of the rows to come are new: a distributed sampler repeats some to give ranks as many."""
        loaders = self.trainer.test_dataloaders if self.trainer.testing else self.trainer.val_dataloaders
        loader = loaders[dataloader_idx] if isinstance(loaders, (list, tuple)) else loaders
        sampler = getattr(loader, "sampler", None)
        # Only the padding of a distributed sampler repeats rows. Another sampler's repeats are meant.
        if not isinstance(sampler, DistributedSampler) or sampler.drop_last:
            return sys.maxsize
        n_samples = len(sampler.dataset)  # type: ignore[arg-type]  # a sampler of positions knows their number
        whole = len(range(sampler.rank, n_samples, sampler.num_replicas))
        return max(0, whole - self._seen.get(dataloader_idx, 0))

    def _log_tallies(self, stage: str) -> None:
        for number, tally in sorted(self._tallies.items()):
            # Sums are exchanged, not means: ranks may have different numbers of rows.
            whole = self._tallies[number] = tally.all_reduce()
            suffix = f"/dataloader_idx_{number}" if len(self._tallies) > 1 else ""
            bins = {} if self.target_type == "regression" else {"n_bins": float(self.n_bins)}
            values = {f"{stage}_{name}{suffix}": value for name, value in {**whole.values(), **bins}.items()}
            self.log_dict(values, sync_dist=True, add_dataloader_idx=False)  # equal in all processes by now


_NOT_INPUTS = ("labels", "index", "weight")

# A module whose hyper-parameters hold an objective is saved with it; torch loads these classes and no others.
torch.serialization.add_safe_globals([getattr(vicinal, name) for name in vicinal.OBJECTIVES])


def _parts(batch: object) -> tuple[Batch, Tensor, Tensor | None]:
    """Return inputs, labels and, where the batch has it, index."""
    if isinstance(batch, Mapping):
        if "labels" not in batch:
            raise ValueError(f"the batch must have 'labels', got {list(batch)}")
        x = {name: value for name, value in batch.items() if name not in _NOT_INPUTS}
        return x, batch["labels"], batch.get("index")
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise ValueError(f"the batch must be (x, y), (x, y, index) or a mapping, got {type(batch).__name__}")
    x, y, *index = batch
    return x, y, index[0] if index else None
