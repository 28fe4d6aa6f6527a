"""Every random draw of the library, from a passed generator or else torch's global one.

All draws are made on the CPU in float64, so that a seed means the same on every device.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def beta(alpha: float, n: int, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Draw `n` values of λ ~ Beta(α, α) in float64; α = 0 gives 1 (no mixing), α = inf gives ½.

    λ = σ(log G₁ − log G₂) with two gamma variables in log space. Float32 gammas tie at their floor for
    small α: at α = 0.01, 18 % of λ would land in (0.4, 0.6) instead of 0.4 %.
    """
    return dirichlet(alpha, 2, n, generator=generator)[:, 0]


def lam(alpha: float, n: int, *, per_sample: bool = False, generator: torch.Generator | None = None) -> Tensor:
    """Draw the λ of a batch of n rows, float32 `[n]`: one for all, or one per sample."""
    return beta(alpha, n if per_sample else 1, generator=generator).float().expand(n)


def tosses(prob: float, n: int, *, per_sample: bool = False, generator: torch.Generator | None = None) -> Tensor:
    """Toss which of n rows are mixed, bool `[n]`: all or none, or each by itself; nothing is drawn for `prob=1`."""
    if prob == 1:
        return torch.ones(n, dtype=torch.bool, device="cpu")
    return coin(prob, n if per_sample else 1, generator=generator).expand(n)


def dirichlet(alpha: float, k: int, n: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw `n` weight vectors `[n, k]` ~ Dirichlet(α, …, α) in float64; α = 0 puts all on the first."""
    if alpha == 0:
        return torch.nn.functional.one_hot(torch.zeros(n, dtype=torch.int64, device="cpu"), k).double()
    if alpha == math.inf:
        return torch.full((n, k), 1 / k, dtype=torch.float64, device="cpu")
    # Below 1e-300 the logarithms of all weights would be -inf; there λ has long been 0 or 1.
    return _log_gamma(max(alpha, 1e-300), (n, k), generator).softmax(dim=1)


def _log_gamma(alpha: float, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Log of G(α) = G(α + 1) · U^(1/α) (Marsaglia & Tsang 2000), which never underflows."""
    gamma = torch._standard_gamma(_filled(alpha + 1, shape), generator=generator)
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator, device="cpu")  # in [0, 1): take 1 - u
    uniform = uniform.neg_().log1p_()
    return gamma.log_().add_(uniform if alpha == 1 else uniform.div_(alpha))


@functools.lru_cache(maxsize=8)  # a training draws for batches of one size, or two
def _filled(value: float, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of one value, which is not to be changed."""
    return torch.full(shape, value, dtype=torch.float64, device="cpu")


def permutation(n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.int64) -> Tensor:
    """Draw a uniform permutation of 0 … n-1, the same in every type; fixed points are allowed."""
    return torch.randperm(n, generator=generator, dtype=dtype, device="cpu")


def matching(n: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw a random matching: π(π(i)) = i, and an odd sample is its own partner."""
    order = torch.randperm(n, generator=generator, device="cpu")
    partner = torch.arange(n, device="cpu")
    half = n // 2
    first, second = order[:half], order[half : 2 * half]
    partner[first], partner[second] = second, first
    return partner


def within_class(labels: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw a uniform permutation that keeps every sample within its class."""
    shuffled = torch.randperm(len(labels), generator=generator, device="cpu")
    partner = torch.empty_like(shuffled)
    # Both orders list the classes one after the other, so they line up class by class.
    partner[labels.argsort(stable=True)] = shuffled[labels[shuffled].argsort(stable=True)]
    return partner


def resampler(seed: int) -> np.random.Generator:
    """Return a numpy generator of its own, for the resamples of an interval: the same seed, the same interval."""
    return np.random.default_rng(seed)


def coin(prob: float, n: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Toss `n` coins that come up True with probability `prob`."""
    return torch.rand(n, dtype=torch.float64, generator=generator, device="cpu") < prob


def categorical(probs: Sequence[float], *, generator: torch.Generator | None = None) -> int:
    """Draw one of 0 … len(probs)-1 with these probabilities."""
    edges = torch.tensor(probs, dtype=torch.float64, device="cpu").cumsum(0)
    draw = torch.rand(1, dtype=torch.float64, generator=generator, device="cpu") * edges[-1]
    return int(torch.searchsorted(edges, draw, right=True).clamp(max=len(probs) - 1))


def integers(high: int, n: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw `n` integers uniformly from 0 … high-1."""
    return torch.randint(high, (n,), generator=generator, device="cpu")


def normal_like(t: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw standard normal noise of the shape of `t`, on its device; the same numbers for every float type.

    They are float64's, rounded to float32 unless `t` is float64: float32's own draws are other numbers. Noise like
    pinned memory is pinned too.
    """
    return _noise(t, Tensor.normal_, generator)


def uniform_like(t: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw uniform numbers in [0, 1] of the shape of `t`, on its device; the same numbers for every float type."""
    return _noise(t, Tensor.uniform_, generator)


def _noise(t: Tensor, fill: Callable[..., Tensor], generator: torch.Generator | None) -> Tensor:
    """Return float64 draws in a float type of `t`, on its device; the host does not wait for the copy."""
    kept = torch.float64 if t.dtype == torch.float64 else torch.float32
    mapped = torch._C._functorch.is_functorch_wrapped_tensor(t)  # vmap cannot ask for the memory
    pinned = t.is_cuda or (t.is_cpu and not mapped and t.is_pinned())
    noise = torch.empty(t.shape, dtype=kept, device="cpu", pin_memory=pinned)
    flat, size = noise.view(-1), _NOISE_CHUNK
    # A buffer that stays in the cache halves the time. Normal numbers are made 16 at a time, so a rest has as many.
    ends = [*range(size, flat.numel() - 15, size), flat.numel()]
    buffer = torch.empty(min(size + 15, flat.numel()), dtype=torch.float64, device="cpu")
    for start, end in zip([0, *ends], ends, strict=False):
        flat[start:end] = fill(buffer[: end - start], generator=generator)
    return noise.to(t.device, non_blocking=True)


_NOISE_CHUNK = 2**16  # 512 kB; a multiple of 16


def seed_from(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on every part: the key of a draw, such as `("order", seed, epoch)`.

    >>> seed_from("order", 0, 1)
    5646508524910586312
    >>> seed_from("order", 0, 1) == seed_from("order", 1, 0)
    False
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little") >> 1


#: Asked before each step, and always answered the same.
_has_mps = functools.cache(torch.backends.mps.is_available)


def seed_globals(seed: int) -> None:
    """Seed the global generators of torch, Python and NumPy, for code that draws from them (dropout, transforms)."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed also asks every kind of device: 50 times slower
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if _has_mps():
        torch.mps.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # never drawn from here


def global_states() -> dict[str, object]:
    """Return the states of the global generators, as tensors and plain numbers that a checkpoint may hold."""
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    states: dict[str, object] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    states["numpy"] = (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest)
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_global_states(states: Mapping[str, Any]) -> None:
    """Give the global generators the states that `global_states` returned."""
    torch.set_rng_state(states["torch"].cpu())
    random.setstate(states["python"])
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *rest))  # noqa: NPY002
    if "cuda" in states and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
    if "mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"].cpu())


@contextmanager
def restored_globals() -> Iterator[None]:
    """Give the global generators back in the state they had before this context."""
    states = global_states()
    try:
        yield
    finally:
        set_global_states(states)
