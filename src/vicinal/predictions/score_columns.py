"""What the columns of a predictions file hold, by their names and never by their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal._checks import Argument, ArgumentError, ArgumentTypeError, Sentence
from vicinal.predictions.class_names import whole
from vicinal.tables import Column, Table
from vicinal.tables.base import quoted

SCORE_KINDS = ("probs", "logits", "confidence")
_LABELS = ("label", "labels", "target", "y_true")
_PREFIXES = {"probs": "prob_", "logits": "logit_"}
#: A single column with the probability of class 1, as scikit-learn calls it.
_POSITIVE = "y_prob"


@dataclass(frozen=True)
class Scores:
    """The columns of scores."""

    kind: str
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_positive(self) -> bool:
        """Whether one column holds the probability of the second of two classes."""
        return self.kind == "probs" and self.columns == (_POSITIVE,)


def label_column(table: Table, label: str | None) -> str | None:
    """Return the column of labels: the given one, or the one that is called so."""
    if label is not None:
        named = [table.require_column(label, "label")]
    else:
        named = [name for name in table.columns if name in _LABELS]
    if len(named) > 1:
        raise ValueError(
            Sentence(
                f"{_path(table)} has the columns {quoted(named)}: say which holds the labels with ", Argument("label")
            )
        )
    if named and table.columns[named[0]].nested:
        _refuse_nested_label(table, named[0], table.columns[named[0]])
    return named[0] if named else None


def _refuse_nested_label(table: Table, name: str, column: Column) -> None:
    if column.width == 1:
        raise ValueError(
            f"{name!r} of {_path(table)} is a matrix of one column: one class for each row is wanted, an array [N], "
            "such as labels.ravel()"
        )
    raise ValueError(
        f"{name!r} of {_path(table)} holds several values in each row: one class is wanted, its name or number "
        "(of one-hot labels, the position of the 1)"
    )


def score_columns(table: Table, kind: str | None, columns: Sequence[str] | None, label: str | None) -> Scores:
    """Return which columns hold scores, of which kind, and what is worth saying of the choice."""
    if columns is not None:
        return _given_columns(table, kind, columns)
    known = _known_columns(table, label)
    if kind is None:
        kind = _kind_by_name(table, known)
    elif kind not in known and kind != "confidence":
        # The caller overrules the name: kind="logits" for columns prob_<class> that hold scores.
        other = known.get("logits" if kind == "probs" else "probs")
        if other is not None:
            return Scores(kind, other, (f"columns {quoted(other)} are read as {kind}, as asked",))
    if kind is None or kind not in known:
        raise _unknown_columns(table, kind)
    notes: tuple[str, ...] = ()
    if kind != "confidence" and "confidence" in known:
        notes = (f"columns {quoted(known[kind])} are used; prediction and confidence are not looked at",)
    return Scores(kind, known[kind], notes)


def _known_columns(table: Table, label: str | None) -> dict[str, tuple[str, ...]]:
    """Return the columns of each kind that are known by name."""
    known: dict[str, tuple[str, ...]] = {}
    for kind, prefix in _PREFIXES.items():
        lists = [name for name in table.columns if name == kind and name != label]
        each = [name for name in table.columns if name.startswith(prefix) and name != label]
        if lists and each:
            raise ValueError(
                Sentence(
                    f"{_path(table)} has the column {lists[0]!r} and columns {quoted(each)}: say which to use with ",
                    Argument("columns"),
                )
            )
        if lists and not table.columns[lists[0]].nested:
            raise ValueError(
                f"column {lists[0]!r} of {_path(table)} must hold a list in each row (Parquet) or be a matrix [N, K] "
                "(NPZ); in other files every class has a column of its own, prob_<class>. For the probability p of a "
                "binary task write both, 1 - p and p, or one column y_prob"
            )
        if lists or each:
            known[kind] = tuple(lists or each)
    # y_prob counts only where no class has a column of its own.
    if _POSITIVE in table.columns and "probs" not in known and label != _POSITIVE:
        known["probs"] = (_POSITIVE,)
    if "prediction" in table.columns and "confidence" in table.columns:
        known["confidence"] = ("prediction", "confidence")
    return known


def _kind_by_name(table: Table, known: dict[str, tuple[str, ...]]) -> str | None:
    """Return what there is; probabilities beside logits are a question for the caller."""
    if "probs" in known and "logits" in known:
        raise ValueError(
            Sentence(
                f"{_path(table)} has columns of probabilities ({quoted(known['probs'])}) and of logits "
                f"({quoted(known['logits'])}): say which to use with ",
                Argument("kind", "probs"),
                " or ",
                Argument("kind", "logits"),
            )
        )
    return next((kind for kind in SCORE_KINDS if kind in known), None)


def _unknown_columns(table: Table, kind: str | None) -> ValueError:
    return ValueError(
        Sentence(
            f"{_path(table)} has no columns of {kind or 'predictions'} that are known by name: its columns are "
            f"{quoted(list(table.columns))}. Name those of each class's probability prob_<class>, or say which they "
            "are with ",
            Argument("columns"),
            " and what they hold with ",
            Argument("kind"),
            " (probs, logits, or confidence for a prediction and its confidence)",
        )
    )


def _given_columns(table: Table, kind: str | None, columns: Sequence[str]) -> Scores:
    """Return the columns that the caller names, of the kind that the caller or their names say."""
    if isinstance(columns, str) or not columns:
        raise ArgumentTypeError("columns", columns, "a list of names")
    used = tuple(table.require_column(name, "columns") for name in columns)
    if len(set(used)) < len(used):
        raise ArgumentError("columns", list(columns), "different names")
    if kind is None:
        kind = next((k for k, p in _PREFIXES.items() if all(c == k or c.startswith(p) for c in used)), None)
        if used == (_POSITIVE,):
            kind = "probs"
    if kind is None:
        raise ValueError(
            Sentence(
                f"columns {quoted(used)} do not say what they hold: pass ",
                Argument("kind"),
                ", one of 'probs', 'logits', 'confidence'",
            )
        )
    if kind == "confidence":
        if len(used) != 2:
            raise ArgumentError("columns", list(columns), "the prediction's and the confidence's")
    elif len(used) > 1 and (lists := [name for name in used if table.columns[name].nested]):
        raise ArgumentError("columns", list(columns), f"the one column {lists[0]!r}, which holds lists")
    return Scores(kind, used)


def class_columns(
    table: Table, scores: Scores, given: tuple[str, ...] | None, *, explicit: bool
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the names of the classes, and the columns of scores in the same order.

    Parameters
    ----------
    given
        The classes that the caller or the file names.
    explicit
        Whether the caller named the columns: then `given` are theirs, in the same order.
    """
    used = scores.columns
    if scores.kind == "confidence":
        return given, used
    if scores.is_positive:
        if given is not None and len(given) != 2:
            raise ArgumentError("classes", list(given), f"two names for the binary task of {_POSITIVE!r}")
        return given or ("0", "1"), used
    if table.columns[used[0]].nested:
        return _listed_classes(table, used[0], given), used
    if explicit and given is not None:
        if len(given) != len(used):
            raise ArgumentError("classes", list(given), f"{len(used)} names, those of the columns in their order")
        return given, used
    return _named_classes(table, used, given)


