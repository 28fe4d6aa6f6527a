"""How the numbers of a text column are written: decimal mark, thousands and unit.

`7.921` is 7.921 in English and 7921 in German. One cell does not tell, so every cell of a column is counted: `0.5` can
only have a decimal point, `1.234,5` only a decimal comma. `Evidence` adds these counts up chunk by chunk in constant
memory, and `decide` turns them into one `NumberFormat` a column. Where a column has no such cell, the other columns of
the table decide, then the format that the model was trained with, and last the decimal point.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal._atomic import Json
from vicinal._checks import Argument, ArgumentError, Sentence, require
from vicinal.tables.column_values import LARGEST, MISSING, as_numpy, distinct, is_text, typed_numbers

if TYPE_CHECKING:
    import pyarrow as pa

#: What may stand before decimals, and between thousands.
DECIMALS, THOUSANDS = (".", ","), (",", ".", " ", "'")
#: Words for a missing value in a column of numbers or dates, in lower case; elsewhere they may be a category.
MARKERS = frozenset(
    """- -- --- . .. * tbd tba tbc unknown unk unspecified undefined missing pending none nil void na n.a. n/a nd n.d.
    #n/a #na #null! #value! #div/0! #ref! #num! #name? unbekannt k.a. inconnu desconocido sconosciuto onbekend
    """.split()  # noqa: SIM905 (shorter)
) | {"not available", "not applicable", "no data", "not known", "not specified", "not reported", "to be determined"}

#: A unit counts if this share of the cells with a unit have it.
_ONE_UNIT = 0.9
#: Different texts and units that are counted, and different numbers; a column of numbers has few of the first.
_COUNTED, VARIED = 64, 21
#: New data show that a decimal mark is not the model's if this share of the doubtful cells speak against it.
_CONTRARY = 0.05
#: So many numbers with three digits behind a mark, beside whole ones below 1000, have thousands.
_MANY_GROUPED = 30
#: Numbers that programs write for a missing value.
_SENTINELS = tuple(float(sign * (10**k - 1)) for k in (2, 3, 4, 5, 6) for sign in (-1, 1))
#: A sentinel occurs in this share of the rows, at least.
_FEWEST_SENTINELS = 0.005
#: A longer cell is no number that a person wrote.
_LONGEST = 80

_CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "₽": "RUB", "₺": "TRY",
               "₪": "ILS", "₴": "UAH", "฿": "THB", "₫": "VND", "₦": "NGN"}  # fmt: skip
#: Signs with letters before or after them.
_SIGNS = {"US$": "USD", "R$": "BRL", "A$": "AUD", "AU$": "AUD", "C$": "CAD", "CA$": "CAD", "NZ$": "NZD", "HK$": "HKD",
          "S$": "SGD", "MX$": "MXN", "Rs": "INR", "Rs.": "INR"}  # fmt: skip
#: Currencies are read where a column has no unit of its own.
_CODES = frozenset(
    [
        *_CURRENCIES.values(),
        *_SIGNS.values(),
        "CHF",
        "CNY",
        "CAD",
        "AUD",
        "SEK",
        "NOK",
        "DKK",
        "PLN",
        "CZK",
        "BRL",
        "MXN",
        "ZAR",
    ]
)
_MULTIPLIERS = {"k": 1e3, "K": 1e3, "Tsd": 1e3, "thousand": 1e3, "M": 1e6, "MM": 1e6, "mn": 1e6, "Mn": 1e6, "Mio": 1e6,
                "million": 1e6, "B": 1e9, "bn": 1e9, "Bn": 1e9, "Mrd": 1e9, "billion": 1e9,
                "lakh": 1e5, "Lakh": 1e5, "lac": 1e5, "crore": 1e7, "Crore": 1e7, "Cr": 1e7}  # fmt: skip
_MONEY = "".join(_CURRENCIES)
#: Minus, hyphens and dashes: spreadsheets and word processors put them for one another.
_MINUS = "\u2010\u2011\u2012\u2013\u2212\uff0d-"
#: A sign, a currency, digits with marks between them, and what follows.
_CELL = re.compile(
    rf"(?P<open>\()?(?P<minus>[+{_MINUS}]?)\s?(?P<money>[A-Z]{{0,2}}[{_MONEY}]|[A-Z]{{3}}(?=\s)|Rs\.?)?"
    rf"\s?(?P<inner>[{_MINUS}]?)"
    rf"(?P<body>[.,]?\d[\d.,'’\s]*)(?P<exponent>[eE][+-]?\d+)?(?P<after>-(?=\s|$))?(?P<tail>[^\d.,'’\s()][^()]*)?(?P<close>\))?"
)
_UNIT = re.compile(r"[^\W\d_][\w/.·²³^]{0,11}(?: [^\W\d_][\w/.²³]{0,5})?|°\s?[CFK]?")
#: Digits if the mark of decimals is a point, and if it is a comma. Thousands do not begin with 0.
_BODIES = {
    mark: re.compile(
        rf"(?:[1-9]\d{{0,2}}(?P<by>[{other}\s'’])\d{{3}}(?:(?P=by)\d{{3}})*|[1-9]\d?(?:(?P<pairs>{other})\d{{2}})+{other}\d{{3}}|\d+)?"
        rf"(?:{re.escape(mark)}\d*)?"
    )
    for mark, other in ((".", ","), (",", r"\."))
}
#: The same for RE2, a whole column at a time, without signs and units; and cells that can be read either way.
_PLAIN = {
    ".": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
    ",": r"^[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)(,\d*)?$",
}
_LONG = r"^\s*[+-]?\d{4}[^.,]*$"
_EITHER = r"^[+-]?[1-9]\d{0,2}[.,]\d{3}$"

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of one column are written.

    >>> form = NumberFormat(decimal=",", unit="kg")
    >>> read_numbers(np.array(["1.250,5 kg", "7.921", "0.5", "many"]), form).values.tolist()
    [1250.5, 7921.0, nan, nan]
    """

    decimal: str = "."
    """The mark before decimals, `.` or `,`."""
    thousands: str | None = None
    """The only mark allowed between thousands; any that is not the decimal mark if None."""
    unit: str = ""
    """The unit that cells may name."""

    def to_dict(self) -> dict[str, object]:
        """Return what is not the default, as JSON can hold it."""
        given = {"thousands": self.thousands, "unit": self.unit}
        return {"decimal": self.decimal, **{name: value for name, value in given.items() if value}}

    @classmethod
    def from_dict(cls, record: Json) -> NumberFormat:
        """Return what `to_dict` recorded, checked: a damaged model file must not give wrong numbers."""
        decimal, thousands, unit = record["decimal"], record.get("thousands"), record.get("unit", "")
        if decimal not in DECIMALS or thousands not in (None, *THOUSANDS) or not isinstance(unit, str):
            raise ArgumentError("format", record, "a decimal mark, a mark between thousands and a unit")
        return cls(decimal, thousands, unit)


