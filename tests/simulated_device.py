"""A device that computes on the CPU as a GPU would: it refuses mixed devices and notes what makes a host wait.

Importing this registers the device for the whole process, so tests run it in one of their own (`tests.on_device`).

>>> device = Device()                                   # doctest: +SKIP
>>> with device:                                        # doctest: +SKIP
...     loss = objective(on_device(model), device.put(x), device.put(y))
>>> device.waits, device.copies                         # doctest: +SKIP
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

__all__ = ["NAME", "Device", "Remote", "on_device"]

_setup_privateuseone_for_python_backend("simulated")
torch.backends.cudnn.enabled = False

aten = torch.ops.aten
NAME = torch.device("simulated", 0)
_SOURCE = "/src/vicinal/"

#: Operations after which CUDA's host needs to know something of the result.
_WAITS = {
    aten._local_scalar_dense.default: "item",
    aten.is_nonzero.default: "item",
    aten.equal.default: "equal",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.bincount.default: "bincount",
    aten.histc.default: "histc",
    aten._unique2.default: "unique",
    aten.unique_dim.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave",
    aten._linalg_eigh.default: "eigh",
}
_INDEXING = (
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
)
_COPIES = (aten.copy_.default, aten.copy.default)


class Remote(Tensor):
    """A tensor on the device: a shell that says so, around a tensor of the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Remote:
        return Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=NAME,
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"Remote({self.inner})"

    def tolist(self) -> Any:
        _active().note("tolist")
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _active().run(function, args, kwargs or {})


class Device(TorchDispatchMode):
    """What happens on the device within this context.

    Parameters
    ----------
    has_float64
        False for one that has no float64, as Apple's GPUs.
    """

    def __init__(self, *, has_float64: bool = True) -> None:
        super().__init__()
        self.has_float64 = has_float64
        self.waits: list[str] = []
        """What made the host wait: the kind of event and the line of the library, `"item losses.py:268"`."""
        self.copies: list[str] = []
        """The copies to the device for which nobody waited."""
        self.kernels = 0

    def put(self, t: Any) -> Any:
        """Return tensors, or a mapping of them, on the device; this is no event."""
        return {k: Remote(v.detach().clone()) for k, v in t.items()} if isinstance(t, dict) else Remote(t.clone())

    def clear(self) -> None:
        """Forget the events so far."""
        self.waits, self.copies, self.kernels = [], [], 0

    def note(self, kind: str, *, waits: bool = True) -> None:
        frame, place = sys._getframe(1), "elsewhere"
        while frame is not None:
            if _SOURCE in frame.f_code.co_filename:
                place = f"{frame.f_code.co_filename.split(_SOURCE)[1]}:{frame.f_lineno}"
                break
            frame = frame.f_back  # type: ignore[assignment]
        (self.waits if waits else self.copies).append(f"{kind} {place}")

    def __enter__(self) -> Device:
        _STACK.append(self)
        self._lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) is a copy here too
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: object) -> None:
        _STACK.pop()
        torch._C._set_only_lift_cpu_tensors(self._lifted)
        super().__exit__(*error)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(function, args, kwargs or {})

    def run(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compute on the CPU, after the checks that a device makes."""
        flat = tree_flatten((args, kwargs))[0]
        remote = [t for t in flat if isinstance(t, Remote)]
        local = [t for t in flat if isinstance(t, Tensor) and not isinstance(t, Remote)]
        asked = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        there = bool(remote) if asked is None else asked.type == NAME.type
        if function is aten._fused_sdp_choice.default:
            return 0
        inner_args, inner_kwargs = tree_map_only(Remote, lambda t: t.inner, (args, kwargs))
        if asked is not None:
            inner_kwargs = {**inner_kwargs, "device": torch.device("cpu") if there else asked}
        if function is aten._to_copy.default:
            self._note_copy(bool(remote), there, kwargs.get("non_blocking", False), (remote or local)[0])
            inner_kwargs = {k: v for k, v in inner_kwargs.items() if k not in ("non_blocking", "pin_memory")}
        elif function in _COPIES:
            self._note_copy(isinstance(args[1], Remote), isinstance(args[0], Remote), bool(args[2:3]), args[1])
        elif remote:
            self._check(function, args, local)
        with _disable_current_modes():
            result = function(*inner_args, **inner_kwargs)
        if function is aten.copy_.default:
            return args[0]
        return self._wrapped(function, result, remote) if there else result

    def _note_copy(self, from_there: bool, to_there: bool, queued: bool, t: Tensor) -> None:
        if from_there != to_there:
            kind = f"to {'device' if to_there else 'host'} {str(t.dtype)[6:]}{list(t.shape)}"
            self.note(kind, waits=not (to_there and queued))

    def _check(self, function: Any, args: Any, local: list[Tensor]) -> None:
        self.kernels += 1
        if function in _WAITS:
            self.note(_WAITS[function])
        if function in _INDEXING:
            if not isinstance(args[0], Remote):
                raise RuntimeError("indices should be on cpu, as the indexed tensor is")
            for index in args[1]:
                if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
                    self.note("index by mask")
                if isinstance(index, Tensor) and not isinstance(index, Remote):
                    self.note(f"to device index{list(index.shape)}")
            local = [t for t in args[2:3] if isinstance(t, Tensor) and not isinstance(t, Remote)]
        if any(t.ndim for t in local):
            shapes = [list(t.shape) for t in local if t.ndim]
            raise RuntimeError(f"expected all tensors on one device, but {function} got {shapes} of the CPU")

    def _wrapped(self, function: Any, result: Any, remote: list[Remote]) -> Any:
        known = {id(t.inner): t for t in remote} if function._schema.is_mutable else {}

        def wrap(t: Tensor) -> Remote:
            if t.dtype == torch.float64 and not self.has_float64:
                raise TypeError(f"this device does not support float64 ({function})")
            return known[id(t)] if id(t) in known else Remote(t)

        return tree_map_only(Tensor, wrap, result)


def on_device(module: nn.Module) -> nn.Module:
    """Put a module's parameters and buffers on the device, in place."""
    for part in module.modules():
        for name, p in part._parameters.items():
            if p is not None:
                part._parameters[name] = nn.Parameter(Remote(p.detach().clone()), requires_grad=p.requires_grad)
        for name, b in part._buffers.items():
            if b is not None:
                part._buffers[name] = Remote(b.detach().clone())
    return module


def _active() -> Device:
    return _STACK[-1]


_STACK: list[Device] = [Device()]