def _listed_classes(table: Table, name: str, given: tuple[str, ...] | None) -> tuple[str, ...]:
    width = _width(table, name)
    if given is not None and width is not None and len(given) != width:
        raise ValueError(
            Sentence(
                Argument("classes"), f" has {len(given)} names, but {name!r} of {_path(table)} has {width} entries"
            )
        )
    if width == 0:
        raise ValueError(f"column {name!r} of {_path(table)} holds empty lists: there are no classes")
    if width is None and given is None:
        raise ValueError(
            Sentence(f"{_path(table)} has no rows, so the number of classes is not known: pass ", Argument("classes"))
        )
    return given or tuple(str(k) for k in range(width or 0))


def _named_classes(
    table: Table, used: tuple[str, ...], given: tuple[str, ...] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    prefixes = tuple(_PREFIXES.values())
    names = tuple(column.split("_", 1)[1] if column.startswith(prefixes) else column for column in used)
    if len(set(names)) < len(names):
        raise ValueError(
            Sentence(
                f"two columns of {_path(table)} are of the same class: {quoted(used)}. Name them with ",
                Argument("columns"),
            )
        )
    if given is None:
        return names, used
    if set(given) != set(names) and {whole(name) for name in names} == set(range(len(given))):
        names = tuple(given[int(name)] for name in names)  # prob_0, prob_1, …: numbers, which `classes` names
    if set(given) != set(names):
        odd = sorted(set(given) ^ set(names))
        raise ValueError(
            Sentence(
                Argument("classes"),
                f" must be the names of the columns, {quoted(names)}, in the order of class numbers; "
                f"{odd[0]!r} is in one of the two only. To rename the columns, pass ",
                Argument("columns"),
                " as well",
            )
        )
    # Columns follow the caller's order of classes, whatever their order in the file.
    place = dict(zip(names, used, strict=True))
    return given, tuple(place[name] for name in given)


def _width(table: Table, name: str) -> int | None:
    """Return the number of entries of a column of lists, from its first row where the file does not say it."""
    width = table.columns[name].width
    if width is not None:
        return width
    # Parquet does not store the length of lists: the first one that is there shows it.
    for chunk in table.chunks([name], 1024):
        lists = chunk[name].to_pylist()
        for value in lists:
            if value is not None:
                return len(value)
    return None


def _path(table: Table) -> str:
    return repr(str(table.path))
