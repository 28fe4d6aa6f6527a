"""Calling a model: with a tensor or a tokenised batch, whole or with one of its layers mixed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vicinal import _random
from vicinal._checks import nearest_names
from vicinal._typing import Batch, Model, Plan

F = TypeVar("F", bound=Callable[..., Any])


def call(model: Model, x: Batch) -> Tensor:
    """Return the model's logits; labels are never passed, since float labels change an HF model's loss."""
    if isinstance(x, Mapping) and "labels" in x:
        raise ValueError("x holds 'labels': take them out of the batch and pass them as y")
    output = model(**x) if isinstance(x, Mapping) else model(x)
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", output)
    fields = [name for name in getattr(output, "_fields", ()) if name.startswith("aux")]
    # torchvision's Inception and GoogLeNet have them in training mode.
    if auxiliary := [name for name in fields if getattr(output, name) is not None]:
        raise ValueError(
            f"the model returns {', '.join(auxiliary)} beside its logits, and the heads that make them would get no "
            "gradient: build the model with aux_logits=False"
        )
    if not isinstance(logits, Tensor):
        several = isinstance(output, tuple | list)
        instead = (
            ": build it without auxiliary heads, or wrap it so that it returns its logits alone" if several else ""
        )
        raise TypeError(f"the model must return logits or an object with .logits, got {type(output).__name__}{instead}")
    return logits


def untraced(function: F) -> F:
    """Keep a function out of compiled graphs: what is drawn, or tracked by sample, is the host's business."""
    apart = torch._disable_dynamo(function)  # type: ignore[attr-defined]  # unlike torch.compiler.disable it imports the compiler when it is needed

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return apart(*args, **kwargs) if torch.compiler.is_compiling() else function(*args, **kwargs)

    return run  # type: ignore[return-value]


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64; Apple's GPUs do not."""
    try:
        return torch.empty(0, dtype=torch.float64, device=device).dtype == torch.float64
    except (TypeError, RuntimeError):
        return False


def at_full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which autocast rounds nothing on a device."""
    kind = device.type
    rounds = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if rounds else nullcontext()


def check_even(model: Model, forwards: Callable[[bool], set[int]]) -> None:
    """Refuse chance to decide how often the model runs where each process draws for itself and waits for the others.

    They wait in every forward of a sharded model, of SyncBatchNorm, and of DistributedDataParallel for its buffers.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    sharded = any(kind.__name__ in _SHARDED for module in modules for kind in type(module).__mro__)
    waits = any(isinstance(module, nn.SyncBatchNorm) or _sends_buffers(module) for module in modules)
    counts = sorted(forwards(sharded)) if sharded or waits else []
    if len(counts) > 1:
        raise ValueError(
            f"this objective runs the model {' or '.join(map(str, counts))} times in a step, as each process draws, "
            "and processes that wait for each other in every forward (sharded weights, SyncBatchNorm, the buffers of "
            "DistributedDataParallel) would wait for ever: use split_forward=False, prob=1, or a RandomChoice among "
            "objectives that run it as often"
        )


_SHARDED = ("FSDPModule", "FullyShardedDataParallel")


def _sends_buffers(module: nn.Module) -> bool:
    if not isinstance(module, nn.parallel.DistributedDataParallel) or not module.broadcast_buffers:
        return False
    return next(module.module.buffers(), None) is not None


def plain(x: object) -> Any:
    """Return tensors of a subclass that only marks what they hold (fastai's `TensorImage`) as the tensors they are.

    Such subclasses refuse to be computed with others. Those that hold their values elsewhere stay.
    """
    if isinstance(x, Mapping):
        return {name: plain(t) for name, t in x.items()} if any(plain(t) is not t for t in x.values()) else x
    if not isinstance(x, Tensor) or type(x) in (Tensor, nn.Parameter):
        return x
    marked = type(x).__torch_dispatch__ is Tensor.__torch_dispatch__ and not isinstance(x, nn.Parameter)
    return x.as_subclass(Tensor) if marked else x


def n_rows(x: Batch) -> int:
    """Return the number of rows in the batch."""
    if not isinstance(x, Mapping):
        return len(x)
    sizes = {name: len(t) for name, t in x.items() if isinstance(t, Tensor) and t.ndim}
    rows = max(sizes.values(), default=0)
    if not set(sizes.values()) <= {1, rows}:  # one row stands for all: position_ids may be [1, L]
        raise ValueError(f"the tensors of x must have the same number of rows, got {sizes}")
    return rows