#: Numbers with decimal points.
POINTS = NumberFormat()


class Numbers(NamedTuple):
    """A column as numbers."""

    values: Floats
    """float64 `[M]`, NaN where a cell is missing or no finite number."""
    odd: Mask
    """Cells that hold something else than a finite number."""
    contrary: Mask
    """Those of them that are numbers in another format: another decimal mark, another unit."""


class _Cell(NamedTuple):
    """A cell read both ways; NaN where it cannot be."""

    point: float
    comma: float
    unit: str
    by: str
    """The mark between thousands, if there is any."""


@dataclass(eq=False)
class Evidence:
    """What the cells of a column tell of its format."""

    point: int = 0
    """Cells that have a decimal point for certain: `0.5`, `1,234.5`."""
    comma: int = 0
    """Cells that have a decimal comma for certain."""
    either: Counter[str] = field(default_factory=Counter)
    """Cells that could have either, by their mark: `7.921`, `1,234`."""
    plain: int = 0
    """Numbers without any mark."""
    short: int = 0
    """Those of them with at most three digits."""
    long: int = 0
    """Those with more, counted where others have marks."""
    units: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)
    """Cells that are no numbers, the first few different ones and all markers."""
    n_texts: int = 0
    examples: dict[str, str] = field(default_factory=dict)
    """One cell of each form."""
    distinct: set[float] = field(default_factory=set)
    """The first few different numbers."""
    fractions: bool = False
    sentinels: Counter[float] = field(default_factory=Counter)
    low: float = np.inf
    high: float = -np.inf
    """Of the numbers that are no sentinels."""

    def own(self) -> str | None:
        """Return the decimal mark that most certain cells have, None where there is none.

        Where every mark has three digits behind it, and all numbers without one have at most three digits, marks stand
        between thousands: many decimals would not all have three digits, and hardly be whole.
        """
        if self.comma or self.point:
            return "," if self.comma > self.point else "."
        mark, n = next(iter(self.either.items()), ("", 0))
        grouped = len(self.either) == 1 and n >= _MANY_GROUPED and self.short and not self.long
        return None if not grouped else "," if mark == "." else "."

    def own_unit(self) -> str:
        """Return the unit, if nearly all cells that name one name the same."""
        unit, n = self.units.most_common(1)[0] if self.units else ("", 0)
        return unit if n >= _ONE_UNIT * self.units.total() else ""

    @property
    def n_numbers(self) -> int:
        """How many cells are numbers in some format."""
        return self.point + self.comma + self.either.total() + self.plain

    def sentinel(self) -> float | None:
        """Return a number such as -999 that occurs often and lies far from all others."""
        for value, n in self.sentinels.most_common():
            far = max(self.high - self.low, 1.0)
            if n >= max(2, _FEWEST_SENTINELS * self.n_numbers) and not self.low - far <= value <= self.high + far:
                return value
        return None

    def _count_digits(self, digits: int, n: int) -> None:
        """Count `n` numbers without a mark by how many digits they have."""
        self.short += n * (digits <= 3)
        self.long += n * (digits > 3)

    def add_values(self, values: Floats) -> None:
        """Take numbers as they were read."""
        if not len(values):
            return
        if len(self.distinct) < VARIED:
            self.distinct.update(values[: 4 * VARIED].tolist())
        self.fractions = self.fractions or bool((values % 1).any())
        low, high = float(values.min()), float(values.max())
        if low <= -_SENTINELS[1] or high >= _SENTINELS[1]:
            special = np.isin(values, _SENTINELS)
            self.sentinels.update(values[special].tolist())
            values = values[~special]
            low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
        self.low, self.high = min(self.low, low), max(self.high, high)

    def add_cell(self, text: str, cell: _Cell | None, n: int) -> None:
        """Take a cell that occurs `n` times."""
        if cell is None:
            self.n_texts += n
            if text in self.texts or len(self.texts) < _COUNTED or text.lower() in MARKERS:
                self.texts[text] += n
            return
        if cell.unit and (cell.unit in self.units or len(self.units) < _COUNTED):
            self.units[cell.unit] += n
            self.examples.setdefault(f"unit {cell.unit}", text)
        if cell.point == cell.comma:
            self.plain += n
            self._count_digits(sum(map(str.isdigit, text)), n)
            form = "written" if not _is_plain(text) else "plain"
        elif np.isnan(cell.comma):
            self.point += n
            form = "point" if cell.by or cell.unit or not _is_plain(text) else "plain"
        elif np.isnan(cell.point):
            self.comma += n
            form = "comma"
        else:
            form = cell.by
            self.either[form] += n
        self.examples.setdefault(form, text)

    def merge(self, other: Evidence) -> None:
        """Add what the cells after these tell."""
        for name in ("point", "comma", "plain", "short", "long", "n_texts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.either.update(other.either)
        self.sentinels.update(other.sentinels)
        for mine, theirs in ((self.units, other.units), (self.texts, other.texts)):
            for text, n in theirs.items():
                if text in mine or len(mine) < _COUNTED or text.lower() in MARKERS:
                    mine[text] += n
        self.examples = {**other.examples, **self.examples}
        if len(self.distinct) < VARIED:
            self.distinct |= other.distinct
        self.fractions = self.fractions or other.fractions
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


def _is_plain(text: str) -> bool:
    """Return whether a number is written as programs write it, so that nothing was assumed."""
    return re.fullmatch(_PLAIN["."], text, re.ASCII) is not None


def read_numbers(column: pa.Array, form: NumberFormat | None = None, evidence: Evidence | None = None) -> Numbers:
    """Return a column as numbers in one format, and add what it tells of its format to `evidence`.

    Finite is what float32, which networks compute in, can hold: 1e39 is not. Numbers and dates that a file holds as
    such are never read otherwise.

    Parameters
    ----------
    column
        A numpy or pyarrow array of numbers, or of text that spells them.
    form
        How numbers are written; with decimal points if not given.
    evidence
        Where cells are counted.

    >>> read_numbers(np.array(["$1,250", "12.5 %", "(1,200)", "5.2M", "1e39"])).values.tolist()
    [1250.0, 0.125, -1200.0, 5200000.0, nan]
    """
    form = form or POINTS
    if isinstance(column, np.ndarray) and column.dtype.kind not in "fiub":
        column = require("pyarrow", "train").array(column.astype(str))
    if isinstance(column, np.ndarray) or not is_text(column):
        floats, odd = typed_numbers(column)
        values, contrary = floats.astype(np.float64, copy=False), np.zeros(len(odd), np.bool_)
        if evidence is not None:
            evidence.plain += int((~np.isnan(values)).sum())
    else:
        values, odd, contrary = _parsed(column, form, evidence)
    infinite = np.abs(values) > LARGEST
    if infinite.any() or odd.any():
        odd = odd | infinite
        values = np.where(odd, np.nan, values)
    if evidence is not None:
        evidence.add_values(values[~np.isnan(values)])
    return Numbers(values, odd, contrary)


def _parsed(column: pa.Array, form: NumberFormat, evidence: Evidence | None) -> tuple[Floats, Mask, Mask]:
    """Return text as numbers: plain cells all at once, and each different one of the others by itself."""
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    nothing = np.zeros(len(column), np.bool_)
    if pa.types.is_dictionary(column.type):
        place, different = distinct(column)
        counts = np.bincount(place[place >= 0], minlength=len(different))
        return _by_cell(place, different, counts, form, evidence)
    if form.decimal == "." and len(column) and _longest(column) <= _LONGEST:
        try:  # one conversion, where there is nothing else
            values: Floats = as_numpy(column.cast(pa.float64()))
        except pa.ArrowInvalid:
            pass
        else:
            missing = np.isnan(values)
            # Arrow takes -nan for a number, and a person does not write it.
            named = column.filter(pa.array(missing)).drop_null().unique().to_pylist() if missing.any() else []
            if set(named) <= MISSING:
                _count_plain(column, values, evidence)
                return values, nothing, nothing
    text = compute.utf8_trim_whitespace(column)
    markers = pa.array(sorted(MISSING), text.type)
    text = compute.if_else(compute.is_in(text, markers), pa.scalar(None, text.type), text)
    plain = compute.fill_null(compute.match_substring_regex(text, _PLAIN[form.decimal]), False)
    if _longest(text) > _LONGEST:
        plain = compute.and_(plain, compute.fill_null(compute.less_equal(compute.binary_length(text), _LONGEST), False))
    some = compute.if_else(plain, text, pa.scalar(None, text.type))
    if form.decimal == ",":
        some = compute.replace_substring(compute.replace_substring(some, ".", ""), ",", ".")
    values = np.array(as_numpy(some.cast(pa.float64())), np.float64)
    is_plain = plain.to_numpy(zero_copy_only=False)
    _count_plain(compute.if_else(plain, text, pa.scalar(None, text.type)), values[is_plain], evidence, form.decimal)
    rest = np.flatnonzero(~is_plain & text.is_valid().to_numpy(zero_copy_only=False))
    if not len(rest):
        return values, nothing, nothing
    place, different = distinct(text.take(pa.array(rest)))
    counts = np.bincount(place, minlength=len(different))
    of_rest, odd, contrary = _by_cell(place, different, counts, form, evidence)
    values[rest] = of_rest
    masks = np.zeros((2, len(column)), np.bool_)
    masks[:, rest] = odd, contrary
    return values, masks[0], masks[1]


def _longest(text: pa.Array) -> int:
    """Return the most bytes that a cell has."""
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    if text.type == pa.string() and len(text):  # a tenth of the time, which counts for 100,000 short columns
        ends = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset)
        return int(np.diff(ends).max())
    return int(compute.max(compute.binary_length(text)).as_py() or 0)


