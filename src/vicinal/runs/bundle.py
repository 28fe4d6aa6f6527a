r"""A trained model on disk: weights as safetensors, everything else as JSON. Nothing is ever unpickled.

    run/
      model.safetensors      the weights
      model.json             classes, preprocessing, network, calibrator, precision, method, data fingerprint,
                             versions, and the checksums of the weights and of itself

`vicinal.load(run)` gives a `Bundle`: point it at new data, and it answers with calibrated probabilities,

.. math:: p = \mathrm{softmax}(c(f(x)))

with c the calibrator that was fitted on held-out data, by default a temperature, :math:`c(z) = z / T`. Multi-label
models have one for each label, and a sigmoid.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal import _random, data
from vicinal._atomic import (
    DamagedFileError,
    Json,
    checksum,
    read_json,
    read_sealed,
    read_tensors,
    replacing,
    sealed,
    write_json,
    write_tensors,
)
from vicinal._checks import choice, flag, freeze, integer, nearest_names, number, require
from vicinal._remote import local_path
from vicinal._typing import Batch
from vicinal.data import Preprocessing, ReadOptions, Split, Stream
from vicinal.data.image import ImagePreprocessing
from vicinal.data.options import MOST_PIXELS
from vicinal.data.tabular import TabularPreprocessing
from vicinal.data.text import TextPreprocessing
from vicinal.metrics import Evaluation
from vicinal.models import ModelSpec
from vicinal.objectives.forward import call
from vicinal.probes.base import device_of
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators
from vicinal.runs.hub import downloaded, push_to_hub
from vicinal.runs.layout import RunFiles
from vicinal.runs.onnx import export, largest_difference
from vicinal.training.batches import KeyedDataset, evaluation_batches
from vicinal.training.predicting import AtPrecision, channels_last_, iter_logits

#: How far a probability may be off in another runtime, which adds float32 numbers in another order.
_ONNX_TOLERANCE = 1e-4
#: A lower temperature would turn logits into infinities, and probabilities into NaN.
_COLDEST = 1e-100
#: Settings of the network that its record has only where they are set.
_WHERE_SET = ("channels_last", "full_float32")


@dataclass(frozen=True, eq=False, kw_only=True)
class Bundle:
    """A trained classifier that takes raw new data and returns calibrated probabilities.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal import data, models
    >>> frame = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5] * 5, "y": ["a", "b"] * 10})
    >>> task = data.load(frame, target="y")
    >>> spec = models.specify("linear", **task.spec)
    >>> bundle = Bundle(module=spec.build(), spec=spec, preprocessing=task.preprocessing, classes=task.classes)
    >>> bundle.predict_proba(frame[["x"]]).shape
    (20, 2)
    """

    module: nn.Module = field(repr=False)
    """The network, in eval mode; its outputs are logits."""
    spec: ModelSpec = field(repr=False)
    """The specification that builds the network again."""
    preprocessing: Preprocessing = field(repr=False)
    """Turns a row, a text, an image or a sound into the network's input."""
    classes: tuple[str, ...]
    """The names of the classes, in the order of its outputs."""
    calibrators: HeadCalibrators = field(
        default_factory=lambda: HeadCalibrators.of_temperatures({ONLY_HEAD: 1.0}), repr=False
    )
    """Applied to its logits: one calibrator for all classes, or one for each label. By default none: a
    temperature of 1."""
    target_type: str = "multiclass"
    """`"multiclass"`, or `"multilabel"`: each of `classes` is then a label with a probability of its own."""
    precision: str = "no"
    """`"no"`, `"bf16"` or `"fp16"`: what it computes in, which is what the calibrator was fitted in."""
    channels_last: bool = False
    """Whether images, and the weights of convolutions, have this memory format, as when the calibrator was fitted."""
    full_float32: bool = False
    """Whether CUDA multiplies float32 in full precision, as when the calibrator was fitted; else it rounds to TF32."""
    batch_size: int = 256
    """Samples at a time, as when the calibrator was fitted: sums of floats depend a little on the shape of a batch."""
    method: str = ""
    """The objective it was trained with, as an expression."""
    fingerprint: str = ""
    """A hash of the data it was trained on."""
    versions: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The versions of the libraries that wrote it."""

    def __post_init__(self) -> None:
        classes = tuple(str(name) for name in self.classes)
        if len(classes) != self.spec.n_classes:
            raise ValueError(f"classes must be {self.spec.n_classes}, as many as the network has, got {len(classes)}")
        freeze(
            self,
            classes=classes,
            target_type=choice("target_type", self.target_type, ("multiclass", "multilabel")),
            precision=choice("precision", self.precision, ("no", "bf16", "fp16")),
            channels_last=flag("channels_last", self.channels_last),
            full_float32=flag("full_float32", self.full_float32),
            batch_size=integer("batch_size", self.batch_size, low=1),
        )
        for temperature in self.calibrators.temperatures.values():
            if not math.isnan(temperature):
                number("temperature", temperature, above=_COLDEST)
        heads = classes if self.is_multilabel else (ONLY_HEAD,)
        if tuple(self.calibrators.by_head) != heads:
            raise ValueError(
                f"calibrators must be of {heads}, one for each head, got {tuple(self.calibrators.by_head)}"
            )
        if self.channels_last:
            channels_last_(self.module)
        self.module.eval()

    @property
    def is_multilabel(self) -> bool:
        """Whether `classes` are labels."""
        return self.target_type == "multilabel"

    @property
    def temperature(self) -> float:
        """The mean temperature of all heads, of which multi-class has one; NaN with other calibrators."""
        return self.calibrators.temperature

    @property
    def network(self) -> nn.Module:
        """The module at its precision: what to call, attack or look into, for the logits that are served."""
        how = {name: getattr(self, name) for name in _WHERE_SET}
        return AtPrecision(self.module, self.precision, **how)

    # Predicting

    def predict_proba(self, source: object, *, batch_size: int | None = None) -> NDArray[np.float64]:
        """Return calibrated probabilities `[N, K]`, a column for each of `classes`.

        Parameters
        ----------
        source
            New data, labelled or not: all that `vicinal.data.load` takes (a file, a folder, a DataFrame), a single
            image or sound, a list of texts, or a `Split`.
        batch_size
            Samples at a time; `self.batch_size` if not given.
        """
        return self.calibrated(self.logits(source, batch_size=batch_size)).numpy()

    def predict(self, source: object, *, batch_size: int | None = None) -> NDArray[np.generic]:
        """Return the name of the most probable class of each sample, `[N]`; of labels, whether each holds, `[N, L]`."""
        if self.is_multilabel:
            return (self.calibrators(self.logits(source, batch_size=batch_size)) > 0).numpy()
        best = self.calibrators(self.logits(source, batch_size=batch_size)).argmax(dim=1)
        return np.array([self.classes[k] for k in best.tolist()])

    def logits(self, source: object, *, batch_size: int | None = None) -> Tensor:
        """Return the network's own logits `[N, K]`, before calibration."""
        return torch.cat(list(self.iter_logits(self.read(source), batch_size=batch_size)))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the probabilities of logits, in float64."""
        scaled = self.calibrators(logits)
        return scaled.sigmoid() if self.is_multilabel else scaled.softmax(dim=1)

    def read(self, source: Any, *, labelled: bool = False, **options: Any) -> Split:
        """Return new data as the network takes them; with `labelled` their classes too.

        Parameters
        ----------
        source
            As for `predict_proba`.
        labelled
            Whether the data must have classes, or all of the model's labels; samples of classes the model does not
            know, or without a label, are left out, and named.
        options
            Of `vicinal.data.read`: `max_bad`, `encoding`, `header`, `data_root`.
        """
        if isinstance(source, Split):
            return source
        reader = self.preprocessing
        if isinstance(reader, TextPreprocessing) and isinstance(source, Sequence) and not isinstance(source, str):
            rows = [(text,) if isinstance(text, str) else tuple(text) for text in source]
            source = require("pandas", "train").DataFrame(rows, columns=[*reader.columns, *reader.choice])
        answers: dict[str, Any] = {"labels" if self.is_multilabel else "classes": self.classes} if labelled else {}
        how = ReadOptions.pop_from(options)
        return data.read(source, self.preprocessing, options=how, **answers, **options)

    def stream(self, source: Any, *, batch_size: int | None = None, **options: Any) -> Stream:
        """Return new data as `read` does, but a table block by block: any number of rows in constant memory.

        Parameters
        ----------
        source
            As for `predict_proba`.
        batch_size
            Samples at a time in `iter_logits`; `self.batch_size` if not given.
        options
            Of `vicinal.data.stream`: `max_bad`, `encoding`, `header`, `data_root`, `keep`.
        """
        size, how = batch_size or self.batch_size, ReadOptions.pop_from(options)
        return data.stream(source, self.preprocessing, batch_size=size, options=how, **options)

    def iter_logits(
        self,
        split: Split | Any,
        *,
        batch_size: int | None = None,
        network: Callable[[Batch], Tensor] | None = None,
        progress: Callable[[int], None] | None = None,
        numbers: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> Iterator[Tensor]:
        """Yield the logits of a split, a batch at a time and in order: constant memory for any amount of data.

        Parameters
        ----------
        split
            What `read` returned, or another map-style dataset of (x, y).
        batch_size
            Samples at a time; `self.batch_size` if not given.
        network
            What to call in the network's place, such as `MCDropout(bundle.network)`.
        progress
            Called with the number of samples of each batch.
        numbers
            What errors call the samples; their places in the split, from 0, if not given.
        """
        if len(split) == 0:
            raise ValueError("there are no samples to predict")
        batches = evaluation_batches(
            KeyedDataset(split, 0, purpose="evaluation", collate_fn=getattr(split, "collate_fn", None)),
            range(len(split)),
            batch_size=self.batch_size if batch_size is None else integer("batch_size", batch_size, low=1),
        )
        first = 0
        for logits, _ in iter_logits(network or self.network, batches, device_of(self.module)):
            _check_answers(logits, numbers if numbers is not None else range(len(split)), first)
            first += len(logits)
            yield logits
            if progress is not None:
                progress(len(logits))

    # On disk

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the weights and their record into a folder; return the folder."""
        path = local_path("folder", folder)
        path.mkdir(parents=True, exist_ok=True)
        write_tensors(RunFiles(path).weights, self.module.state_dict())
        self.save_record(path)
        return path

    def save_record(self, folder: Path) -> None:
        """Write model.json alone, beside weights that training wrote."""
        files = RunFiles(folder)
        record = {
            "classes": list(self.classes),
            **self.calibrators.to_dict(),
            "precision": self.precision,
            **{name: True for name in _WHERE_SET if getattr(self, name)},
            "batch_size": self.batch_size,
            "method": self.method,
            "fingerprint": self.fingerprint,
            "network": self.spec.to_dict(),
            "preprocessing": self.preprocessing.to_dict(),
            "versions": dict(self.versions),
            "weights": checksum(files.weights),
        }
        write_json(files.model, sealed(record))

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, device: str | torch.device = "cpu", max_pixels: int = MOST_PIXELS
    ) -> Bundle:
        """Return what `save` wrote, or what a training run saved; see `load` for the arguments."""
        files, record = _record(local_path("run", folder))
        writer = f"vicinal {record['versions'].get('vicinal', '?')}"
        try:
            if not files.weights.exists():
                raise DamagedFileError(f"{files.weights} is gone")
            weights = read_tensors(files.weights, expected=record["weights"])[0]
        except DamagedFileError as error:
            raise DamagedFileError(
                f"{error}; start the run again and it restores them, or copy them from where they are whole"
            ) from error
        _check_finite(weights, files.weights)
        try:
            spec = ModelSpec.from_dict(record["network"])
            preprocessing = Preprocessing.from_dict(record["preprocessing"])
            _check_size(spec, weights, files)
            _check_width(spec, preprocessing, files)
            calibrators = HeadCalibrators.from_dict(record, spec.n_classes)
            module = spec.build(pretrained=False)
        except DamagedFileError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise ValueError(
                f"{files.model} describes what this version does not know ({error!r}): another version wrote it "
                f"({writer}); use that one, or train again"
            ) from error
        if isinstance(preprocessing, ImagePreprocessing):
            preprocessing = preprocessing.limited(max_pixels)
        try:
            module.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(
                f"the weights in {str(folder)!r} do not fit its network {spec.name!r}: another version wrote them "
                f"({writer}), or the files do not belong together"
            ) from error
        return cls(
            module=module.to(device),
            spec=spec,
            preprocessing=preprocessing,
            classes=tuple(record["classes"]),
            calibrators=calibrators,
            target_type="multilabel" if calibrators.is_multilabel else "multiclass",
            precision=record.get("precision", "no"),
            **{name: record.get(name, False) for name in _WHERE_SET},
            batch_size=record.get("batch_size", 256),
            method=record.get("method", ""),
            fingerprint=record.get("fingerprint", ""),
            versions=record["versions"],
        )

    # Elsewhere

    def push_to_hub(
        self,
        repo_id: str,
        *,
        evaluation: Evaluation | None = None,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
    ) -> str:
        """Upload the model, a model card and its reliability diagram to the Hugging Face Hub.

        Parameters
        ----------
        repo_id
            The repository, such as `"user/model"`. It is created if there is none.
        evaluation
            The evaluation on a test set that the card shows.
        private, token, revision
            As in `huggingface_hub`.

        Returns
        -------
        str
            The address of the commit.
        """
        return push_to_hub(self, repo_id, evaluation=evaluation, private=private, token=token, revision=revision)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        token: str | None = None,
        device: str | torch.device = "cpu",
    ) -> Bundle:
        """Return the model of a repository of the Hugging Face Hub, or of a local folder.

        Two files are fetched, safetensors and JSON. No code is downloaded, and nothing is unpickled.

        Parameters
        ----------
        source
            `"user/model"`, or a folder.
        revision, token
            As in `huggingface_hub`.
        device
            Where to put it.
        """
        return cls.load(downloaded(source, revision=revision, token=token), device=device)

    def to_onnx(self, path: str | os.PathLike[str]) -> float:
        """Write the model as ONNX, with the calibrator inside, and compare it with the original by onnxruntime.

        Its inputs are the network's (what `preprocessing` returns), with any number of rows; its outputs are `logits`
        (calibrated) and `probabilities`, in the order of `classes`. The names of the classes, the
        preprocessing, and for rows of a table what each number of the input is (`features`) are in its metadata, as
        JSON.

        Parameters
        ----------
        path
            The file to write.

        Returns
        -------
        float
            The largest difference of a probability on a batch of made-up inputs. More than 1e-4 is an error, and
            nothing is written. So is a calibrator that has no form in ONNX.
        """
        example, check = self._made_up(2), self._made_up(5)
        facts = {"classes": list(self.classes), "preprocessing": self.preprocessing.to_dict(), "method": self.method}
        if isinstance(self.preprocessing, TabularPreprocessing):
            facts["features"] = self.preprocessing.feature_names
        target = Path(path)
        with replacing(target) as temporary, torch.no_grad():
            export(self.module, self.calibrators, example, temporary, facts)
            difference = largest_difference(temporary, check, self.calibrated(call(self.module, check)))
            if not difference <= _ONNX_TOLERANCE:
                raise RuntimeError(
                    f"the ONNX file's probabilities differ by {difference:.2g} from the model's: it was not written"
                )
        return difference

    def _made_up(self, n: int) -> Batch:
        """Return `n` random inputs of the network; texts get longer with their number."""
        if isinstance(self.preprocessing, TextPreprocessing):
            n_texts = self.preprocessing.n_texts
            texts = [tuple(" ".join(["sense and nonsense"] * (n + k)) for _ in range(n_texts)) for k in range(n)]
            x, _ = self.preprocessing.collate([(self.preprocessing(text), 0) for text in texts])
            return x
        generator = torch.Generator().manual_seed(n)
        return _random.normal_like(torch.empty(n, *self.spec.input_shape), generator=generator)