def rows_of(x: Batch, index: Tensor) -> Batch:
    """Return the rows that `index` names; what stands for all rows stays single."""
    if not isinstance(x, Mapping):
        return x[index.to(x.device)]
    rows = n_rows(x)

    def of(t: Tensor) -> Tensor:
        return t[index.to(t.device)] if isinstance(t, Tensor) and t.ndim and len(t) == rows else t

    return {name: of(t) for name, t in x.items()}


def same_rows(n: int, y: Tensor) -> int:
    """Return `n`, the rows of x, if y has as many."""
    if n != len(y):
        raise ValueError(f"x and y must have the same number of rows, got {n} and {len(y)}")
    return n


def joined(first: Batch, second: Batch) -> Batch:
    """Return the rows of both batches, one after the other; what stands for all rows stays single."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return torch.cat([first, second])  # type: ignore[list-item]  # both are tensors
    rows = n_rows(first)

    def both(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b]) if isinstance(a, Tensor) and a.ndim and len(a) == rows else a

    return {name: both(t, second[name]) for name, t in first.items()}


def mixed_input(x: Batch, inputs: Sequence[str] = ()) -> Tensor:
    """Return the one floating tensor of the batch: what input mixing mixes. Where `inputs` names several, the first."""
    names = _floating_names(x, inputs)
    return x[names[0]] if isinstance(x, Mapping) else _floating(x)


def with_input(x: Batch, value: Tensor, inputs: Sequence[str] = ()) -> Batch:
    """Return the batch with another tensor in place of its `mixed_input`."""
    names = _floating_names(x, inputs)
    return {**x, names[0]: value} if isinstance(x, Mapping) else value


def image_tensor(x: Batch, method: str, inputs: Sequence[str] = ()) -> Tensor:
    """Return the `mixed_input` of the batch, which must be images with height and width last."""
    image = mixed_input(x, inputs)
    if image.ndim < 3:
        raise ValueError(f"{method} needs images [B, …, H, W], got {list(image.shape)}: use Mixup")
    if image.ndim == 4 and image.shape[-1] in (1, 3) and image.shape[1] == image.shape[2] > 4:
        # As Keras has them. Boxes would be cut out of the channels, and nothing would show it.
        raise ValueError(
            f"{method} needs images [B, …, H, W], got {list(image.shape)}, whose channels are last: "
            "use channels first, x.movedim(-1, 1)"
        )
    return image


def map_floating(x: Batch, mix: Callable[[Tensor], Tensor], inputs: Sequence[str] = ()) -> Batch:
    """Return the batch with its one floating tensor mixed, or those that `inputs` names."""
    names = _floating_names(x, inputs)
    return {**x, **{name: mix(x[name]) for name in names}} if isinstance(x, Mapping) else mix(_floating(x))


def with_shared_masks(x: Batch, plan: Plan) -> Batch:
    """Return the batch in which a row attends to all that any of its sources has: the union of their masks.

    Otherwise the tail of a longer partner would be masked while its label counts.
    """
    if not isinstance(x, Mapping):
        return x
    names = [name for name in _MASKS if isinstance(x.get(name), Tensor) and len(x[name]) == len(plan.partners)]
    return {**x, **{name: _union(x[name], plan) for name in names}}


_MASKS = ("attention_mask", "pixel_mask")


def _union(mask: Tensor, plan: Plan) -> Tensor:
    counts = (plan.weights > 0).to(mask.device)
    sources = mask[plan.partners.to(mask.device)]  # [B, k, …]
    return (sources * counts.view(*counts.shape, *[1] * (mask.ndim - 1)).to(mask.dtype)).amax(1)


def laid_out_like(x: Tensor, mixed: Tensor) -> Tensor:
    """Return `mixed` in the memory format of `x`: channels-last images stay channels-last."""
    for ndim, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if x.ndim == ndim and not x.is_contiguous() and x.is_contiguous(memory_format=last):
            return mixed.contiguous(memory_format=last)
    return mixed


def unwrap(model: Model) -> nn.Module:
    """Return the user's module inside DistributedDataParallel and compiled wrappers."""
    while True:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module for its layers to be mixed, got {type(model).__name__}")
        if isinstance(model, nn.DataParallel):
            raise ValueError(
                "nn.DataParallel copies the model in every step, so its layers cannot be mixed: "
                "use DistributedDataParallel"
            )
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model.get_submodule("_orig_mod")
        else:
            return model