def _by_cell(
    place: NDArray[np.intp],
    different: list[pa.Array],
    counts: NDArray[np.intp],
    form: NumberFormat,
    evidence: Evidence | None,
) -> tuple[Floats, Mask, Mask]:
    read: list[tuple[float, bool, bool]] = []
    for text, n in zip(different, counts.tolist(), strict=True):
        text = str(text).strip()
        if text in MISSING:
            read.append((np.nan, False, False))
            continue
        cell = _cell(text)
        if evidence is not None and n:
            evidence.add_cell(text, cell, n)
        read.append(_as(form, cell))
    values, odd, contrary = zip(*read, (np.nan, False, False), strict=True)  # the place of a missing cell is -1
    return np.array(values)[place], np.array(odd)[place], np.array(contrary)[place]


def _as(form: NumberFormat, cell: _Cell | None) -> tuple[float, bool, bool]:
    """Return a cell's value, whether it is none, and whether it is a number in another format."""
    if cell is None:
        return np.nan, True, False
    value, other = (cell.point, cell.comma) if form.decimal == "." else (cell.comma, cell.point)
    if cell.unit and cell.unit != form.unit and (form.unit or cell.unit not in _CODES):
        return np.nan, True, bool(form.unit)
    if np.isnan(value) or (form.thousands is not None and cell.by not in ("", form.thousands)):
        return np.nan, True, not np.isnan(other) or not np.isnan(value)
    return value, False, False