def load(run: str | os.PathLike[str], *, device: str | torch.device = "cpu", max_pixels: int = MOST_PIXELS) -> Bundle:
    """Return the trained model of a run: an object with `predict_proba`.

    Parameters
    ----------
    run
        The folder that `vicinal train` or `Bundle.save` wrote.
    device
        Where to put it.
    max_pixels
        An image file that claims more is not read, and a model of larger images is refused.

    Returns
    -------
    Bundle
        The model, in eval mode, with its preprocessing and its calibrator.

    Examples
    --------
    >>> model = load("runs/digits")  # doctest: +SKIP
    >>> model.predict_proba("digits").shape  # doctest: +SKIP
    """
    return Bundle.load(run, device=device, max_pixels=max_pixels)


def _check_answers(logits: Tensor, numbers: Sequence[int] | NDArray[np.int64], first: int) -> None:
    """Raise if the network overflows on a sample: it has no probability."""
    finite = logits.isfinite()
    if not bool(finite.all()):
        sample = int(numbers[first + int((~finite.all(dim=1)).nonzero()[0])])
        raise ValueError(f"the network's answer to sample {sample} (from 0) is not finite: its numbers are too large")


def _check_size(spec: ModelSpec, weights: Mapping[str, Tensor], files: RunFiles) -> None:
    """Refuse a record that asks for a larger network than the weights are of, before anything is allocated for it."""
    kept = sum(t.numel() for t in weights.values())
    what = f"{spec.members:,} networks, and {files.weights.name} holds {len(weights):,} arrays"
    if spec.members <= len(weights):
        with torch.device("meta"):  # shapes alone, which take no memory
            wanted = sum(t.numel() for t in spec.build(pretrained=False).state_dict().values())
        what = f"a network of {wanted:,} weights, and {files.weights.name} holds {kept:,}"
        if wanted <= 2 * kept + 10**6:  # some networks replace layers while they are built
            return
    raise DamagedFileError(f"{files.model} asks for {what}: the files do not belong together")