def locate(model: Model, name: str) -> tuple[nn.Module, str]:
    """Return the parent of the submodule called `name`, and the key it has there."""
    parent, key = unwrap(model), ""
    for depth, part in enumerate(parts := name.split(".")):
        if part not in parent._modules or parent._modules[part] is None:
            known = [n.replace("_orig_mod.", "") for n, _ in unwrap(model).named_modules() if n]
            raise ValueError(f"the model has no layer {name!r}{nearest_names(name, known)}")
        key = part
        if depth < len(parts) - 1:
            parent = unwrap(parent.get_submodule(part))
    return parent, key


@contextmanager
def mixed_at(
    model: Model, name: str, combine: Callable[[Tensor], Tensor], *, inputs: bool = False, axis: int = 0
) -> Iterator[None]:
    """Mix the output of the submodule `name` (or its first input) for one forward within this context.

    The submodule is replaced in its parent, not hooked: hooks registered at call time are silently skipped
    once a model is compiled, and give silently wrong gradients under reentrant checkpointing. `axis` is the one that
    holds the rows.
    """
    mix = combine if axis == 0 else lambda t: combine(t.transpose(0, axis)).transpose(0, axis)
    with _replaced(model, name, mix, inputs=inputs) as layer:
        yield
    if layer.runs != 1:
        raise ValueError(
            f"the layer {name!r} ran {layer.runs} times in one forward, so it cannot be mixed: "
            "choose a layer that runs exactly once"
        )


@contextmanager
def _replaced(
    model: Model, name: str, combine: Callable[[Tensor], Tensor], *, inputs: bool = False
) -> Iterator[_MixedLayer]:
    parent, key = locate(model, name)
    original = parent.get_submodule(key)
    if isinstance(original, nn.ModuleList | nn.ModuleDict) and type(original).forward is nn.Module.forward:
        kind, members = type(original).__name__, list(original._modules)
        raise ValueError(f"{name!r} is an nn.{kind}, which is not run itself: choose one of {members} in it")

    def mixed(layer: nn.Module) -> _MixedLayer:
        return _MixedLayer(layer, name, combine, inputs=inputs, gradients=torch.is_grad_enabled())

    parent._modules[key], layer = _mixed_at_end(original, mixed)
    try:
        yield layer
    finally:
        parent._modules[key] = original


def _mixed_at_end(layer: nn.Module, mixed: Callable[[nn.Module], _MixedLayer]) -> tuple[nn.Module, _MixedLayer]:
    """Return what stands in for a layer, and the part of it that mixes.

    A plain `nn.Sequential` stays one, with its last step mixed: models iterate over it as well as call it (timm does to
    checkpoint its blocks).
    """
    if type(layer).forward is not nn.Sequential.forward or not layer._modules:
        stand_in = mixed(layer)
        return stand_in, stand_in
    *_, last = layer._modules
    container = copy.copy(layer)
    container._modules = dict(layer._modules)
    container._modules[last], stand_in = _mixed_at_end(layer.get_submodule(last), mixed)
    return container, stand_in


def row_axes(model: Model, x: Batch, names: Sequence[str], *, group: int = 1) -> dict[str, int]:
    """Return which axis of each layer's output holds the rows of the batch: the second where time comes first."""
    every = layouts(model, x, names, group=group)
    return {name: _the_axis(name, layout) for name, layout in every.items()}


class Layout(NamedTuple):
    """How a layer's output is laid out."""

    axis: int = 0
    """The axis that holds the rows; -1 where no axis grows with them."""
    ndim: int = 0
    """The number of axes; 0 where the layer was not seen to run."""
    used: bool = True
    """Whether the logits depend on it: on the first tensor where the layer returns several."""