@lru_cache(maxsize=2**16)
def _cell(text: str) -> _Cell | None:
    """Return the number that a cell spells, read with a decimal point and with a decimal comma; None for none.

    >>> _cell("7.921"), _cell("0,913"), _cell("many")
    (_Cell(point=7.921, comma=7921.0, unit='', by='.'), _Cell(point=nan, comma=0.913, unit='', by=''), None)
    """
    found = _CELL.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None or bool(found["open"]) != bool(found["close"]) or (found["open"] and found["minus"]):
        return None
    body = found["body"].strip()
    if found["after"] and not re.search(r"[.,]", body):  # 3- is a grade
        return None
    scale, unit = _scale(found["money"], (found["tail"] or "").strip(), body != found["body"])
    if scale is None:
        return None
    negative = found["open"] == "(" or found["after"] or {found["minus"], found["inner"]} & set(_MINUS)
    values, by = [], ""
    for mark, pattern in _BODIES.items():
        parts = pattern.fullmatch(body)
        if parts is None or not any(character.isdigit() for character in body):
            values.append(np.nan)
            continue
        groups = parts["by"] or parts["pairs"] or ""
        if groups and found["exponent"]:  # 1,234e5 has decimals: nobody groups the digits before an exponent
            values.append(np.nan)
            continue
        by = by or groups
        digits = body.replace(groups, "") if groups else body
        number = float(digits.replace(mark, ".") + (found["exponent"] or ""))
        values.append((-number if negative else number) * scale)
    if np.isnan(values).all():
        return None
    return _Cell(values[0], values[1], unit, " " if by.isspace() else "'" if by == "’" else by)


