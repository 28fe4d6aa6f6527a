"""From a kind of data and a name to a network, by way of a record that rebuilds it."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeAlias

from torch import nn

from vicinal._atomic import Json
from vicinal._checks import ArgumentError, choice, freeze, integer, nearest_names
from vicinal.models.averaged import Averaged
from vicinal.models.boosted import Boosted
from vicinal.models.ensemble_mlp import EnsembleMLP
from vicinal.models.linear import Linear
from vicinal.models.mlp import MLP
from vicinal.models.mlp_and_trees import MLPAndTrees
from vicinal.models.networks import NETWORKS, SMALL, timm_network
from vicinal.models.sentence_cnn import SentenceCNN
from vicinal.models.spectrogram import OnSpectrogram, Spectrogram
from vicinal.models.stack import Stack, trees_at_hand
from vicinal.models.transformer import checkpoint_config, transformer
from vicinal.models.tree_libraries import CatBoostTrees, LightGBMTrees
from vicinal.models.two_views import TwoViewMLP

#: Options of a network by name: which there are depends on the network.
NetworkOptions: TypeAlias = "dict[str, Any]"

#: Options that tell a network about its inputs: the data decide them, not a person.
ABOUT_INPUTS = ("plain", "numbers", "categories", "exclusive")
#: Networks for rows of a table. The first is the default; the second that of multi-label tasks, and of more than so
#: many classes, for which trees would be too few or take too long.
_TABULAR: dict[str, Callable[..., nn.Module]] = {
    "mlp-and-trees": MLPAndTrees,
    "two-view-mlp": TwoViewMLP,
    "mlp": MLP,
    "linear": Linear,
    "ensemble-mlp": EnsembleMLP,
    "hgb": Boosted,
    "lightgbm": LightGBMTrees,
    "catboost": CatBoostTrees,
    "best": Stack,
}
_MOST_CLASSES = 300
#: Fewer training images than these get the narrow network where there is no device but the processor.
_FEW_IMAGES = 10_000
#: Trees beside a network from so many training rows on: for each class and of all classes at most, and their leaves.
#: More rows bear more and larger trees; validation rows choose how many are kept.
_TREES = ((40_000, 1000, 6000, 63), (20_000, 1000, 6000, 31), (5_000, 1000, 6000, 15), (0, 100, 3000, 15))
#: VGG on spectrograms has two fully-connected layers, and VGG-11 two convolutions (Z18 Section 3.3, which gives no
#: sizes: 512 hidden units are ours).
_SPEECH: dict[str, NetworkOptions] = {"vgg11": {"hidden": (512,), "stages": 2}, "vgg16": {"hidden": (512,)}}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a network must know of the data: the fields of `Task.spec`."""

    kind: str
    """The kind of data."""
    n_classes: int
    """The number of outputs."""
    input_shape: Sequence[int] = ()
    """The shape of one input; () for text."""
    vocab_size: int | None = None
    """The number of token ids."""
    tokenizer: str | None = None
    """Whose tokens they are."""
    choices: int = 0
    """The number of answers to choose from, 0 for none."""
    plain: Sequence[int] | None = None
    """The places of features that are no piecewise-linear pieces."""
    numbers: Sequence[int] | None = None
    """The places of features that trees see as they are."""
    categories: Sequence[Sequence[int]] = ()
    """Ranges of places of one-hot features, which trees see as one number."""
    exclusive: bool = True
    """Whether the outputs are classes; else each is a label of its own."""
    n_train: int = 0
    """The number of training samples, 0 where it is not known."""
    accelerated: bool = False
    """Whether there is a device that is faster than the processor."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """All that is needed to build a network again: `ModelSpec.from_dict(spec.to_dict()).build()`.

    Parameters
    ----------
    name
        One of `names(kind)`.
    kind
        `"tabular"`, `"text"`, `"image"` or `"audio"`.
    n_classes
        How many classes there are.
    input_shape
        One input: (D,) features, (C, H, W) pixels or a spectrogram, (T,) samples of a waveform; () for text.
    options
        The options of the network, every one of them.
    members
        How many such networks answer together, each with weights of its own.

    Examples
    --------
    >>> spec = specify("mlp", kind="tabular", n_classes=3, input_shape=(8,))
    >>> spec
    ModelSpec(name='mlp', kind='tabular', n_classes=3, input_shape=(8,), options={'hidden': [128, 128], 'dropout': 0.0})
    >>> ModelSpec.from_dict(spec.to_dict()) == spec
    True
    """

    name: str
    kind: str
    n_classes: int
    input_shape: Sequence[int] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    members: int = field(default=1, repr=False)

    def __post_init__(self) -> None:
        shape = tuple(integer("input_shape", side, low=1) for side in self.input_shape)
        family = FAMILIES[choice("kind", self.kind, KINDS)]
        if len(shape) not in family.ranks:
            raise ArgumentError("input_shape", shape, f"{family.shape} for {self.kind} data")
        freeze(
            self,
            n_classes=integer("n_classes", self.n_classes, low=family.fewest_outputs),
            input_shape=shape,
            options=json.loads(json.dumps(dict(self.options))),  # as it will be read again
            members=integer("members", self.members, low=1),
        )

    def build(self, *, pretrained: bool = True, vectors: object = None) -> nn.Module:
        """Return the network, with fresh weights from torch's global generator.

        A transformer starts from its checkpoint's weights; with `pretrained=False` it does not look for them, which is
        what loading a saved model needs. The sentence CNN starts from word `vectors` `[vocab_size, dim]` where they are
        given.
        """
        if self.members > 1:
            return Averaged([replace(self, members=1).build(pretrained=pretrained) for _ in range(self.members)])
        return FAMILIES[self.kind].build(self, pretrained=pretrained, vectors=vectors)

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "n_classes": self.n_classes,
            "input_shape": list(self.input_shape),
            "options": json.loads(json.dumps(self.options)),
            **({"members": self.members} if self.members > 1 else {}),
        }

    @classmethod
    def from_dict(cls, record: Json) -> ModelSpec:
        """Return what `to_dict` recorded."""
        return cls(**record)


class Family(ABC):
    """The networks for one kind of data: which there are, the default, and how one is built."""

    ranks: ClassVar[tuple[int, ...]]
    """The allowed lengths of `input_shape`."""
    shape: ClassVar[str]
    """What an error says of them."""
    fewest_outputs: ClassVar[int] = 2

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the networks."""

    def knows(self, name: str) -> bool:
        """Return whether there is a network of this name."""
        return name in self.names()

    @abstractmethod
    def default(self, inputs: Inputs) -> str:
        """Return the name of the default network."""

    @abstractmethod
    def builder(self, name: str) -> Callable[..., nn.Module]:
        """Return what builds a network, given the input's shape, the number of classes and its options."""

    def build(self, spec: ModelSpec, *, pretrained: bool, vectors: object) -> nn.Module:
        """Return a network with fresh weights; see `ModelSpec.build`."""
        return self.builder(spec.name)(spec.input_shape, spec.n_classes, **spec.options)

    def specify(self, name: str | None, inputs: Inputs, options: NetworkOptions) -> ModelSpec:
        """Return the record of a network: the one named, or the default."""
        name = self.default(inputs) if name is None else name
        if not self.knows(name):
            raise ValueError(f"there is no network {name!r} for {inputs.kind} data{nearest_names(name, self.names())}")
        defaults = _defaults(self.builder(name))
        defaults |= {option: getattr(inputs, option) for option in ABOUT_INPUTS if option in defaults}
        defaults |= self.settled(name, inputs)
        complete = _complete(name, defaults, options)
        return ModelSpec(
            name=name, kind=inputs.kind, n_classes=inputs.n_classes, input_shape=inputs.input_shape, options=complete
        )

    def settled(self, name: str, inputs: Inputs) -> NetworkOptions:
        """Return defaults of a network's options that the data decide."""
        return {}


