"""Open regular files, plain or compressed, and turn the errors of libraries into sentences."""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import hashlib
import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from vicinal._checks import Argument, Sentence
from vicinal._memory import beyond_memory, memory_limit
from vicinal.tables.base import LARGEST_ROW


class DamagedArrayError(EOFError):
    """An array of a file that is not what its header says."""


#: FORMAT_XZ only: the older LZMA format reads a file of zeros as any number of empty files.
_COMPRESSIONS: Mapping[str, Any] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": partial(lzma.open, format=lzma.FORMAT_XZ),
}
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
_BLOCK = 2**20
#: Forms that pyarrow reads at once, with types.
_TYPED = ("Parquet", "Arrow", "ORC")
#: How files begin that are no text, what they are, and how their names end.
_BINARY = {
    b"PAR1": ("a Parquet file", ".parquet"),
    b"ARROW1": ("an Arrow file", ".feather"),
    b"ORC": ("an ORC file", ".orc"),
    b"\x1f\x8b": ("compressed by gzip", ".csv.gz"),
    b"\xfd7zXZ": ("compressed by xz", ".csv.xz"),
    b"PK\x03\x04": ("an Excel file or a ZIP archive", ".xlsx or .csv.zip"),
    b"\xd0\xcf\x11\xe0": ("an old Excel file: save it as .xlsx", ""),
    b"\x89HDF": ("an HDF5 file: save it as Parquet", ""),
    b"SQLite format 3\0": ("a database of SQLite: export the table as CSV", ""),
}
#: Blocks that are looked at for the encoding, and the share of letters beyond ASCII that may follow another in Western
#: European text.
_BLOCKS_LOOKED_AT, _SIDE_BY_SIDE = 16, 0.2
#: What part of the memory that is allowed a block of text may take, which is parsed at once, and the most for Arrow.
_BLOCKS, _LARGEST_BLOCK = 64, 2**30