def layouts(model: Model, x: Batch, names: Sequence[str], *, group: int = 1) -> dict[str, Layout]:
    """Return the layout of each layer's output.

    Sizes alone do not tell which axis holds the rows, since a batch may have as many rows as a text has tokens. So the
    model runs twice, in eval mode, on the first sample (`group` rows) repeated two and three times: the axis that grows
    is the one. The answer is kept for each layer, and asked for all of `names` at once, the same on every rank.
    """
    module = unwrap(model)
    layers = {name: parent.get_submodule(key) for name in names for parent, key in [locate(model, name)]}
    if any(layer not in _LAYOUTS for layer in layers.values()):
        first = torch.arange(group, device="cpu")
        two, three = (rows_of(x, first.repeat(n)) for n in (2, 3))
        (logits, few), (longer, more) = (_observed(module, rows, names) for rows in (two, three))
        if logits.shape == longer.shape:
            raise ValueError(
                f"the model returns logits {list(logits.shape)} for two rows of x as for three, so its rows are not on "
                "the first axis: give the model inputs [B, …], and let it move the axes itself"
            )
        for name, layer in layers.items():
            if name in few and name in more:
                sizes = zip(few[name], more[name], strict=True)
                axis = next((axis for axis, (a, b) in enumerate(sizes) if a != b), -1)
                _LAYOUTS[layer] = Layout(axis, len(few[name]), _is_used(module, two, name, logits))
    return {name: _LAYOUTS.get(layer, Layout()) for name, layer in layers.items()}


_LAYOUTS: WeakKeyDictionary[nn.Module, Layout] = WeakKeyDictionary()


def _the_axis(name: str, layout: Layout) -> int:
    if layout.axis < 0:
        raise ValueError(
            f"the output of the layer {name!r} is the same for any number of rows, so there are none to mix: "
            "choose a layer that computes something of each sample"
        )
    if not layout.used:
        raise ValueError(
            f"the logits do not depend on what the layer {name!r} returns (on the first tensor, where it returns "
            "several, as an LSTM does), so that labels alone would be mixed: choose another layer"
        )
    return layout.axis


def check_head(model: Model, x: Batch, name: str, *, group: int = 1) -> None:
    """Refuse a head past which the logits see the samples: mixing what it receives would mix labels, not logits.

    With zeros for all that the head receives, two different samples (`group` rows each) have the same logits.
    """
    module = unwrap(model)
    parent, key = locate(model, name)
    head = parent.get_submodule(key)
    if head in _CHECKED_HEADS or n_rows(x) < 2 * group:
        return
    pair = rows_of(x, torch.arange(2 * group, device="cpu"))
    with torch.no_grad():
        logits = _probed(module, pair, {name: torch.zeros_like}, inputs=True)
    first, second = logits.reshape(2, -1)
    if not torch.equal(first, second):
        raise ValueError(
            f"the logits depend on more than what the layer {name!r} receives, so that mixing there would mix labels "
            "while logits stay as they are: mix another layer by its name with ManifoldMixup"
        )
    _CHECKED_HEADS.add(head)


_CHECKED_HEADS: WeakSet[nn.Module] = WeakSet()


def _observed(module: nn.Module, x: Batch, names: Sequence[str]) -> tuple[Tensor, dict[str, torch.Size]]:
    """Return the logits, and the shape of each layer's output (of the first tensor of a tuple)."""
    shapes: dict[str, torch.Size] = {}

    def note(name: str) -> Callable[[Tensor], Tensor]:
        def noted(output: Tensor) -> Tensor:
            shapes.setdefault(name, output.shape)
            return output

        return noted

    with torch.no_grad():
        return _probed(module, x, {name: note(name) for name in names}), shapes


