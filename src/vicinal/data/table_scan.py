"""Find out what each column of a table holds, in one pass and in constant memory."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from vicinal._atomic import Json
from vicinal._checks import Argument, Sentence, require
from vicinal.data.class_folders import listed
from vicinal.data.dates import DateEvidence, day_first_of, order_notes, valid_compact, valid_milliseconds
from vicinal.data.options import ReadOptions
from vicinal.data.readers import Readers
from vicinal.data.splitting import Labels, part_numbers, smallest_type
from vicinal.tables import BadRow, Chunk, Table
from vicinal.tables.column_values import MISSING, distinct, is_text, merged_notes, names_of
from vicinal.tables.number_cache import NumberCache
from vicinal.tables.number_format import (
    MARKERS,
    VARIED,
    Evidence,
    NumberFormat,
    Numbers,
    assumed,
    decide,
    read_numbers,
)
from vicinal.tables.pieces import renumbered, shifted

if TYPE_CHECKING:
    import pyarrow as pa

#: A categorical column keeps this many values, the most frequent ones.
MAX_VALUES = 100
#: The share of a column's values that must be numbers (or dates) for it to be numeric (or dates).
_MOST = 0.9
#: Words are counted in the first values, this many.
_LOOK = 1000
#: So many different texts among numbers or dates mean that a value is missing; so many dates are more than chance.
_FEW_TEXTS, _VARIED_DATES = 10, 20
#: Different values are counted up to this number; the share of different ones is that of the rows up to there.
_COUNTED = 2**17
#: Cells of the target that hold nothing; "None" is a name that classes have.
_NO_CLASS = MISSING - {"None"}
#: Numbers below this are no dates such as 20200131.
_LEAST_DATE = 1e7
#: A value equal to the column's name is a repeated header line, unless it occurs more often than this.
_MOST_HEADERS = 100
#: A target with more different values than this is no class.
_MOST_CLASSES = 100_000

_ID_NAME = re.compile(r"(?i)(.*[_ ])?(id|index|idx|nr|no|number|key)|row[_ .]?names?|Unnamed: 0|")
#: A code in a column of numbers: capitals and digits.
_CODE = re.compile(r"(?=.*\d)(?=.*[A-Z])[A-Z0-9./ _#-]+")
#: A column of this name that repeats its values numbers what several rows belong to: a patient, a customer.
_GROUP_NAME = re.compile(
    r"(?i:(.*[_ .-])?id)|.*[a-z]I[dD]|(?i:(.*[_ .-])?(patient|subject|participant|customer|client|user|person|member|"
    r"student|employee|household|family|account|session|device|machine|sensor|vehicle|speaker|author|player))"
)
#: So many different values, each in so many rows, are entities rather than categories.
_MANY_ENTITIES, _ROWS_OF_ENTITY = 50, (2, 20)

#: Odd constants whose products scatter bits (from the golden ratio, and from MurmurHash3's finaliser).
_GOLDEN, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD)

Hashes = NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)


@dataclass(eq=False)
class Summary:
    """What the rows so far show of a column.

    Numbers are counted as they come. Different values are counted only where the first rows are not numeric: a column
    that turns out otherwise is read again (`is_counted`).
    """

    name: str
    format: NumberFormat = field(default_factory=NumberFormat)
    """How its numbers are read."""
    count_values: bool | None = None
    """Whether to count different values; the first rows decide if not given."""
    n: int = 0
    filled: int = 0
    finite: int = 0
    is_numeric: bool = False
    """Whether the file says that these are numbers."""
    fixed_kind: str | None = None
    low: float = np.inf
    high: float = -np.inf
    look: list[str] = field(default_factory=list)
    values: dict[int, int] = field(default_factory=dict)
    """Different values by their codes, with the number of filled cells when they were first met."""
    code: Callable[[object], int] = hash
    """Gives each value a number; equal values have equal ones."""
    counted: int = 0
    """How many filled cells the different values are of."""
    evidence: Evidence = field(default_factory=Evidence)
    dates: DateEvidence = field(default_factory=DateEvidence)
    _ids: list[NDArray[np.generic]] | None = field(default_factory=list)
    _written: set[str] = field(default_factory=set)
    _step: float | None = None
    _first: float | None = None
    _last: float | None = None

    def read(self, column: pa.Array) -> Numbers | None:
        """Return the next rows as numbers, and count what they tell of their format; None where their type tells."""
        self.fixed_kind = self.fixed_kind or _kind_of_type(column)
        return None if self.fixed_kind is not None else read_numbers(column, self.format, self.evidence)

    def add(self, column: pa.Array, known: Numbers | None = None) -> tuple[Hashes, NDArray[np.float64] | None]:
        """Take the next rows, and return a hash of each cell: equal cells have equal ones.

        Where the column seems to be of numbers, and these rows hold nothing else, they are returned beside it. `known`
        is what `read` returned for them, if it was called.
        """
        self.n += len(column)
        known = known or self.read(column)
        if known is None:
            self.dates.times += len(column) * require("pyarrow", "train").types.is_time(column.type)
            return _hashes(column, self.code), None
        values, odd, _ = known
        filled = odd | ~np.isnan(values)
        self.filled += int(filled.sum())
        self._add_numbers(values)
        text = is_text(column)
        self.is_numeric |= not text and not odd.any()
        if text and odd.any():
            self._add_texts(column, odd)
        if len(self.look) < _LOOK:
            first = np.flatnonzero(filled)[: _LOOK - len(self.look)]
            # A number is one word and no date, however it is written.
            self.look += names_of(column.take(first).to_pylist()) if text and odd.any() else ["0"] * len(first)
        if text and self.low == self.high:
            self._written.update(names_of(distinct(column)[1]))
        # The first chunk decides, because counting the values of a numeric column costs more than parsing it.
        if self.count_values is None:
            self.count_values = self.finite < _MOST * self.filled
        # Equal numbers must have equal bits: 0.0 and -0.0 differ in one.
        hashes = (values + 0.0).view(np.uint64)  # one zero, not two
        if odd.any() or self.count_values:
            return np.where(odd, self._count(column), hashes), None
        return hashes, values

    def _add_texts(self, column: pa.Array, odd: NDArray[np.bool_]) -> None:
        """Look for dates among the cells that are no numbers, until it is plain that there are none."""
        if len(self.dates.others) > _FEW_TEXTS and not self.dates.n:
            return
        place, values = distinct(column.filter(require("pyarrow", "train").array(odd)))
        counts = np.bincount(place[place >= 0], minlength=len(values)).tolist()
        for name, n in zip(names_of(values), counts, strict=True):
            if name and n:
                self.dates.add(name, n)

    def kind(self) -> str:
        """Return what the column holds, once all rows were added."""
        if self.fixed_kind is not None:
            return self.fixed_kind
        if not self.filled or (self.filled == self.n and self._is_one()):
            return "constant"
        if self.is_date():
            return "date"
        if self.is_number():
            return "id" if self._is_counter() else "number"
        # Six words on average: sentences, not names or addresses.
        if self._is_various() and _mean_words(self.look) >= 6:
            return "text" if self.filled >= 0.5 * self.n else "sparse"
        # More than twenty values, half of them different, in nearly every row: a name for the row.
        if self._distinct_share() > 0.5 and len(self.values) > 20 and self.filled >= _MOST * self.n:
            return "id"
        return "category"  # also of identifiers that many rows lack: whether there is one may tell much

    def is_date(self) -> bool:
        """Return whether nearly all cells are dates, or all but a few different texts."""
        if self.dates.compact and self.dates.compact == self.finite == self._n_without_markers:
            return self.low < self.high
        if self.is_numeric or not self.dates.n:
            return False
        if self.dates.n + self.dates.compact >= _MOST * self._n_without_markers:
            return True
        return self.dates.n > _VARIED_DATES > 2 * len(self.dates.others) and 2 * self.finite < self.dates.n

    def is_number(self) -> bool:
        """Return whether the column is numeric: text in it is missing, if most of the rest are numbers.

        Where more than a tenth of the cells are texts, the numbers must vary: else both are categories. The texts are
        then few different ones, or fewer than the numbers.
        """
        if self.finite >= _MOST * self._n_without_markers:
            return self.finite > 0
        if not self.evidence.fractions and len(self.evidence.distinct) < VARIED:
            return False
        if len(self.evidence.texts) <= _FEW_TEXTS:
            return True
        if 2 * self.finite <= self._n_without_markers:
            return False
        # Numbers of their own for each row, beside codes such as A/5 21171, are no quantity.
        codes = sum(_CODE.fullmatch(text) is not None for text in self.evidence.texts)
        named = 2 * codes > len(self.evidence.texts) and self._distinct_share() > 0.5
        return self.evidence.fractions or not named

    @property
    def _n_without_markers(self) -> int:
        """Cells that hold a value, without words such as "unknown"."""
        return self.filled - sum(n for text, n in self.evidence.texts.items() if text.lower() in MARKERS)

    @property
    def is_counted(self) -> bool:
        """Whether different values were counted, where that is needed."""
        known = bool(self.count_values) or self.fixed_kind is not None
        return known or self.finite >= _MOST * self._n_without_markers

    def names_entities(self) -> bool:
        """Return whether each of many names is in a few rows, as those of patients are."""
        low, high = _ROWS_OF_ENTITY
        several = low * len(self.values) <= self.counted <= high * len(self.values)
        return self.kind() == "category" and len(self.values) >= _MANY_ENTITIES and several

    def is_short_text(self) -> bool:
        """Return whether a column of strings could be texts, if there is nothing else to learn from."""
        return self._is_various() and _mean_words(self.look) >= 2

    def _is_various(self) -> bool:
        """Return whether there are many strings: mostly different ones, or more than a category keeps."""
        return self._distinct_share() >= 0.5 or len(self.values) > MAX_VALUES

    def _is_one(self) -> bool:
        """Return whether all values are the same, and written alike: 0 and -0 are two."""
        if self.finite < self.filled:
            return len(self.values) == 1
        return self.low == self.high and len(self._written) <= 1

    def _distinct_share(self) -> float:
        return len(self.values) / max(self.counted, 1)

    def _add_numbers(self, values: NDArray[np.float64]) -> None:
        there = values[~np.isnan(values)]
        if self.dates.compact == self.finite and len(there) and there[0] > _LEAST_DATE:
            self.dates.milliseconds = self.dates.milliseconds or bool(valid_milliseconds(there[:1]).all())
            valid = valid_milliseconds if self.dates.milliseconds else valid_compact
            self.dates.compact += int(valid(there).sum())
        self.finite += len(there)
        if not len(there):
            self._ids = None if len(values) else self._ids
            return
        self.low, self.high = min(self.low, float(there.min())), max(self.high, float(there.max()))
        if self._ids is None:
            return
        # What numbers the rows is whole everywhere, and either goes by one step of ±1 or is called like an index and
        # repeats nothing, for which its values are kept. None: it is neither, and nothing more is looked at.
        if len(there) < len(values) or (there % 1).any():
            self._ids = None
            return
        # The step to the last row of the chunk before counts too.
        steps = np.diff(there if self._last is None else np.concatenate([[self._last], there]))
        self._first = float(there[0]) if self._first is None else self._first
        self._last = float(there[-1])
        if len(steps):
            self._go_by(float(steps[0]) if abs(steps[0]) == 1 and (steps == steps[0]).all() else 0.0)
        if self._ids is not None and _ID_NAME.fullmatch(self.name):
            self._ids.append(there)

    def _go_by(self, step: float) -> None:
        """Note the step of some rows, 0 where it is none or not the same."""
        self._step = step if self._step in (None, step) else 0.0
        if self._step == 0.0 and not _ID_NAME.fullmatch(self.name):
            self._ids = None

    def empty_copy(self) -> Summary:
        """Return an empty summary that reads as this one does, for rows of another process."""
        return Summary(self.name, self.format, self.count_values, code=stable_code)

    def merge(self, other: Summary) -> None:
        """Add what the rows after these show. The result is that of one pass over all of them.

        Both must have started with the same format, and count different values or not alike.
        """
        if not other.n:
            return
        self._merge_values(other)
        self._merge_steps(other)
        if not self.finite:
            self.dates.milliseconds = other.dates.milliseconds
        if self.dates.compact == self.finite and self.dates.milliseconds == other.dates.milliseconds:
            self.dates.compact += other.dates.compact
        if len(self.dates.others) <= _FEW_TEXTS or self.dates.n:  # else it was plain that there are no dates
            self.dates.merge(other.dates)
        self.evidence.merge(other.evidence)
        self.n, self.filled, self.finite = self.n + other.n, self.filled + other.filled, self.finite + other.finite
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.is_numeric |= other.is_numeric
        self.fixed_kind = self.fixed_kind or other.fixed_kind
        self.look = (self.look + other.look)[:_LOOK]
        self._written |= other._written

    def _merge_values(self, other: Summary) -> None:
        """Count values as if the other's chunks had come here: no more once there are many."""
        if len(self.values) >= _COUNTED:
            return
        for code, filled in other.values.items():
            if len(self.values) >= _COUNTED and self.filled + filled > self.counted:
                return
            self.values.setdefault(code, self.filled + filled)
            self.counted = self.filled + filled
        if len(self.values) < _COUNTED:
            self.counted = self.filled + other.counted

    def _merge_steps(self, other: Summary) -> None:
        if self._ids is None or other._ids is None:
            self._ids = None
            return
        if self._last is not None and other._first is not None:
            gap = other._first - self._last
            self._go_by(gap if abs(gap) == 1 else 0.0)
        if other._step is not None:
            self._go_by(other._step)
        if self._ids is not None:
            self._ids += other._ids
        self._first = other._first if self._first is None else self._first
        self._last = other._last if other._last is not None else self._last

    def _is_counter(self) -> bool:
        """Return whether a numeric column just numbers the rows."""
        if self._ids is None or self.finite < self.n:
            return False
        if _ID_NAME.fullmatch(self.name):
            return len(np.unique(np.concatenate(self._ids))) == self.n
        return self.n >= 20 and abs(self._step or 0) == 1

    def _count(self, column: object) -> Hashes:
        """Count different values, and return the hash of each cell's name."""
        place, values = distinct(column)
        names = names_of(values)
        # Python's hash is salted by process, so hashes are never saved; groups are numbered by their first row.
        codes = [self.code(name) & 0xFFFF_FFFF_FFFF_FFFF for name in names]
        if self.count_values and len(self.values) < _COUNTED:
            for code, name in zip(codes, names, strict=True):
                if name:
                    self.values.setdefault(code, self.filled)
            self.counted = self.filled
        return np.array([*codes, 0], np.uint64)[place]