def _scale(money: str | None, tail: str, spaced: bool) -> tuple[float | None, str]:
    """Return what a number is multiplied by, None if its end is neither unit nor sign, and its unit."""
    sign = money or ""
    unit = _CURRENCIES.get(sign, _SIGNS.get(sign, sign))
    if tail and (tail[-1] in _CURRENCIES or tail in _CODES or re.search(r"\s[A-Z]{3}$", tail)):
        if unit:
            return None, ""
        cut = -1 if tail[-1] in _CURRENCIES else -3
        unit, tail = _CURRENCIES.get(tail[cut:], tail[cut:]), tail[:cut].strip()
    if not tail:
        return 1.0, unit
    if tail in ("%", "‰"):
        return (0.01 if tail == "%" else 0.001), unit
    factor = _MULTIPLIERS.get(tail.rstrip("."))
    # 512 B is a unit and $5.2B a multiple: what stands apart needs a currency.
    if factor is not None and (unit or not spaced or len(tail) > 1):
        return factor, unit
    if tail == "m" and unit:
        return 1e6, unit
    if unit or not _UNIT.fullmatch(tail):
        return None, ""
    name = tail.rstrip(".")
    name = name[:-1] if len(name) > 2 and name.endswith("s") else name
    return 1.0, name.casefold() if len(name) > 1 else name


