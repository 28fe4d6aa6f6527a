"""Stratified splits: every class in the same proportions everywhere, from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from vicinal._checks import Argument, ArgumentError, Sentence, integer, number
from vicinal._random import permutation, seed_from

__all__ = [
    "PARTS",
    "Positions",
    "fold_numbers",
    "grouped_split",
    "ordered_split",
    "random_subset",
    "share_of",
    "split_positions",
    "stratified_split",
    "stratified_subset",
]

Labels = Sequence[int] | NDArray[np.int64]
#: Places of samples in their source.
Positions = NDArray[np.int64]

#: The splits, in the order in which everything lists them.
PARTS = ("train", "val", "test")

#: How often a random subset is drawn before it counts as hopeless that one has every class.
_REDRAWS = 1000


def stratified_split(labels: Labels, *, val: float | int, test: float | int, seed: int = 0) -> dict[str, list[int]]:
    """Split positions 0 … n-1 into train, val and test.

    Each class gives each split its share, rounded; of few samples the training set gets the first, the test set the
    second and the validation set the third.

    Parameters
    ----------
    labels
        The class number of each sample.
    val, test
        The share of all samples, in [0, 1), or their number if it is an integer.
    seed
        What the choice is drawn from.

    >>> {name: len(part) for name, part in stratified_split([0] * 10 + [1] * 10, val=0.2, test=0.2).items()}
    {'train': 12, 'val': 4, 'test': 4}
    """
    return {name: part.tolist() for name, part in split_positions(labels, val=val, test=test, seed=seed).items()}


def split_positions(labels: Labels, *, val: float | int, test: float | int, seed: int) -> dict[str, Positions]:
    """Return what `stratified_split` does as arrays: lists of many rows would take ten times the memory."""
    shares = {"val": share_of("val", val, len(labels)), "test": share_of("test", test, len(labels))}
    if sum(shares.values()) >= 1:
        both = Argument("val"), " and ", Argument("test")
        given = Argument("val", val), " and ", Argument("test", test)
        raise ValueError(Sentence(*both, " must leave samples to train on, got ", *given))
    parts: dict[str, list[Positions]] = {name: [] for name in PARTS}
    for members in _shuffled_classes(labels, seed, "split"):
        n = len(members)
        n_test = _rounded(shares["test"] * n, low=int(shares["test"] > 0), high=n - 1)
        n_val = _rounded(shares["val"] * n, low=int(shares["val"] > 0), high=n - 1 - n_test)
        parts["test"].append(members[:n_test])
        parts["val"].append(members[n_test : n_test + n_val])
        parts["train"].append(members[n_test + n_val :])
    return {name: np.sort(np.concatenate([np.zeros(0, np.int64), *members])) for name, members in parts.items()}


def grouped_split(
    labels: Labels, groups: Labels, *, val: float | int, test: float | int, seed: int = 0
) -> dict[str, Positions]:
    """Split positions 0 … n-1 into train, val and test with each group on one side.

    The groups are split as samples are, each with its most frequent class; so of groups of one sample each it is the
    same split. Shares are of groups, which with groups of different sizes are about those of samples.

    Parameters
    ----------
    labels, val, test, seed
        As in `stratified_split`; a number of samples counts as their share.
    groups
        The number of each sample's group.

    >>> parts = grouped_split([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3], val=0, test=0.5)
    >>> parts["train"].tolist(), parts["test"].tolist()
    ([2, 3, 4, 5], [0, 1, 6, 7])
    """
    y, (_, first, group) = np.asarray(labels), np.unique(np.asarray(groups), return_index=True, return_inverse=True)
    if len(first) == len(y):
        return split_positions(labels, val=val, test=test, seed=seed)
    counts = np.zeros((len(first), int(y.max()) + 1), np.int64)
    np.add.at(counts, (group, y), 1)
    order = np.argsort(first, kind="stable")  # groups as they come, so that the split does not depend on their numbers
    shares = {"val": share_of("val", val, len(y)), "test": share_of("test", test, len(y))}
    parts = split_positions(counts[order].argmax(axis=1), seed=seed, **shares)
    part_of_group = np.empty(len(first), np.int64)
    for k, name in enumerate(PARTS):
        part_of_group[order[parts[name]]] = k
    return {name: np.flatnonzero(part_of_group[group] == k) for k, name in enumerate(PARTS)}


def fold_numbers(labels: Labels, n: int, *, groups: Labels | None = None, seed: int = 0) -> Positions:
    """Return which of `n` folds each sample is in, 0 … n-1: every class in the same proportions, each group in one.

    Parameters
    ----------
    labels
        The class number of each sample.
    n
        How many folds.
    groups
        The number of each sample's group, if samples must stay together; a group counts as its most frequent class.
    seed
        What the choice is drawn from.

    >>> np.bincount(fold_numbers([0] * 6 + [1] * 3, 3)).tolist()
    [3, 3, 3]
    """
    y = np.asarray(labels, np.int64)
    _, first, group = np.unique(
        np.arange(len(y)) if groups is None else np.asarray(groups), return_index=True, return_inverse=True
    )
    # Groups as they come: their numbers may be hashes, which another process draws anew.
    group = np.argsort(np.argsort(first))[group]
    counts = np.zeros((len(first), int(y.max()) + 1), np.int64)
    np.add.at(counts, (group, y), 1)
    if len(counts) < integer("n", n, low=2):
        raise ArgumentError("n", n, f"at most {len(counts)}, the number of samples or groups")
    # Dealt out like cards, class after class, so that sizes differ by one at most.
    dealt = np.concatenate(_shuffled_classes(counts.argmax(axis=1), seed, "folds"))
    fold = np.empty(len(counts), np.int64)
    fold[dealt] = np.arange(len(dealt)) % n
    return fold[group]


def ordered_split(
    order: Sequence[float] | NDArray[np.float64], *, val: float | int, test: float | int
) -> dict[str, Positions]:
    """Split positions 0 … n-1 by an order such as time: the last are to test on, those before them to validate on.

    Parameters
    ----------
    order
        Where each sample stands; equal ones stay together, on the earlier side.
    val, test
        As in `stratified_split`.

    >>> {name: part.tolist() for name, part in ordered_split([3, 1, 2, 0], val=0.25, test=0.25).items()}
    {'train': [1, 3], 'val': [2], 'test': [0]}
    """
    at = np.asarray(order, np.float64)
    shares = {"val": share_of("val", val, len(at)), "test": share_of("test", test, len(at))}
    if sum(shares.values()) >= 1:
        raise ValueError(Sentence(Argument("val"), " and ", Argument("test"), " must leave samples to train on"))
    ranked = np.sort(at)
    n_test, n_val = (math.floor(shares[name] * len(at) + 0.5) for name in ("test", "val"))
    ends = [ranked[len(at) - n - 1] if n < len(at) else -np.inf for n in (n_test + n_val, n_test)]
    part = (at > ends[0]).astype(np.int64) + (at > ends[1])
    return {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)}


def stratified_subset(labels: Labels, size: int, *, seed: int = 0) -> list[int]:
    """Return `size` positions of 0 … n-1, with every class in its proportion and at least once.

    >>> stratified_subset([0, 0, 0, 0, 1, 1], 3)
    [2, 3, 5]
    """
    classes = _shuffled_classes(labels, seed, "subset")
    size = _subset_size(size, len(classes), len(labels))
    quotas = [max(1.0, size * len(members) / len(labels)) for members in classes]
    sizes = [math.floor(quota) for quota in quotas]
    while sum(sizes) < size:  # the largest remainder first
        able = [k for k, members in enumerate(classes) if sizes[k] < len(members)]
        sizes[max(able, key=lambda k: quotas[k] - sizes[k])] += 1
    while sum(sizes) > size:  # the minimum of one gave out too many: the largest class gives back
        sizes[max(range(len(sizes)), key=lambda k: sizes[k])] -= 1
    return sorted(i for members, n in zip(classes, sizes, strict=True) for i in members[:n].tolist())


def random_subset(labels: Labels, size: int, *, seed: int = 0) -> list[int]:
    """Return `size` positions of 0 … n-1, each subset as likely as any other that has every class.

    A class that would be left out, which no classifier could learn, is drawn again: the whole subset is.

    >>> random_subset([0, 0, 0, 0, 1, 1], 3)
    [0, 2, 5]
    """
    classes = len(np.unique(np.asarray(labels)))
    size = _subset_size(size, classes, len(labels))
    generator = torch.Generator().manual_seed(seed_from("random subset", seed))
    for _ in range(_REDRAWS):
        chosen: list[int] = sorted(permutation(len(labels), generator=generator)[:size].tolist())
        if len({int(labels[i]) for i in chosen}) == classes:
            return chosen
    raise ValueError(
        Sentence(
            f"{_REDRAWS} random draws of {size} samples all left out a class: pass ",
            Argument("subset", "stratified"),
            " or a larger ",
            Argument("train_size"),
        )
    )


def _subset_size(size: int, n_classes: int, n: int) -> int:
    if not n_classes <= integer("train_size", size, low=1) <= n:
        allowed = f"between {n_classes}, one sample of each class, and {n}, the size of the training set"
        raise ArgumentError("train_size", size, allowed)
    return size


def share_of(name: str, value: float | int, n: int) -> float:
    """Return `value` as a share of `n`: an integer is a number of samples, a float a share already."""
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(name, value, low=0) / max(n, 1)
    share = number(name, value, low=0, high=1)
    if share == 1:
        raise ValueError(f"{name} must be a share below 1, or a number of samples (an integer), got {value}")
    return share


def _shuffled_classes(labels: Labels, seed: int, what: str) -> list[Positions]:
    """Return the positions of each class, in an order drawn from the seed.

    scikit-learn's splitters shuffle by NumPy's generator: the splits of saved runs would not come back.
    """
    generator = torch.Generator().manual_seed(seed_from(what, seed))
    order = permutation(len(labels), generator=generator).numpy()
    classes = np.asarray(labels, np.int64)
    if len(classes) and classes.min() >= 0 and classes.max() < 2**15:
        classes = classes.astype(np.int16)  # sorted by their digits, in a quarter of the memory
    shuffled = classes[order]
    by_class = np.argsort(shuffled, kind="stable")
    ends = np.flatnonzero(np.diff(shuffled[by_class])) + 1
    return [members for members in np.split(order[by_class], ends) if len(members)]


def _rounded(value: float, *, low: int, high: int) -> int:
    return min(max(math.floor(value + 0.5), low), max(high, 0))