@dataclass(frozen=True, eq=False)
class Scan:
    """What one pass over a table tells."""

    summaries: Mapping[str, Summary]
    n_rows: int
    """Rows of the file, bad ones too."""
    labels: Labels
    """The class of each row, a number of `names`; -1 where the target is missing or the row is bad, `[n_rows]`."""
    names: tuple[str, ...]
    readable: NDArray[np.bool_]
    """Which rows could be read, `[n_rows]`."""
    hashes: Hashes
    """Equal for duplicates: rows that differ at most in the target, `[n_rows]`."""
    parts: NDArray[np.int8] | None
    """The number of each row's split, where the table is already split."""
    bad: list[BadRow]
    mine: _Mine
    """What this process has read of it; all, if it is alone."""
    day_first: Mapping[str, bool | None]
    """Whether the day comes first in each column of dates; None where nothing tells."""
    reread: frozenset[str]
    """Columns whose format was decided otherwise than by the first rows."""
    how: ReadOptions
    class_notes: tuple[str, ...]
    """Names of classes that are written in several ways."""

    def parsed(self, names: Sequence[str], kinds: Mapping[str, str]) -> Table:
        """Return the rows that this process reads, with numbers parsed once, if they were read as they are now."""
        return self.mine.parsed(names, {**kinds, **dict.fromkeys(self.reread, "read again")})

    def rows(self) -> Table:
        """Return the rows that this process reads, with the numbers that they have in the whole table."""
        return renumbered(self.mine.table, self.mine.before)

    @property
    def readers(self) -> Readers:
        """The processes that read the table."""
        return self.mine.readers

    @property
    def sizes(self) -> Sequence[int]:
        """How many rows each of them reads."""
        return self.mine.sizes

    def joined(self, values: NDArray[Number]) -> NDArray[Number]:
        """Return numbers of all rows, of which each process knows those that it reads: `[n_rows]`."""
        start, size = self.mine.before, self.mine.sizes[self.readers.rank]
        return self.readers.join(values[start : start + size], self.mine.sizes)

    def format(self, name: str) -> Json:
        """Return how a column is written, as `column_fit` takes it."""
        summary = self.summaries[name]
        times = 2 * summary.dates.times > (summary.dates.n or summary.n)
        order = self.day_first.get(name)
        if order is None and summary.dates.either:  # what was assumed holds for new data, too
            order = False
        return {"form": summary.format, "day_first": order, "times": times}

    def notes(self) -> list[str]:
        """Return what was assumed of each column, one sentence each."""
        notes = list(self.class_notes)
        for name, summary in self.summaries.items():
            kind = summary.kind()
            if kind in ("number", "id") and summary.fixed_kind is None:
                notes += assumed(name, summary.evidence, summary.format, given=self.how.decimal is not None)
            elif kind == "date" and summary.fixed_kind is None:
                notes += order_notes(name, summary.dates, self.day_first[name], self.how.day_first is not None)
        return notes