def _count_plain(text: pa.Array, values: Floats, evidence: Evidence | None, decimal: str = ".") -> None:
    """Count cells without signs and units, as few of them as are needed to know the decimal mark."""
    if evidence is None:
        return
    compute = require("pyarrow.compute", "train")
    there = values[~np.isnan(values)]
    if decimal == "." and len(there):
        small = np.minimum(np.abs(there), 1e6)
        few_decimals = np.abs(1000 * small - np.rint(1000 * small)) < 1e-5  # three, as thousands have digits
        certain = int((((small < 1) & (small > 0)) | ~few_decimals).sum())
        if certain:  # numbers below 1 or with many decimals: the others need not be looked at
            evidence.point += certain
            evidence.plain += len(there) - certain
            return
    marked = compute.match_substring_regex(text, "[.,]")
    n_marked = compute.sum(marked).as_py() or 0
    evidence.plain += len(there) - n_marked
    if n_marked < len(there) and not (evidence.point or evidence.comma):
        long = compute.sum(compute.match_substring_regex(text, _LONG)).as_py() or 0
        evidence.long += long
        evidence.short += len(there) - n_marked - long
    if not n_marked:
        return
    doubtful = compute.match_substring_regex(compute.utf8_trim_whitespace(text), _EITHER)
    n_either = compute.sum(doubtful).as_py() or 0
    if n_either:
        cells = text.filter(compute.fill_null(doubtful, False))
        points = compute.sum(compute.match_substring(cells, ".")).as_py() or 0
        for mark, n in ((".", points), (",", n_either - points)):
            if n:
                evidence.either[mark] += n
                first = cells.filter(compute.match_substring(cells, mark))[0].as_py()
                evidence.examples.setdefault(mark, first.strip())
    if decimal == ".":
        evidence.point += n_marked - n_either
    elif n_marked > n_either:
        evidence.comma += n_marked - n_either
        cells = text.filter(compute.fill_null(compute.and_(marked, compute.invert(doubtful)), False))
        evidence.examples.setdefault("comma", cells[0].as_py().strip())


