"""Weights that a network of images starts from: torchvision's, timm's, or those of a file.

Nothing is unpickled: a file is safetensors, or a state dict that `torch.load(…, weights_only=True)` takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vicinal._atomic import DamagedFileError, read_tensors
from vicinal._checks import Argument, ArgumentError, Sentence, require
from vicinal.objectives.transformers import head_name

#: What stands for the weights that the network's own library publishes.
DEFAULT = "default"
#: What torchvision calls the networks that it has weights for.
_TORCHVISION = {
    **{name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101")},
    "resnext50": "resnext50_32x4d",
    "vgg11": "vgg11_bn",
    "vgg16": "vgg16_bn",
    "mobilenetv2": "mobilenet_v2",
    "shufflenetv2": "shufflenet_v2_x1_0",
}
#: Mean and standard deviation of ImageNet's channels, which torchvision's weights expect.
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: What checkpoints call the weights among other things.
_WRAPPED = ("state_dict", "model", "model_state_dict")


def pretrained_weights(name: str, source: str) -> dict[str, Tensor]:
    """Return pretrained weights of a network by name, on the CPU.

    `source` is `"default"` for those of torchvision or timm, or a file: `.safetensors`, or what `torch.save` wrote.

    Returns
    -------
    dict[str, Tensor]
        The weights by name.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(nn.Linear(2, 3).state_dict(), f"{folder}/weights.pt")
    ...     weights = pretrained_weights("resnet18", f"{folder}/weights.pt")
    >>> {name: list(tensor.shape) for name, tensor in weights.items()}
    {'weight': [3, 2], 'bias': [3]}
    """
    if source != DEFAULT:
        return _from_file(Path(source).expanduser())
    if not name.startswith("timm:") and name not in _TORCHVISION:
        known = ", ".join(sorted(_TORCHVISION))
        what = f": there are no published weights of {name!r}, only of {known} and timm:NAME; pass a file of weights, "
        raise ValueError(Sentence(Argument("pretrained"), what, Argument("pretrained", "FILE")))
    try:
        return _published(name)
    except (OSError, RuntimeError, ValueError) as error:
        sentence = f"the published weights of {name!r} cannot be fetched here: "
        file = "pass a file of weights, ", Argument("pretrained", "FILE")
        raise ValueError(Sentence(sentence, *file)) from error


def at_hand(name: str) -> bool:
    """Return whether torchvision's weights of a network are on this machine, so that nothing is downloaded.

    >>> at_hand("lenet")  # nobody publishes any
    False
    """
    if name not in _TORCHVISION:
        return False
    url: str = require("torchvision.models", "train").get_model_weights(_TORCHVISION[name]).DEFAULT.url
    return (Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]).is_file()


def pretrained_statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and the standard deviation of red, green and blue in [0, 1] that the weights expect.

    >>> pretrained_statistics("resnet50")[0]
    (0.485, 0.456, 0.406)
    """
    if name.startswith("timm:"):
        settings = require("timm.models", "timm").get_pretrained_cfg(name.removeprefix("timm:"))
        if settings is not None:
            return tuple(settings.mean), tuple(settings.std)
    return _IMAGENET


def load_pretrained(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> str:
    """Put weights into a network whose head may have other classes; return what was taken, in a sentence.

    The head, the last linear layer, stays new where its shape differs. A first convolution for grey images takes the
    sum of that for red, green and blue, which is what a grey image as three equal channels would give. Any other shape
    that differs is an error; weights that are missing or that the network does not have are named. `source` is what the
    sentence calls the weights.

    Returns
    -------
    str
        What was taken, in a sentence.

    Examples
    --------
    >>> donor, model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5)), nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    >>> load_pretrained(model, donor.state_dict(), "the donor")
    'pretrained: 2 of 4 arrays of weights from the donor; new, since the classes are others: 1.weight, 1.bias'
    """
    state = model.state_dict()
    given = {name.removeprefix("module."): t for name, t in weights.items()}  # of DistributedDataParallel
    head = head_name(model)
    taken: dict[str, Tensor] = {}
    for name, tensor in state.items():
        other = given.get(name)
        if other is not None and other.shape != tensor.shape and not name.startswith(f"{head}."):
            other = _adapted(name, other, tensor, source)
        if other is not None and other.shape == tensor.shape:
            taken[name] = other.to(tensor.dtype)
    new = [name for name in state if name in given and name not in taken]
    missing = [name for name in state if name not in given and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in given if name not in state]
    if 2 * sum(state[name].numel() for name in taken) < sum(t.numel() for n, t in state.items() if n not in new):
        raise ArgumentError(
            "pretrained", source, f"weights of {type(model).__name__}, and those miss {_some(missing)}; they have "
            f"{_some(unexpected)}",
        )  # fmt: skip
    model.load_state_dict(taken, strict=False)
    parts = [f"{len(taken)} of {len(state)} arrays of weights from {source}"]
    if new:
        parts.append(f"new, since the classes are others: {_some(new)}")
    parts += [f"missing: {_some(missing)}"] if missing else []
    parts += [f"unexpected: {_some(unexpected)}"] if unexpected else []
    return f"pretrained: {'; '.join(parts)}"


def _adapted(name: str, given: Tensor, here: Tensor, source: str) -> Tensor:
    """Return the weights of a first convolution for another number of channels; other shapes are an error."""
    if (
        given.ndim == here.ndim == 4
        and given.shape[1] == 3
        and here.shape[1] == 1
        and given.shape[2:] == here.shape[2:]
    ):
        return given.sum(dim=1, keepdim=True)
    shapes = f"{name} is {list(given.shape)} there and {list(here.shape)} here"
    hint = ""
    if given.ndim == 4 and given.shape[2:] != here.shape[2:]:
        hint = ": images above 64 px have the form of the network that was pretrained, pass "
    parts = (hint, Argument("image_size", 224)) if hint else ()
    raise ValueError(Sentence(f"the weights of {source} do not fit: {shapes}", *parts))


def _published(name: str) -> dict[str, Tensor]:
    if name.startswith("timm:"):
        model: nn.Module = require("timm", "timm").create_model(name.removeprefix("timm:"), pretrained=True)
        return model.state_dict()
    chosen = require("torchvision.models", "train").get_model_weights(_TORCHVISION[name]).DEFAULT
    weights: dict[str, Tensor] = chosen.get_state_dict(progress=False, check_hash=True, weights_only=True)
    return weights


def _from_file(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ArgumentError("pretrained", str(path), f"a file of weights, or {DEFAULT!r}")
    if path.suffix == ".safetensors":
        return read_tensors(path)[0]
    try:
        loaded: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a file that is no checkpoint raises is up to pickle
        raise DamagedFileError(f"{path} holds no weights that can be read without running code") from error
    for name in _WRAPPED:
        loaded = loaded.get(name, loaded) if isinstance(loaded, Mapping) else loaded
    if not isinstance(loaded, Mapping) or not loaded or not all(isinstance(t, Tensor) for t in loaded.values()):
        raise DamagedFileError(f"{path} holds no weights by name: save a state_dict, as safetensors or by torch.save")
    return {str(key): t for key, t in loaded.items()}


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown or "nothing"
