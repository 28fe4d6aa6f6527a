"""From a kind of data and a name to a network, by way of a record that rebuilds it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

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
from vicinal.models.transformer import checkpoint_config, transformer
from vicinal.models.two_views import TwoViewMLP

__all__ = [
    "KINDS",
    "USUAL_BEFORE",
    "ModelSpec",
    "build",
    "features_of",
    "front_end_of",
    "names",
    "specify",
    "tokenizer_of",
]

#: The kinds of data.
KINDS = ("tabular", "text", "image", "audio")

#: Networks for rows of a table; the first is the usual one, the second that of labels that exclude nothing, and of more
#: than so many classes, of which trees would be too few or take too long.
_TABULAR: dict[str, type[Boosted | EnsembleMLP | Linear | MLP | MLPAndTrees | TwoViewMLP]] = {
    "mlp-and-trees": MLPAndTrees,
    "two-view-mlp": TwoViewMLP,
    "mlp": MLP,
    "linear": Linear,
    "ensemble-mlp": EnsembleMLP,
    "hgb": Boosted,
}
_MOST_CLASSES = 300
#: Trees for each class beside a network, and of all classes, unless asked for: a row meets every one.
_TREES, _MOST_TREES = 100, 3000
#: What were the usual ones for rows and for sounds before; experiments of then name none.
USUAL_BEFORE = ("mlp", "two-view-mlp", "lenet")
#: VGG on spectrograms has two fully-connected layers, and VGG-11 two convolutions (Z18 Section 3.3, which gives no
#: sizes: 512 hidden units are ours).
_SPEECH: dict[str, dict[str, object]] = {"vgg11": {"hidden": (512,), "stages": 2}, "vgg16": {"hidden": (512,)}}


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
        sides = {"tabular": (1,), "text": (0,), "image": (3,), "audio": (3, 1)}[choice("kind", self.kind, KINDS)]
        if len(shape) not in sides:
            meaning = {0: "()", 1: "(D,)", 3: "(C, H, W)"}[sides[0]] + (" or (T,)" if self.kind == "audio" else "")
            raise ArgumentError("input_shape", shape, f"{meaning} for {self.kind} data")
        freeze(
            self,
            # One output is a number to predict; only texts have such data.
            n_classes=integer("n_classes", self.n_classes, low=1 if self.kind == "text" else 2),
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
        options = dict(self.options)
        if self.kind == "tabular":
            return _TABULAR[self.name](self.input_shape[0], self.n_classes, **options)
        if self.kind == "text":
            if self.name == "sentencecnn":
                model = SentenceCNN(options.pop("vocab_size"), self.n_classes, **options)
                if vectors is not None:
                    model.set_vectors(vectors)
                return model
            return transformer(self.n_classes, **options, pretrained=pretrained)
        network = timm_network(self.name) if self.name.startswith("timm:") else NETWORKS[self.name]
        if len(self.input_shape) == 3:
            return network(self.input_shape, self.n_classes, **options)
        shape = Spectrogram().shape(self.input_shape[0])
        return OnSpectrogram(network(shape, self.n_classes, **options))

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
    def from_dict(cls, record: Mapping[str, Any]) -> ModelSpec:
        """Return what `to_dict` recorded."""
        return cls(**record)


def names(kind: str | None = None) -> list[str]:
    """Return the names of the networks for a kind of data, or of all.

    >>> names("text")
    ['minilm', 'sentencecnn']
    """
    images = sorted(NETWORKS)
    known = {"tabular": list(_TABULAR), "text": ["minilm", "sentencecnn"], "image": images, "audio": images}
    return sorted({*images, *known["text"]}) if kind is None else known[choice("kind", kind, KINDS)]


def features_of(name: str | None) -> str:
    """Return what `data.load` takes as `features` for this network of tables, the usual one if none is named.

    >>> features_of(None), features_of("mlp")
    ('ranked', 'standard')
    """
    ranked = (None, "mlp-and-trees", "two-view-mlp")
    return "ranked" if name in ranked else "piecewise" if name == "ensemble-mlp" else "standard"


def front_end_of(name: str | None) -> str:
    """Return what `data.load` takes as `front_end` for this network of sounds, the usual one if none is named.

    LeNet and VGG are the papers', and take the spectrogram of Zhang et al. (2018, Section 3.3), as all others do.

    >>> front_end_of(None), front_end_of("lenet")
    ('mel', 'spectrogram')
    """
    return "mel" if name in (None, "soundresnet") else "spectrogram"


def tokenizer_of(name: str | None) -> str | None:
    """Return what `data.load` takes as `tokenizer` for this text network; None leaves the choice to it.

    >>> tokenizer_of("sentencecnn"), tokenizer_of("hf:google-bert/bert-base-uncased")
    ('words', 'google-bert/bert-base-uncased')
    """
    if name is None or name in (*NETWORKS, *_TABULAR):
        return None
    name = name.removeprefix("hf:")
    return "words" if name == "sentencecnn" else name


def specify(
    name: str | None = None,
    *,
    kind: str,
    n_classes: int,
    input_shape: Sequence[int] = (),
    vocab_size: int | None = None,
    tokenizer: str | None = None,
    choices: int = 0,
    plain: Sequence[int] | None = None,
    numbers: Sequence[int] | None = None,
    categories: Sequence[Sequence[int]] = (),
    exclusive: bool = True,
    **options: object,
) -> ModelSpec:
    """Return the record of a network: the one named, or the usual one for this kind of data.

    Without a name it is, for rows of a table, two MLPs with two views of it, and trees beside them where the outputs
    are classes, at most 300; of more than 30 there are fewer trees for each, 3,000 in all. For images up to 64 px it is
    PreAct ResNet-18 (16 channels wide up to 16 px, else 64), above torchvision's ResNet-18; for text what its tokenizer
    belongs to, the sentence CNN or a transformer; for sounds a narrow ResNet-18.

    Parameters
    ----------
    name
        One of `names(kind)`; for text also a folder or a hub name of a Hugging Face checkpoint (`hf:NAME`), for images
        a network of timm (`timm:NAME`).
    kind, n_classes, input_shape, vocab_size, tokenizer, choices, plain, numbers, categories, exclusive
        What the data are: `Task.spec` holds just these.
    options
        The options of the network, such as `width=16` or `dropout=0.3`.

    >>> specify(kind="image", n_classes=10, input_shape=(3, 32, 32)).name
    'preactresnet18'
    """
    choice("kind", kind, KINDS)
    if kind == "text":
        return _specify_text(name, n_classes, vocab_size, tokenizer, choices, options)
    if name is None:
        name = _default(kind, n_classes if exclusive else None, input_shape)
    is_timm = kind == "image" and name.startswith("timm:")
    if not is_timm and name not in names(kind):
        raise ValueError(f"there is no network {name!r} for {kind} data{nearest_names(name, names(kind))}")
    builder: Callable[..., Any] = (
        timm_network(name) if is_timm else _TABULAR[name].__init__ if kind == "tabular" else NETWORKS[name]
    )
    if kind == "audio" and name in _SPEECH:
        options = {**_SPEECH[name], **options}
    defaults = _defaults(builder)
    about = {"plain": plain, "numbers": numbers, "categories": categories, "exclusive": exclusive}
    defaults |= {name: value for name, value in about.items() if name in defaults}
    if name == "mlp-and-trees":
        defaults["iterations"] = max(min(_TREES, _MOST_TREES // n_classes), 1)
    complete = _complete(name, defaults, options)
    return ModelSpec(name=name, kind=kind, n_classes=n_classes, input_shape=input_shape, options=complete)


def build(name: str | None = None, **about: Any) -> nn.Module:
    """Return a network for data of some kind: `specify(…).build()`, which has the same arguments.

    >>> model = build("resnet18", kind="image", n_classes=10, input_shape=(1, 28, 28))
    >>> sum(p.numel() for p in model.parameters())
    11172810
    """
    return specify(name, **about).build()


def _default(kind: str, n_classes: int | None, input_shape: Sequence[int]) -> str:
    if kind == "image":
        return "preactresnet18" if max(input_shape[1:], default=0) <= SMALL else "resnet18"
    if kind == "audio":
        return "soundresnet"
    return list(_TABULAR)[0 if n_classes is not None and n_classes <= _MOST_CLASSES else 1]


def _specify_text(
    name: str | None,
    n_classes: int,
    vocab_size: int | None,
    tokenizer: str | None,
    choices: int,
    options: dict[str, object],
) -> ModelSpec:
    if name is None:
        name = "sentencecnn" if tokenizer == "words" or (tokenizer is None and vocab_size) else tokenizer or "minilm"
    name = name.removeprefix("hf:")
    wanted = tokenizer_of(name)
    if tokenizer is not None and tokenizer != wanted:
        raise ValueError(
            f"the network {name!r} reads other tokens than the data hold ({tokenizer!r}): "
            f"load the data with tokenizer={wanted!r}"
        )
    if name == "sentencecnn":
        if choices:
            raise ValueError("sentencecnn reads one text: answers to choose from need a transformer, such as minilm")
        if vocab_size is None:
            raise ValueError("sentencecnn needs vocab_size, the number of words: data.load(…, tokenizer='words').spec")
        complete = {"vocab_size": vocab_size, **_complete(name, _defaults(SentenceCNN.__init__), options)}
    else:
        if name in NETWORKS:
            raise ValueError(f"there is no network {name!r} for text data{nearest_names(name, names('text'))}")
        config = checkpoint_config(name, n_classes)
        defaults = {"dropout": None, **({"pooling": None} if "pooling" in options else {})}
        complete = {"checkpoint": name, "config": config, **_complete(name, defaults, options)}
        if choices:
            complete["multiple_choice"] = True
    return ModelSpec(name=name, kind="text", n_classes=n_classes, options=complete)


def _defaults(builder: Callable[..., Any]) -> dict[str, object]:
    """Return the options of a network: its keyword-only arguments and what they are unless given."""
    parameters = inspect.signature(builder).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def _complete(name: str, defaults: Mapping[str, object], options: Mapping[str, object]) -> dict[str, object]:
    """Return all options of a network, the given ones and the defaults of the others."""
    for option in options:
        if option not in defaults:
            raise ValueError(f"{name} has no option {option!r}{nearest_names(option, defaults)}")
    return {**defaults, **options}