def _is_used(module: nn.Module, x: Batch, name: str, logits: Tensor) -> bool:
    """Return whether the logits change with the layer's output or, since a head may hold zeros, come from it."""

    def disturbed(output: Tensor) -> Tensor:
        return output + torch.arange(output.numel(), device=output.device).cos().view(output.shape).to(output)

    with torch.no_grad():
        if not torch.equal(_probed(module, x, {name: disturbed}), logits):
            return True
    leaves: list[Tensor] = []

    def cut(output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    with torch.enable_grad():
        again = _probed(module, x, {name: cut})
        return again.requires_grad and torch.autograd.grad(again.sum(), leaves, allow_unused=True)[0] is not None


def _probed(
    module: nn.Module, x: Batch, changes: Mapping[str, Callable[[Tensor], Tensor]], *, inputs: bool = False
) -> Tensor:
    """Return the logits in eval mode with changes to what layers return (or receive); the model stays as it is."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack, _random.restored_globals(), evaluating(module):
        for name in sorted(changes, key=lambda n: -n.count(".")):  # what is inside another comes first
            stack.enter_context(_replaced(module, name, changes[name], inputs=inputs))
        torch.backends.mha.set_fastpath_enabled(False)  # it would pass by the layers inside
        try:
            return call(module, x)
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every submodule in eval mode, and back in the mode it was in."""
    training = [m for m in module.modules() if m.training]
    try:
        for m in training:
            m.training = False
        yield
    finally:
        for m in training:
            m.training = True


def mixed_second_half(combine: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return what mixes the second half of the rows, and leaves the first, clean half alone."""

    def mix(states: Tensor) -> Tensor:
        clean, other = states.chunk(2)
        return torch.cat([clean, combine(other)])

    return mix


class _MixedLayer(nn.Module):
    """Stands in for a layer during one forward and mixes what it returns (or receives)."""

    def __init__(
        self, layer: nn.Module, name: str, combine: Callable[[Tensor], Tensor], *, inputs: bool, gradients: bool
    ) -> None:
        super().__init__()
        self.layer = layer
        self.training = layer.training
        self.name, self.combine, self.inputs, self.gradients = name, combine, inputs, gradients
        self.runs = 0

    def forward(self, *args: Any, **kwargs: Any) -> object:
        if self.gradients and not torch.is_grad_enabled():
            raise ValueError(
                f"the layer {self.name!r} runs without gradients inside a reentrant checkpoint, which would "
                "give wrong gradients: use checkpoint(..., use_reentrant=False)"
            )
        self.runs += 1
        if self.inputs:
            return self.layer(self.combine(args[0]), *args[1:], **kwargs)
        output = self.layer(*args, **kwargs)
        if isinstance(output, Tensor):
            return self.combine(output)
        if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
            first = self.combine(output[0])
            if isinstance(output, list):  # GPT's blocks return one
                return [first, *output[1:]]
            # A named tuple is rebuilt by its fields, a plain one from an iterable.
            return type(output)(first, *output[1:]) if hasattr(output, "_fields") else (first, *output[1:])
        if isinstance(output, dict) and output and isinstance(output[first := next(iter(output))], Tensor):
            result = copy.copy(output)
            result[first] = self.combine(output[first])
            return result
        raise ValueError(
            f"the layer {self.name!r} must return a tensor, or a tuple, list or dict that starts with one, "
            f"got {type(output).__name__}: choose another layer"
        )

    def __getattr__(self, name: str) -> Any:
        # Parents may read attributes of the layer they know (`self.classifier.weight`).
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)


def _floating(x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor or a mapping of tensors, got {type(x).__name__}")
    if not x.is_floating_point():
        raise ValueError(
            f"x must be a floating tensor to be mixed at the input, got {x.dtype}: turn uint8 images into "
            "floats first, and mix token ids at a layer (SequenceMixup, ManifoldMixup)"
        )
    return x


def _floating_names(x: Batch, inputs: Sequence[str]) -> Sequence[str]:
    """Return the names of the tensors to mix; none of a batch that is one tensor."""
    if not isinstance(x, Mapping):
        if inputs:
            raise ValueError(f"inputs={tuple(inputs)} needs a mapping of tensors, and x is one tensor: leave it out")
        return ()
    names = [name for name, t in x.items() if isinstance(t, Tensor) and t.is_floating_point()]
    if not inputs and len(names) != 1:
        at_layer = "mix token ids at a layer (SequenceMixup, ManifoldMixup)"
        raise ValueError(
            f"x must hold exactly one floating tensor to be mixed at the input, got {names or 'none'} among "
            f"{list(x)}: {f'name them, inputs={tuple(names)}' if names else at_layer}"
        )
    if inputs and set(inputs) != set(names):
        odd = sorted(set(inputs) ^ set(names))[0]
        what = "is floating and would stay unmixed" if odd in names else "is not a floating tensor of x"
        raise ValueError(f"inputs must name every floating tensor of x, {names}, got {tuple(inputs)}: {odd!r} {what}")
    return inputs or names