#: Files that are not regular, by their mode. Reading one may never end.
_SPECIAL = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
            (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a folder"))  # fmt: skip


def regular(path: Path) -> Path:
    """Return the path of a regular, readable file that is not empty, or say what it is instead."""
    name = str(path)
    try:
        status = path.stat()
        with path.open("rb") if stat.S_ISREG(status.st_mode) else ExitStack():
            pass
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{name!r} is a link that leads back to itself: no file is behind it") from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise PermissionError(error.errno, f"{name!r} may not be read by this user") from error
        raise
    for test, what in _SPECIAL:
        if test(status.st_mode):
            raise ValueError(f"{name!r} is {what}, not a regular file: write its content to a file first")
    if status.st_size == 0:
        raise ValueError(f"{name!r} is empty (0 bytes): was it written completely?")
    return path


def text_file(path: Path) -> Path:
    """Return the path of a file of text, or say what it is by its first bytes."""
    with path.open("rb") as stream:
        head = stream.read(16)
    for start, (what, suffix) in _BINARY.items():
        # A text may begin with the letters of a form, but holds no control characters.
        if (
            head.startswith(start)
            and re.search(rb"[\x00-\x08\x0e-\x1f]", head)
            and path.suffix.lower() not in {*_COMPRESSIONS, ".zip"}
        ):
            end = f": its name must end in {suffix}" if suffix else ""
            raise ValueError(f"{str(path)!r} is no text but {what}{end}")
    return path


def identity(path: Path, real: Path) -> object:
    """Return an identity that two names of one file share: a hard link has another path but the same inode.

    Parameters
    ----------
    path
        The file.
    real
        Where it is when all links are resolved.
    """
    status = path.stat()
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 and status.st_ino else real


def links_left_out(n: int) -> str:
    """Return the note on links to files that are in the folder already."""
    return f"left out: {n} link{'s' * (n > 1)} to files that are here already"


def suffix_of(path: Path) -> str:
    """Return the suffix of a file without that of its compression, in lower case.

    >>> suffix_of(Path("a.b.CSV.gz"))
    '.csv'
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in {*_COMPRESSIONS, ".zip"}:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def unpacked(path: Path, suffixes: Iterable[str]) -> Iterator[IO[bytes]]:
    """Open a file, or the one file of these suffixes in a ZIP archive, as its uncompressed bytes."""
    with ExitStack() as stack:
        stream = stack.enter_context(path.open("rb"))
        if path.suffix.lower() == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(stream))
            members = [name for name in archive.namelist() if suffix_of(Path(name)) in suffixes]
            if len(members) != 1:
                raise ValueError(f"{str(path)!r} must hold exactly one table, got {members or 'none'}: unpack it")
            yield stack.enter_context(archive.open(members[0]))
        else:
            unpack: Callable[[IO[bytes]], IO[bytes]] | None = _COMPRESSIONS.get(path.suffix.lower())
            yield stream if unpack is None else stack.enter_context(unpack(stream))


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP archive, wherever it is."""
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        yield archive


def text_block() -> int:
    """Return the bytes of text to parse at a time, into which a row must fit."""
    return min(max(memory_limit(2**28) // _BLOCKS, 2**22), _LARGEST_BLOCK)


def lines_of(path: Path, stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Yield lines. A line longer than a row may be is an error: a compressed file can hold one of any length."""
    limit = memory_limit(LARGEST_ROW)
    for line in iter(partial(stream.readline, limit + 1), b""):
        if len(line) > limit:
            raise beyond_memory(f"a line of {str(path)!r}", limit)
        yield line


@contextmanager
def readable_errors(path: Path, form: str) -> Iterator[None]:
    """Turn what libraries raise for a broken file into a sentence that names the file."""
    name = str(path)
    try:
        yield
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's own error names the file already
        packed = path.suffix.lower() in {*_COMPRESSIONS, ".zip"}
        what = "cannot be unpacked" if packed else f"is no readable {form} file"
        why = f" ({error})" if isinstance(error, DamagedArrayError) else ""  # those of libraries are theirs
        raise ValueError(f"{name!r} {what}{why}: is it complete?") from error
    except (ValueError, NotImplementedError) as error:  # pyarrow's ArrowInvalid is one
        if not type(error).__module__.startswith("pyarrow"):
            raise
        if form in _TYPED:
            raise ValueError(f"{name!r} is no readable {form} file: is it complete?") from error
        if "straddling" in str(error):
            close = "close a quotation mark, if one is left open"
            raise beyond_memory(f"a row of {name!r}", text_block(), share=_BLOCKS, instead=close) from error
        raise ValueError(f"{name!r} cannot be read as a table: {error}") from error


def known_encoding(encoding: str | None) -> str:
    """Return the name of an encoding of text, UTF-8 if none is given."""
    try:
        "".encode(encoding or "utf-8")
        if codecs.lookup(encoding or "utf-8").name in ("idna", "punycode"):
            raise LookupError("of the names of hosts")
    except (LookupError, UnicodeError) as error:  # unknown, or a codec of bytes such as base64
        known = " is not known: pass 'utf-8', 'latin-1', 'cp1252', 'utf-16', …"
        raise ValueError(Sentence(Argument("encoding", encoding), known)) from error
    return encoding or "utf-8"


def detect_encoding(stream: IO[bytes]) -> str | None:
    """Return the encoding of text that is not UTF-8, where it is certain: UTF-16, UTF-32 by a mark, or Windows-1252.

    Letters beyond ASCII stand alone in Western European text. They are side by side in other alphabets and in damaged
    UTF-8. None means UTF-8 as far as this looks, or an encoding that the user must name.
    """
    # charset-normalizer is no replacement. Version 3.5.2 takes a table of Spanish or French names in Windows-1252 for
    # cp1250, so that "Peña" silently becomes "Peńa", and a few Russian cells in cp1251 for Korean. Here a doubtful
    # encoding is an error that says which bytes are odd.
    # A letter of several bytes may lie across two blocks, which an incremental decoder joins.
    decoder, before = codecs.getincrementaldecoder("utf-8")(), b""
    for _ in range(_BLOCKS_LOOKED_AT):
        block = stream.read(_BLOCK)
        if not before and block[:4] in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
            return "utf-32"
        if not before and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return "utf-16"
        if not before and (half := _unmarked_utf16(block)):
            return half
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError:
            return "cp1252" if _is_western(before[-4:] + block) else None
        if not block:
            break
        before = block
    return None


def _unmarked_utf16(block: bytes) -> str | None:
    """Return which UTF-16 lacks its mark: most letters of a table are ASCII, with a zero on one side and never both."""
    zero = np.frombuffer(block[: len(block) // 2 * 2], np.uint8).reshape(-1, 2) == 0
    first, second = zero.mean(axis=0) if len(zero) else (0.0, 0.0)
    return "utf-16-le" if not first and second > 0.5 else "utf-16-be" if not second and first > 0.5 else None


def _is_western(block: bytes) -> bool:
    try:
        text = block.decode("cp1252")
    except UnicodeDecodeError:  # a byte that is no letter there
        return False
    beyond = np.frombuffer(block, np.uint8) >= 0x80
    # Two letters beyond ASCII in a row are rare in Western words, and the rule in Greek or Cyrillic ones.
    side_by_side = np.count_nonzero(beyond[1:] & beyond[:-1])
    if b"\0" in block or side_by_side > _SIDE_BY_SIDE * np.count_nonzero(beyond):
        return False
    # A letter beyond ASCII that stands alone, as a code for a sex, is more often Cyrillic than à.
    alone = sum(letter.isalpha() for letter in re.findall(r"(?<![^\W\d_])[^\x00-\x7f](?![^\W\d_])", text[:_BLOCK]))
    return bool(alone <= _SIDE_BY_SIDE * np.count_nonzero(beyond))


def _likely_encoding(line: bytes) -> str:
    """Return the encoding that a line of text other than UTF-8 probably has."""
    letters = np.frombuffer(line, np.uint8)
    letters = letters[letters >= 0xC0]
    # Most letters of a text are small: they follow the capitals in cp1251, and come before them in KOI8-R.
    if not _is_western(line) and len(letters):
        return "cp1251" if 2 * np.count_nonzero(letters >= 0xE0) >= len(letters) or len(letters) < 3 else "koi8-r"
    try:
        line.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def wrong_encoding(path: Path, stream: IO[bytes], encoding: str | None) -> ValueError:
    """Return the error for text in another encoding than it is read in: where, and which it may be."""
    head, guess, where = b"", "cp1252", "it holds other bytes"
    for number, line in enumerate(lines_of(path, stream), start=1):
        head = head or line[:2]
        try:
            line.decode(encoding or "utf-8")
        except UnicodeError as error:
            if isinstance(error, UnicodeDecodeError):
                where = f"line {number:,} holds the byte 0x{line[error.start]:02x}"
            guess = _likely_encoding(line)
            break
        # A zero byte decodes as UTF-8 without an error, and yet no text has one.
        if b"\0" in line:
            if encoding is None and not _is_wide(line):
                return ValueError(f"{str(path)!r} holds a zero byte in line {number:,}, which no text does: remove it")
            where, guess = f"line {number:,} holds zero bytes", "utf-16"
            break
    if head in (b"\xff\xfe", b"\xfe\xff"):
        guess = "utf-16"
    return ValueError(
        Sentence(
            f"{str(path)!r} is not {encoding or 'UTF-8'}: {where}. Pass the encoding it was written in, probably ",
            Argument("encoding", guess),
        )
    )


def _is_wide(line: bytes) -> bool:
    """Return whether zeros lie where UTF-16 has them: every other byte of plain letters."""
    return max(line[::2].count(0), line[1::2].count(0)) > len(line) / 4


def fingerprint(*chunks: bytes) -> str:
    """Return the hash of some bytes, as every result records it."""
    return fingerprint_of(chunks)


def fingerprint_of(chunks: Iterable[bytes]) -> str:
    """Return `fingerprint` of bytes that come one after the other."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(len(chunk).to_bytes(8, "big"))  # so that a chunk cannot end where another begins
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def content_fingerprint(path: Path, suffixes: Iterable[str]) -> str:
    """Return `fingerprint` of a file's uncompressed content, without the whole of it in memory."""

    def blocks() -> Iterator[bytes]:
        with unpacked(path, suffixes) as stream:
            while block := stream.read(_BLOCK):
                yield block

    with readable_errors(path, "table"):
        packed = path.suffix.lower() in {*_COMPRESSIONS, ".zip"}
        size = sum(map(len, blocks())) if packed else path.stat().st_size
        digest = hashlib.sha256(size.to_bytes(8, "big"))
        for block in blocks():
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"