class _Tabular(Family):
    ranks = (1,)
    shape = "(D,)"

    def names(self) -> list[str]:
        return list(_TABULAR)

    def default(self, inputs: Inputs) -> str:
        with_trees = inputs.exclusive and inputs.n_classes <= _MOST_CLASSES
        return "mlp-and-trees" if with_trees else "two-view-mlp"

    def builder(self, name: str) -> Callable[..., nn.Module]:
        return _TABULAR[name]

    def build(self, spec: ModelSpec, *, pretrained: bool, vectors: object) -> nn.Module:
        return self.builder(spec.name)(spec.input_shape[0], spec.n_classes, **spec.options)

    def settled(self, name: str, inputs: Inputs) -> NetworkOptions:
        if name not in ("mlp-and-trees", "best"):
            return {}
        each, most, leaves = next(trees for least, *trees in _TREES if inputs.n_train >= least)
        parts = {"parts": trees_at_hand()} if name == "best" else {}
        return {"iterations": max(min(each, most // inputs.n_classes), 1), "leaves": leaves, **parts}


class _Image(Family):
    ranks: ClassVar[tuple[int, ...]] = (3,)
    shape = "(C, H, W)"

    def names(self) -> list[str]:
        return sorted(NETWORKS)

    def knows(self, name: str) -> bool:
        return name in NETWORKS or name.startswith("timm:")

    def default(self, inputs: Inputs) -> str:
        small = max(inputs.input_shape[1:], default=0) <= SMALL
        # Few large images do not fill torchvision's 11 million weights, which take hours on a processor.
        few = 0 < inputs.n_train < _FEW_IMAGES and not inputs.accelerated
        return "preactresnet18" if small or few else "resnet18"

    def builder(self, name: str) -> Callable[..., nn.Module]:
        return timm_network(name) if name.startswith("timm:") else NETWORKS[name]


class _Audio(_Image):
    """Spectrograms are images of one channel; waveforms become spectrograms in the network."""

    ranks = (3, 1)
    shape = "(C, H, W) or (T,)"

    def default(self, inputs: Inputs) -> str:
        return "soundresnet"

    def build(self, spec: ModelSpec, *, pretrained: bool, vectors: object) -> nn.Module:
        if len(spec.input_shape) == 3:
            return super().build(spec, pretrained=pretrained, vectors=vectors)
        shape = Spectrogram().shape(spec.input_shape[0])
        return OnSpectrogram(self.builder(spec.name)(shape, spec.n_classes, **spec.options))

    def knows(self, name: str) -> bool:
        return name in NETWORKS

    def settled(self, name: str, inputs: Inputs) -> NetworkOptions:
        return _SPEECH.get(name, {})


class _Text(Family):
    ranks = (0,)
    shape = "()"
    fewest_outputs = 1  # one output is a number to predict, which only texts have

    def names(self) -> list[str]:
        return ["minilm", "sentencecnn"]

    def default(self, inputs: Inputs) -> str:
        if inputs.tokenizer == "words" or (inputs.tokenizer is None and inputs.vocab_size):
            return "sentencecnn"
        return inputs.tokenizer or "minilm"

    def builder(self, name: str) -> Callable[..., nn.Module]:
        return SentenceCNN if name == "sentencecnn" else transformer

    def build(self, spec: ModelSpec, *, pretrained: bool, vectors: object) -> nn.Module:
        options = dict(spec.options)
        if spec.name != "sentencecnn":
            return transformer(spec.n_classes, **options, pretrained=pretrained)
        model = SentenceCNN(options.pop("vocab_size"), spec.n_classes, **options)
        if vectors is not None:
            model.set_vectors(vectors)
        return model

    def specify(self, name: str | None, inputs: Inputs, options: NetworkOptions) -> ModelSpec:
        name = (self.default(inputs) if name is None else name).removeprefix("hf:")
        wanted = tokenizer_of(name)
        if inputs.tokenizer is not None and inputs.tokenizer != wanted:
            raise ValueError(
                f"the network {name!r} reads other tokens than the data hold ({inputs.tokenizer!r}): "
                f"load the data with tokenizer={wanted!r}"
            )
        if name == "sentencecnn":
            complete = self._sentence_cnn(inputs, options)
        else:
            if name in NETWORKS:
                raise ValueError(f"there is no network {name!r} for text data{nearest_names(name, self.names())}")
            config = checkpoint_config(name, inputs.n_classes)
            defaults = {"dropout": None, **({"pooling": None} if "pooling" in options else {})}
            complete = {"checkpoint": name, "config": config, **_complete(name, defaults, options)}
            if inputs.choices:
                complete["multiple_choice"] = True
        return ModelSpec(name=name, kind="text", n_classes=inputs.n_classes, options=complete)

    def _sentence_cnn(self, inputs: Inputs, options: NetworkOptions) -> NetworkOptions:
        if inputs.choices:
            raise ValueError("sentencecnn reads one text: answers to choose from need a transformer, such as minilm")
        if inputs.vocab_size is None:
            needs = "sentencecnn needs vocab_size, the number of words"
            raise ValueError(f"{needs}: data.load(…, TextOptions(tokenizer='words')).spec")
        own = _complete("sentencecnn", _defaults(SentenceCNN), options)
        return {"vocab_size": inputs.vocab_size, **own}


#: The networks of each kind of data.
FAMILIES: dict[str, Family] = {"tabular": _Tabular(), "text": _Text(), "image": _Image(), "audio": _Audio()}
#: The kinds of data.
KINDS = tuple(FAMILIES)
_FACTS = frozenset(one.name for one in fields(Inputs))


def names(kind: str | None = None) -> list[str]:
    """Return the names of the networks for a kind of data, or of all.

    Returns
    -------
    list[str]
        The names that `build` takes.

    Examples
    --------
    >>> names("text")
    ['minilm', 'sentencecnn']
    """
    if kind is None:
        return sorted({*NETWORKS, *FAMILIES["text"].names()})
    return FAMILIES[choice("kind", kind, KINDS)].names()


def features_of(name: str | None) -> str:
    """Return what `data.load` takes as `features` for this network of tables, the default one if none is named.

    >>> features_of(None), features_of("mlp")
    ('ranked', 'standard')
    """
    ranked = (None, "mlp-and-trees", "two-view-mlp", "best")
    return "ranked" if name in ranked else "piecewise" if name == "ensemble-mlp" else "standard"


def front_end_of(name: str | None) -> str:
    """Return what `data.load` takes as `front_end` for this network of sounds, the default one if none is named.

    LeNet and VGG are the papers', and take the spectrogram of Zhang et al. (2018, Section 3.3), as all others do.

    >>> front_end_of(None), front_end_of("lenet")
    ('mel', 'spectrogram')
    """
    return "mel" if name in (None, "soundresnet") else "spectrogram"


def tokenizer_of(name: str | None) -> str | None:
    """Return what `data.load` takes as `tokenizer` for this text network; None leaves the choice to it.

    Returns
    -------
    str or None
        The name of the tokenizer.

    Examples
    --------
    >>> tokenizer_of("sentencecnn"), tokenizer_of("hf:google-bert/bert-base-uncased")
    ('words', 'google-bert/bert-base-uncased')
    """
    if name is None or name in (*NETWORKS, *_TABULAR):
        return None
    name = name.removeprefix("hf:")
    return "words" if name == "sentencecnn" else name


def specify(
    name: str | None = None, *, kind: str, n_classes: int, input_shape: Sequence[int] = (), **about: Any
) -> ModelSpec:
    """Return the record of a network: the one named, or the default for this kind of data.

    The default for rows of a table is two MLPs with two views of it. Trees stand beside them if there are at most 300
    classes: at most 100 for each class and 3,000 in all, from 5,000 training rows on 1,000 and 6,000. They have 15
    leaves, 31 from 20,000 rows on, and 63 from 40,000. The default for images up to 64 px is PreAct ResNet-18 (16
    channels wide up to 16 px, else 64), above that torchvision's ResNet-18, but PreAct ResNet-18 again for fewer than
    10,000 training images without an accelerator. Texts get the network that their tokenizer
    belongs to, the sentence CNN or a transformer, and sounds a narrow ResNet-18.

    Parameters
    ----------
    name
        One of `names(kind)`; for text also a folder or a hub name of a Hugging Face checkpoint (`hf:NAME`), for images
        a network of timm (`timm:NAME`).
    kind, n_classes, input_shape
        What the data are. `Task.spec` holds these.
    about
        The other fields of `Task.spec` (see `Inputs`), and the options of the network, such as `width=16`.

    Returns
    -------
    ModelSpec
        The record, which JSON can hold and which builds the network.

    Examples
    --------
    >>> specify(kind="image", n_classes=10, input_shape=(3, 32, 32)).name
    'preactresnet18'
    """
    family = FAMILIES[choice("kind", kind, KINDS)]
    # What the data are and what the network may be share one namespace, as in `build(**task.spec, width=16)`.
    facts = {fact: about.pop(fact) for fact in _FACTS & set(about)}
    inputs = Inputs(kind=kind, n_classes=n_classes, input_shape=input_shape, **facts)
    return family.specify(name, inputs, about)


def build(name: str | None = None, **about: Any) -> nn.Module:
    """Return a network for data of some kind: `specify(…).build()`, which has the same arguments.

    Returns
    -------
    nn.Module
        The network, with new weights.

    Examples
    --------
    >>> model = build("resnet18", kind="image", n_classes=10, input_shape=(1, 28, 28))
    >>> sum(p.numel() for p in model.parameters())
    11172810
    """
    return specify(name, **about).build()


def _defaults(builder: Callable[..., Any]) -> NetworkOptions:
    """Return the options of a network: its keyword-only arguments and their defaults."""
    parameters = inspect.signature(builder).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def _complete(name: str, defaults: Mapping[str, object], options: Mapping[str, object]) -> NetworkOptions:
    """Return all options of a network, the given ones and the defaults of the others."""
    for option in options:
        if option not in defaults:
            raise ValueError(f"{name} has no option {option!r}{nearest_names(option, defaults)}")
    return {**defaults, **options}