class _PerRow:
    """The class, the hash and the split of each row, in arrays that grow: pieces to be joined would be there twice."""

    def __init__(self) -> None:
        self.labels: Labels = np.zeros(0, np.int8)
        self.readable = np.zeros(0, np.bool_)
        self.hashes = np.zeros(0, np.uint64)
        self.parts: NDArray[np.int8] | None = None
        self._end = 0

    def put(self, chunk: Chunk, codes: Labels, hashes: Hashes) -> None:
        """Add the rows of a chunk, with their classes."""
        self._end = end = int(chunk.rows[-1])
        # Class numbers grow with the classes met; one byte is enough for most tables.
        if codes.dtype.itemsize > self.labels.dtype.itemsize:
            self.labels = self.labels.astype(codes.dtype)
        if chunk.parts and self.parts is None:
            self.parts = np.zeros(len(self.labels), np.int8)
        if end > len(self.labels):
            # An eighth more each time: doubling would leave half of a huge array unused.
            self._resize(max(end, len(self.labels) * 9 // 8))
        first = int(chunk.rows[0])  # a slice takes no memory, where rows follow each other
        place = slice(first - 1, end) if end - first + 1 == len(chunk) else chunk.rows - 1
        self.labels[place], self.readable[place], self.hashes[place] = codes, True, hashes
        if self.parts is not None:
            self.parts[place] = part_numbers(chunk.parts or [""] * len(chunk))

    def finish(self, n: int) -> int:
        """Return how many rows there are, at least `n`; those that did not come have no class and no split."""
        n = max(n, self._end)
        self._resize(n)
        for array in (self.labels, self.parts):
            if array is not None:
                array[~self.readable] = -1
        return n

    def renumber(self, names: Sequence[str], all_names: Sequence[str]) -> None:
        """Give classes the numbers that they have among all names."""
        if list(all_names[: len(names)]) != list(names) or len(all_names) > np.iinfo(self.labels.dtype).max:
            place = {name: k for k, name in enumerate(all_names)}
            numbers = [place[name] for name in names]
            self.labels = np.array([*numbers, -1], smallest_type(len(all_names)))[self.labels]

    def join(self, readers: Readers, sizes: Sequence[int]) -> None:
        """Take the rows of all processes, which have as many each, in place of those of this one."""
        if not readers.are_several:
            return
        types = readers.together(lambda: (self.labels.dtype.itemsize, self.parts is not None))
        if any(split for _, split in types) and self.parts is None:
            self.parts = np.full(len(self.labels), -1, np.int8)
        widest = max(size for size, _ in types)
        self.labels = readers.join(self.labels.astype(f"i{widest}"), sizes)
        self.readable, self.hashes = readers.join(self.readable, sizes), readers.join(self.hashes, sizes)
        if self.parts is not None:
            self.parts = readers.join(self.parts, sizes)

    def _resize(self, n: int) -> None:
        """Make the arrays this long, in place: the system moves large ones without a copy."""
        for array in (self.labels, self.readable, self.hashes, self.parts):
            if array is not None:
                array.resize(n, refcheck=False)


@dataclass(frozen=True, eq=False)
class _Mine:
    """What this process has read of a table."""

    readers: Readers
    table: Table
    parsing: NumberCache
    """Where the numbers are kept that were parsed."""
    bad: list[BadRow]
    sizes: Sequence[int]
    """How many rows each process has."""

    @property
    def before(self) -> int:
        """How many rows of the whole table are before these."""
        return sum(self.sizes[: self.readers.rank])

    def parsed(self, names: Sequence[str], kinds: Mapping[str, str]) -> Table:
        """Return its rows by the numbers that they have in the whole table."""
        return renumbered(self.parsing.table(names, kinds, self.bad), self.before)


@dataclass(eq=False)
class _Counts:
    """What rows of a table tell, but for what is known of each row."""

    summaries: dict[str, Summary]
    classes: ClassNames
    semicolons: bool = False
    bad: list[BadRow] = field(default_factory=list)
    n: int = 0
    """Rows, bad ones too."""

    def merged(self, other: _Counts) -> _Counts:
        """Return these with what the rows after them tell."""
        for name, summary in self.summaries.items():
            summary.merge(other.summaries[name])
        self.classes.merge(other.classes)
        bad = [*self.bad, *shifted(other.bad, self.n)]
        return _Counts(self.summaries, self.classes, self.semicolons, bad, self.n + other.n)


def scan_table(
    table: Table, target: str, skip: Sequence[str] = (), how: ReadOptions | None = None, readers: Readers | None = None
) -> Scan:
    """Read a table once for its classes, the kinds of its columns and duplicates; some columns a second time.

    `target` is the column with the class; the columns in `skip` are of no interest. Several `readers` read a piece each
    and have the same result.
    """
    how, readers = how or ReadOptions(), readers or Readers()
    columns = [name for name in table.columns if name != target and name not in skip]
    mine = readers.piece(table)
    kept, parsing = _PerRow(), NumberCache(mine)

    def count() -> _Counts:
        begun = _Counts({}, ClassNames(target))
        if readers.are_several:
            begun = _begun_together(table, columns, how, target)
        return _counted(mine, columns, how, begun, kept, parsing)

    parts = readers.together(count)
    sizes, bad, names = [part.n for part in parts], parts[readers.rank].bad, parts[readers.rank].classes.names
    counts = functools.reduce(_Counts.merged, parts)
    kept.renumber(names, counts.classes.names)
    kept.join(readers, sizes)
    summaries = counts.summaries
    formats = _decided(summaries, how, counts.semicolons)
    reread = {name for name, summary in summaries.items() if summary.format != formats[name]}
    # A column that began with numbers and went on with text has uncounted values: it is read again, alone.
    again = [name for name, summary in summaries.items() if name in reread or not summary.is_counted]
    if again:
        fresh = {name: Summary(name, formats[name], None if name in reread else True) for name in again}
        fresh = _counted_again(table, mine, fresh, readers)
        for name in reread:
            fresh[name].evidence = summaries[name].evidence
        summaries.update(fresh)
    dated = {name: summary.dates for name, summary in summaries.items() if summary.kind() == "date"}
    return Scan(
        summaries, counts.n, kept.labels, tuple(counts.classes.names), kept.readable, kept.hashes, kept.parts,
        counts.bad, _Mine(readers, mine, parsing, bad, sizes), day_first_of(dated, how.day_first), frozenset(reread),
        how, tuple(counts.classes.notes()),
    )  # fmt: skip


def _counted(
    table: Table, columns: Sequence[str], how: ReadOptions, counts: _Counts, kept: _PerRow, parsing: NumberCache
) -> _Counts:
    """Count the rows of a table; the first of them tell formats, unless `counts` has begun already."""
    summaries, classes = counts.summaries, counts.classes
    read: dict[str, Numbers | None] = {}
    for chunk in table.chunks([classes.target, *columns], bad=counts.bad):
        if not len(chunk):
            continue
        if not summaries:
            counts.semicolons = chunk.decimal_comma
            read = _begin(chunk, columns, how, summaries)
        hashes = np.zeros(len(chunk), np.uint64)
        numbers: dict[str, NDArray[np.float64] | None] = {}
        for name in columns:
            of_cells, numbers[name] = summaries[name].add(chunk[name], read.pop(name, None))
            # A row's hash depends on the order of its cells: without the shift and the product, rows that have the
            # same values in other columns would count as duplicates.
            hashes = (hashes ^ (hashes >> np.uint64(29))) * _GOLDEN + _mixed_hashes(of_cells)
        codes = classes.encode(chunk[classes.target])
        codes[_repeated_headers(chunk, classes.target, columns, codes, classes.names)] = -1
        kept.put(chunk, codes.astype(smallest_type(len(classes.names))), hashes)
        parsing.add(chunk, numbers)
    counts.n = kept.finish(max((row.row for row in counts.bad), default=0))
    return counts


def _begin(
    chunk: Chunk, columns: Sequence[str], how: ReadOptions, summaries: dict[str, Summary]
) -> dict[str, Numbers | None]:
    """Begin a summary of each column, and return the numbers of the first rows where these were read as they are.

    What the first rows tell of formats holds until all rows are counted.
    """
    first = {name: Summary(name) for name in columns}
    read = {name: first[name].read(chunk[name]) for name in columns}
    formats = _decided(first, how, chunk.decimal_comma)
    for name, one in first.items():
        same = one.format == formats[name]
        summaries[name] = one if same else Summary(name, formats[name])
        if not same:
            del read[name]
    return read


def _begun_together(table: Table, columns: Sequence[str], how: ReadOptions, target: str) -> _Counts:
    """Return empty counts for a piece of a table, which have begun as those of the whole."""
    counts = _Counts({}, ClassNames(target))
    chunk = next((chunk for chunk in table.chunks([target, *columns], bad=[]) if len(chunk)), None)
    if chunk is not None:
        counts.semicolons = chunk.decimal_comma
        read = _begin(chunk, columns, how, counts.summaries)
        for name, summary in counts.summaries.items():
            summary.add(chunk[name], read.get(name))
            counts.summaries[name] = summary.empty_copy()
    return counts


def _counted_again(table: Table, mine: Table, fresh: dict[str, Summary], readers: Readers) -> dict[str, Summary]:
    """Count some columns again, given empty summaries of them."""

    def count() -> dict[str, Summary]:
        summaries = fresh
        if readers.are_several:
            chunk = next(chunk for chunk in table.chunks(list(fresh), bad=[]) if len(chunk))
            for name, summary in fresh.items():
                summary.add(chunk[name])
            summaries = {name: summary.empty_copy() for name, summary in fresh.items()}
        for chunk in mine.chunks(list(summaries), bad=[]):
            for name, summary in summaries.items():
                summary.add(chunk[name])
        return summaries

    first, *others = readers.together(count)
    for other in others:
        for name, summary in first.items():
            summary.merge(other[name])
    return first


def _decided(summaries: Mapping[str, Summary], how: ReadOptions, semicolons: bool) -> dict[str, NumberFormat]:
    """Return the format of each column, by its evidence so far."""
    evidence = {name: summary.evidence for name, summary in summaries.items()}
    return decide(evidence, decimal=how.decimal, thousands=how.thousands, semicolons=semicolons)


def _repeated_headers(
    chunk: Chunk, target: str, columns: Sequence[str], codes: NDArray[np.int64], classes: Sequence[str]
) -> list[int]:
    """Return the rows that hold the names of the columns, as files do that were put together from several."""
    rows = np.flatnonzero(codes == classes.index(target)).tolist() if target in classes else []
    if len(rows) > _MOST_HEADERS:
        return []
    cells = {name: names_of([chunk[name][i] for i in rows]) for name in columns}
    return [i for k, i in enumerate(rows) if 2 * sum(of[k] == name for name, of in cells.items()) > len(columns)]


class ClassNames:
    """Numbers for the names of classes, in the order in which they come."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._codes: dict[str, int] = {"": -1}
        self._spellings: dict[str, set[str]] = {}

    @property
    def names(self) -> list[str]:
        """The names so far."""
        return list(self._codes)[1:]

    def encode(self, column: object) -> NDArray[np.int64]:
        """Return the number of each cell's class, -1 where there is none."""
        place, values = distinct(column)
        # Names get numbers in the order of appearance; `load` sorts the classes once all are known.
        names = names_of(values, _NO_CLASS)
        for name, value in zip(names, values, strict=True):
            if name and len(self._codes) <= _MOST_CLASSES:
                self._spellings.setdefault(name, set()).add(str(value))
        codes = [self._codes.setdefault(name, len(self._codes) - 1) for name in names]
        self._check()
        return np.array([*codes, -1], np.int64)[place]

    def merge(self, other: ClassNames) -> None:
        """Add the names of the rows after these."""
        for name, written in other._spellings.items():
            self._spellings.setdefault(name, set()).update(written)
        for name in other.names:
            self._codes.setdefault(name, len(self._codes) - 1)
        self._check()

    def _check(self) -> None:
        if len(self._codes) > _MOST_CLASSES:
            raise ValueError(
                Sentence(
                    Argument("target", self.target),
                    f" has more than {_MOST_CLASSES:,} different values, so it cannot be a class: choose another "
                    "column, or put its values into a few groups first",
                )
            )

    def notes(self) -> list[str]:
        """Return which names are written in several ways, and count as one class."""
        return merged_notes(self._spellings)


def names_and_parts(table: Table, target: str | None, n: int) -> tuple[list[str | None] | None, list[str] | None]:
    """Return the class and the part of each of `n` rows, where there are any."""
    classes = None if target is None else ClassNames(table.require_column(target, "target"))
    names: list[str | None] = [None] * n
    parts: list[str] = [""] * n
    for chunk in table.chunks([target or next(iter(table.columns))], bad=[]):
        rows = (chunk.rows - 1).tolist()
        if classes is not None:
            codes = classes.encode(chunk[str(target)]).tolist()
            known = [*classes.names, None]  # -1 is missing
            for row, code in zip(rows, codes, strict=True):
                names[row] = known[code]
        for row, part in zip(rows, chunk.parts or (), strict=False):
            parts[row] = part
    return None if classes is None else names, parts if any(parts) else None


def kinds_of(summaries: Mapping[str, Summary]) -> dict[str, str]:
    """Return what each column holds.

    `"number"`, `"category"`, `"date"`, `"text"` (long free strings) or why it is left out: `"constant"` (the same
    everywhere), `"id"` (a number or name for each row), `"sparse"` (texts in few rows), `"nested"` (lists).
    """
    kinds = {name: summary.kind() for name, summary in summaries.items()}
    strings = [name for name, kind in kinds.items() if kind in ("id", "category") and summaries[name].is_short_text()]
    # A file of two columns, headlines and classes, has no long texts and is still a text task.
    if not any(kind in ("number", "category", "text") for name, kind in kinds.items() if name not in strings):
        # Nothing else to learn from: strings of their own for each row are short texts, not names.
        kinds.update(dict.fromkeys(strings, "text"))
    return kinds


def columns_of(
    kinds: Mapping[str, str], *, dates: bool = True, texts: bool = False, entities: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the columns to learn from, given what each holds, and notes that name the others with the reason.

    `dates` and `texts` say whether these are learned from; `entities` are columns that name what rows belong to.
    """
    reasons: dict[str, str | Argument] = {
        **({} if dates else {"date": "dates"}),
        "constant": "the same in every row",
        "id": "identifiers or names: few values come more than once",
        "unwanted": Argument("drop"),
        "group": Sentence("it groups the rows, ", Argument("group")),
        "time": Sentence("it orders the rows, ", Argument("time")),
        "weight": Sentence("it weighs the rows, ", Argument("weight")),
        **({} if texts else {"sparse": "texts, and missing in most rows"}),
        "nested": "neither numbers nor strings",
        **({} if texts else {"text": Sentence("free text; ", Argument("kind", "text"), " learns from it instead")}),
    }
    notes: list[str] = []
    for kind, reason in reasons.items():
        names = [repr(name) for name, of in kinds.items() if of == kind]
        if names:
            notes.append(Sentence(f"left out: {listed(names, n=20)} (", reason, ")"))
    used = ("number", "category", *(("date",) if dates else ()), *(("text", "sparse") if texts else ()))
    repeated = [
        name for name, kind in kinds.items() if kind in used and (name in entities or _GROUP_NAME.fullmatch(name))
    ]
    if repeated:
        keeps = " keeps rows of one together in the split, ", Argument("drop", repeated[0]), " leaves it out"
        plural = "identifiers" if len(repeated) > 1 else "an identifier"
        ids = f"{listed([repr(name) for name in repeated])} may be {plural} that several rows share: "
        notes.append(Sentence(ids, Argument("group", repeated[0]), *keeps))
    return [name for name, kind in kinds.items() if kind in used], notes


def _kind_of_type(column: pa.Array) -> str | None:
    """Return the kind of a column whose type leaves no doubt."""
    types = require("pyarrow", "train").types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_temporal(kind) and not types.is_duration(kind):
        return "date"
    return "nested" if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind) else None


def stable_code(value: object) -> int:
    """Return a number for a value that is the same in every process, unlike its hash."""
    return int.from_bytes(hashlib.blake2b(str(value).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _hashes(column: pa.Array, code: Callable[[object], int]) -> Hashes:
    if require("pyarrow", "train").types.is_nested(column.type):
        names = [str(value) for value in column.to_pylist()]
        return np.array([code(name) & 0xFFFF_FFFF_FFFF_FFFF for name in names], np.uint64)
    place, values = distinct(column)
    return np.array([code(value) & 0xFFFF_FFFF_FFFF_FFFF for value in values] + [0], np.uint64)[place]


def _mixed_hashes(values: Hashes) -> Hashes:
    """Return hashes whose every bit depends on every bit: neighbouring floats differ in a few."""
    values = (values ^ (values >> np.uint64(33))) * _MIX
    return values ^ (values >> np.uint64(33))


def _share(values: Sequence[str], test: Callable[[str], object]) -> float:
    return float(np.mean([bool(test(value)) for value in values])) if values else 0.0


def _mean_words(values: Sequence[str]) -> float:
    return float(np.mean([len(value.split()) for value in values])) if values else 0.0