def decide(
    evidence: Mapping[str, Evidence],
    *,
    decimal: str | None = None,
    thousands: str | None = None,
    trained: Mapping[str, NumberFormat] | None = None,
    semicolons: bool = False,
) -> dict[str, NumberFormat]:
    """Return the format of each column.

    Parameters
    ----------
    evidence
        What the cells of each column tell.
    decimal, thousands
        What the user says of every column.
    trained
        The formats that a model was trained with, by column.
    semicolons
        Whether semicolons separate cells: `1,234` then has a decimal comma, unless another cell speaks against it.
    """
    given = decimal or (None if thousands is None else "," if thousands == "." else ".")
    votes = [mark for one in evidence.values() if one.n_numbers > one.n_texts and (mark := one.own())]
    commas = votes.count(",")
    table = None if not votes else "," if 2 * commas > len(votes) else "."
    formats = {}
    for name, one in evidence.items():
        old = None if trained is None else trained.get(name)
        mark = given or one.own()
        if given is None and old is not None and mark not in (None, old.decimal):
            # The other mark must be frequent, and alone: else these cells contradict the model's format.
            contrary, agree = (one.comma, one.point) if mark == "," else (one.point, one.comma)
            mark = mark if not agree and contrary >= _CONTRARY * one.either.total() else old.decimal
        if mark is None and (old is None or (table is not None and len(set(votes)) == 1)):
            mark = table
        if mark is None:
            mark = old.decimal if old is not None else "," if semicolons and one.either[","] else "."
        unit = one.own_unit() if old is None or not old.unit else old.unit
        formats[name] = NumberFormat(mark, thousands, unit)
    return formats


def assumed(name: str, one: Evidence, form: NumberFormat, *, given: bool = False) -> list[str]:
    """Return what was assumed of a column of numbers, one sentence each.

    Parameters
    ----------
    name, one, form
        The column, what its cells tell, and its format.
    given
        Whether the user named the decimal mark.
    """
    notes: list[str] = []
    if form.decimal == "," and one.comma:
        notes.append(f"column {name!r} has decimal commas, as in {one.examples.get('comma', '')!r}")
    if one.either and not given and not (one.point or one.comma):
        mark = "." if one.either["."] else ","
        cell = one.examples[mark]
        value = _as(form, _cell(cell))[0]
        other = "," if form.decimal == "." else "."
        why = "no cell tells whether {} has decimals or thousands; it is read as {} ("
        if one.own() is not None:
            why = "whole numbers below 1000 have no mark, so {} has thousands; it is read as {} ("
        notes.append(
            Sentence(
                f"column {name!r}: {why.format(repr(cell), format(value, '.12g'))}",
                Argument("decimal", other),
                " reads it the other way)",
            )
        )
    written = next((one.examples[k] for k in (f"unit {form.unit}", "written", "point") if k in one.examples), None)
    if written is not None and form.decimal == ".":
        notes.append(f"column {name!r} is read as numbers, written like {written!r}")
    elif form.unit and written is not None:
        notes.append(f"column {name!r} has the unit {form.unit!r}, as in {written!r}")
    others = [unit for unit in one.units if unit != form.unit]
    if not form.unit and others and set(others) <= _CODES:
        notes.append(f"column {name!r} holds several currencies, which are read alike: {', '.join(sorted(others))}")
    elif form.unit and others:
        n = sum(one.units[unit] for unit in others)
        notes.append(f"column {name!r}: {n:,} values in other units than {form.unit!r} count as missing")
    if (far := one.sentinel()) is not None:
        rest = f"all others are between {one.low:g} and {one.high:g}"
        said = f"column {name!r} holds {far:g} in {one.sentinels[far]:,} rows, and {rest}: if it means missing, pass "
        notes.append(Sentence(said, Argument("missing_values", f"{far:g}")))
    return notes