def _check_width(spec: ModelSpec, preprocessing: Preprocessing, files: RunFiles) -> None:
    """Raise if the columns of a record become another number of features than its network takes."""
    given = preprocessing.spec.get("input_shape")
    if isinstance(preprocessing, TabularPreprocessing) and given != tuple(spec.input_shape):
        what = f"a network of {spec.input_shape} features, and its columns become {given}"
        raise DamagedFileError(f"{files.model} asks for {what}: they do not belong together")


def _check_finite(weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise if weights are not finite: training diverged, or the file was changed."""
    broken = [name for name, t in weights.items() if t.is_floating_point() and not bool(t.isfinite().all())]
    if broken:
        raise ValueError(
            f"{path} holds weights that are not finite numbers ({broken[0]!r}): train again, with a lower learning rate"
        )


def _record(path: Path) -> tuple[RunFiles, Json]:
    """Return the files of a saved model and its record, or raise with what the folder is instead."""
    files = RunFiles(path)
    if not path.is_dir():
        runs = [str(model.parent) for model in path.parent.glob(f"*/{files.model.name}")]
        hint = nearest_names(str(path), runs, key=lambda run: Path(run).name)
        raise FileNotFoundError(f"there is no folder {str(path)!r}{hint}")
    if not files.model.exists():
        if files.evaluation.exists() and read_json(files.evaluation).get("target_type") == "regression":
            raise ValueError(f"{str(path)!r} learned numbers, and this needs classes")
        started = files.config.exists()
        raise FileNotFoundError(
            f"{str(path)!r} holds no {files.model.name}: "
            + ("this run is not finished; start it again to resume it" if started else "not a run of vicinal")
        )
    return files, read_record(files)


def read_record(files: RunFiles) -> Json:
    """Return the record of a saved model; a changed one is a `DamagedFileError`."""
    try:
        record = read_sealed(files.model, required=True)
    except DamagedFileError as error:
        again = "run its training command again" if files.config.exists() else "save the model again"
        raise DamagedFileError(f"{error}; {again} to write it again") from error
    missing = [name for name in ("classes", "network", "preprocessing", "weights") if name not in record]
    missing += [] if {"temperature", "temperatures", "calibrators"} & record.keys() else ["temperature"]
    if missing:
        raise DamagedFileError(f"{files.model} lacks {', '.join(map(repr, missing))}: it is incomplete")
    for name, kind in (("classes", list), ("network", dict), ("preprocessing", dict), ("versions", dict)):
        if not isinstance(record.get(name, kind()), kind):
            what = "an object" if kind is dict else "a list"
            raise DamagedFileError(f"{files.model}: {name!r} must be {what}, got {record[name]!r}")
    return {"versions": {}, **record}
