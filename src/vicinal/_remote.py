"""Paths of object stores and web servers: `s3://`, `gs://`, `hf://`, `https://` and `memory://`.

A `RemotePath` is a `pathlib.Path`, so code that opens, lists and reads paths needs no second version. pyarrow has the
file systems of S3 and Google Cloud, fsspec the others and the interface of all. Credentials come from the environment
that these libraries read. A URL that holds some is refused, because URLs are printed and recorded.
"""

from __future__ import annotations

import functools
import glob
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path, PosixPath
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from vicinal._checks import ArgumentError, first_line, require

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

SCHEMES = ("s3", "gs", "hf", "https", "http", "memory")
#: `pathlib` makes one slash of two. A command's arguments are paths before they come here.
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}(?=[^/])")
_SECRET = re.compile(r"(?i)(?:^|[^a-z])(?:x-amz-\w+|x-goog-\w+|sig|signature|token|credential|\w*key|secret|password)=")
#: Times that a request is made before its error counts, and the first wait in seconds, which doubles.
_TRIES, _WAIT = 5, 0.2
#: Seconds in which a server must accept a connection, and answer.
_CONNECT, _ANSWER = 10.0, 60.0
#: Bytes of a request for text. A request costs some 50 ms, so that a disk's small blocks would be slow.
_BLOCK = 2**22
#: Errors that another try does not mend.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
_DENIED_BY_STORE = re.compile(r"ACCESS_DENIED|FORBIDDEN|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|HTTP status 403")
#: HTTP statuses of what is not there, of what is not allowed, and of requests that may succeed later.
_MISSING, _DENIED, _LATER = (404, 410), (401, 403, 407), (408, 425, 429)
#: What the environment may hold that a server could send back.
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN")


class RemotePath(PosixPath):
    """A file or folder of an object store or a web server, with what `pathlib.Path` does for files that are read.

    Examples
    --------
    >>> path = RemotePath("s3://bucket/part/1.csv.gz")
    >>> str(path), path.name, path.suffix, str(path.parent / "2.csv")
    ('s3://bucket/part/1.csv.gz', '1.csv.gz', '.gz', 's3://bucket/part/2.csv')
    """

    _status: os.stat_result | None = None
    """What a listing of its folder said of it."""

    def __str__(self) -> str:
        scheme, *rest = self.parts
        return f"{scheme}//{'/'.join(rest)}"

    def __fspath__(self) -> str:
        return str(self)

    @property
    def name(self) -> str:
        """The last part, without the query of a web address."""
        return super().name.partition("?")[0] if self._is_web else super().name

    @property
    def _scheme(self) -> str:
        return self.parts[0].removesuffix(":")

    @property
    def _is_web(self) -> bool:
        return self._scheme in ("http", "https")

    @property
    def _key(self) -> str:
        """The name within its file system."""
        return str(self) if self._is_web else "/".join(self.parts[1:])

    @property
    def _files(self) -> AbstractFileSystem:
        bucket = self.parts[1] if self._scheme == "s3" and len(self.parts) > 1 else None
        return _file_system(self._scheme, bucket)

    def expanduser(self) -> RemotePath:
        """Return the path itself, as do `absolute` and `resolve`."""
        return self

    absolute = expanduser

    def resolve(self, strict: bool = False) -> RemotePath:
        """Return the path itself: there are no links."""
        return self

    def samefile(self, other_path: str | os.PathLike[str]) -> bool:
        """Whether the other path is this one."""
        return str(other_path) == str(self)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the size and whether it is a folder; nothing else is known."""
        return self._status or _status(_retried(self, lambda: self._files.info(self._key)))

    def exists(self) -> bool:
        """Whether a file or a folder is there."""
        try:
            return bool(self.stat())
        except FileNotFoundError:
            return False

    def is_dir(self) -> bool:
        """Whether objects have this name and a slash before theirs; web servers have no folders."""
        return not self._is_web and self.exists() and stat.S_ISDIR(self.stat().st_mode)

    def is_file(self) -> bool:
        """Whether an object has this name."""
        return self.exists() and stat.S_ISREG(self.stat().st_mode)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder is there once an object in it is."""

    def is_symlink(self) -> bool:
        """Return False: there are no links."""
        return False

    def iterdir(self) -> Iterator[RemotePath]:  # type: ignore[override]  # the same class, in other words
        """Yield what is in a folder."""
        for entry in _retried(self, lambda: self._files.ls(self._key, detail=True)):
            if entry["name"].strip("/") != self._key.strip("/"):  # the mark of an empty folder has its own name
                yield self._at(entry)

    def matching(self) -> list[RemotePath]:
        """Return the files that this path, a pattern, matches."""
        if self._is_web:
            raise ArgumentError("path", str(self), "one file: web servers do not list theirs")
        found = _retried(self, lambda: self._files.glob(self._key, detail=True))
        return [self._at(found[name]) for name in sorted(found)]

    @property
    def is_pattern(self) -> bool:
        """Whether it has wildcards. The query of a web address is none."""
        return glob.has_magic("/".join([*self.parts[:-1], self.name])) and not self.exists()

    def open(self, mode: str = "r", buffering: int = -1, *how: Any, **also: Any) -> IO[Any]:  # type: ignore[override]
        """Open it for reading, in blocks that are asked for again where a request fails."""
        raw = _Reader(self)
        if buffering == 0:
            return raw  # type: ignore[return-value]  # as the `open` of Python
        stream = io.BufferedReader(raw, _BLOCK)
        return stream if "b" in mode else io.TextIOWrapper(stream, *how, **also)

    def upload(self, local: Path) -> None:
        """Put a finished local file here; what was there stays until all of it has arrived."""
        _retried(self, lambda: self._files.put_file(str(local), self._key))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        _retried(self, lambda: self._files.rm_file(self._key))

    def check_writable(self, name: str = "path") -> None:
        """Raise where nothing can be written; `name` is the argument."""
        if self._scheme in ("http", "https", "hf"):
            places = "a local file, or s3://, gs:// or memory://, since this place is only read"
            raise ArgumentError(name, str(self), places)

    def _at(self, entry: dict[str, Any]) -> RemotePath:
        path = RemotePath(f"{self._scheme}://{entry['name'].lstrip('/')}")
        path._status = _status(entry)
        return path


def is_remote(path: object) -> bool:
    """Return whether a path or a text is the address of something elsewhere.

    >>> is_remote("s3://bucket/x.csv"), is_remote("./s3/x.csv")
    (True, False)
    """
    return isinstance(path, RemotePath) or (isinstance(path, str | Path) and _URL.match(str(path)) is not None)


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path of this machine, `~` resolved, or a `RemotePath`. A URL with credentials is refused, unprinted.

    >>> type(as_path("memory://x.csv")).__name__, type(as_path("x.csv")).__name__
    ('RemotePath', 'PosixPath')
    """
    if isinstance(path, RemotePath):
        return path
    text = os.fspath(path)
    if not is_remote(text):
        # `pathlib` makes one slash of two, and a drive of Windows has one letter.
        other = re.match(r"([A-Za-z][A-Za-z0-9+]+):/{1,2}(?=[^/])", text)
        if other is not None and not os.path.lexists(text.partition("/")[0]):
            raise ArgumentError("path", f"{other[1]}://…", f"a local path, or one of {_KNOWN}")
        return Path(path).expanduser()
    found = RemotePath(text)
    parts = urlsplit(str(found))
    if "@" in parts.netloc or _SECRET.search(parts.query):
        safe = f"{parts.scheme}://{parts.hostname}{parts.path}"
        raise ArgumentError("path", safe, "a URL without user, password or signature: they come from the environment")
    return found


def local_path(name: str, path: str | os.PathLike[str]) -> Path:
    """Return a path that must be of this machine, such as a run's folder.

    Parameters
    ----------
    name
        The argument.
    path
        Its value.
    """
    if is_remote(os.fspath(path)):
        raise ArgumentError(name, str(path), "a local folder, since runs stay on this machine: copy a finished one")
    return Path(path)


_KNOWN = ", ".join(f"{scheme}://" for scheme in SCHEMES)


class _Reader(io.RawIOBase):
    """The bytes of a remote file, from where the last read ended."""

    def __init__(self, path: RemotePath) -> None:
        super().__init__()
        self._path, self._place = path, 0
        self._file: Any = None
        size = path.stat().st_size
        if size < 0:
            raise OSError(f"{str(path)!r} has a server that does not tell its size: download it, and pass the file")
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._place)
        if wanted <= 0:
            return 0
        content = _retried(self._path, lambda: self._read(wanted))
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)

    def _read(self, n: int) -> bytes:
        try:
            if self._file is None:
                self._file = self._path._files.open(self._path._key, "rb")
            self._file.seek(self._place)
            content: bytes = self._file.read(n)
            if not content:
                raise EOFError("the connection ended early")
            return content
        except BaseException:
            self._file = None  # what is left of it may be at any place
            raise

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        super().close()


@functools.lru_cache(maxsize=16)
def _file_system(scheme: str, bucket: str | None) -> AbstractFileSystem:
    """Return the file system of a scheme, made once a process."""
    if scheme == "s3":
        return require("fsspec.implementations.arrow", "remote").ArrowFSWrapper(_s3(str(bucket)))
    if scheme == "gs":
        files = require("pyarrow.fs", "remote")
        store = files.GcsFileSystem(retry_time_limit=timedelta(seconds=_ANSWER))
        return require("fsspec.implementations.arrow", "remote").ArrowFSWrapper(store)
    if scheme == "hf":
        return require("huggingface_hub", "remote").HfFileSystem()
    # `trust_env` lets aiohttp read ~/.netrc and the variables of proxies.
    web: dict[str, Any] = {"client_kwargs": {"trust_env": True}} if scheme.startswith("http") else {}
    if web:
        require("aiohttp", "remote")
    return require("fsspec", "remote").filesystem(scheme, **web)


def _s3(bucket: str) -> Any:
    files, given = require("pyarrow.fs", "remote"), os.environ.get
    endpoint = given("AWS_ENDPOINT_URL_S3") or given("AWS_ENDPOINT_URL")
    region = given("AWS_REGION") or given("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        region = _retried(f"s3://{bucket}", lambda: files.resolve_s3_region(bucket))
    return files.S3FileSystem(
        region=region,
        endpoint_override=endpoint,
        anonymous=given("AWS_NO_SIGN_REQUEST", "").lower() in ("yes", "true", "1"),
        retry_strategy=files.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        connect_timeout=_CONNECT,
        request_timeout=_ANSWER,
    )


def _status(entry: dict[str, Any]) -> os.stat_result:
    mode = stat.S_IFDIR if entry["type"] == "directory" else stat.S_IFREG
    size = entry.get("size")
    return os.stat_result((mode | 0o444, 0, 0, 1, 0, 0, -1 if size is None else int(size), 0, 0, 0))


def _retried(path: object, request: Callable[[], T]) -> T:
    """Return the answer to a request, which is made again where the network or the server failed."""
    for attempt in range(1, _TRIES + 1):
        try:
            return request()
        except Exception as raised:
            if isinstance(raised, ImportError | ArgumentError):
                raise
            error = _cause_of(raised)
            final = _final_error(path, error)
            if final is not None:
                raise final from None
            if attempt == _TRIES:
                said = f"{type(error).__name__}: {_short(error)}"
                raise OSError(f"{str(path)!r} did not answer in {_TRIES} tries ({said})") from None
            time.sleep(_WAIT * 2 ** (attempt - 1))
    raise AssertionError("the last try returns or raises")


def _cause_of(raised: Exception) -> Exception:
    """Return what went wrong: fsspec says that a file is missing where a web server did not answer."""
    cause = raised.__cause__ if isinstance(raised, FileNotFoundError) else None
    return cause if isinstance(cause, Exception) and _status_of(cause) not in _MISSING else raised


def _final_error(path: object, error: Exception) -> Exception | None:
    """Return the error that a user sees at once, None where another try may help."""
    status, short = _status_of(error), _short(error)
    if isinstance(error, FileNotFoundError) or status in _MISSING:
        return FileNotFoundError(f"there is no file {str(path)!r}")
    if isinstance(error, PermissionError) or status in _DENIED or _DENIED_BY_STORE.search(str(error)):
        advice = "the credentials of the environment do not allow it, or there are none"
        return PermissionError(f"{str(path)!r} may not be used: {advice} ({short})")
    refused = status is not None and 400 <= status < 500 and status not in _LATER
    if not refused and not isinstance(error, _FINAL) and _is_of_network(error):
        return None
    # A mistake in a call is shown as it is, unless it quotes what is secret.
    tells = any(value in str(error) for name in _SECRETS if (value := os.environ.get(name)))
    return OSError(f"{str(path)!r} cannot be used ({type(error).__name__}: {short})") if refused or tells else error


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status that a library's error has, None where it has none."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _short(error: Exception) -> str:
    """Return the first line of an error, without what may be secret: queries of addresses, and credentials."""
    text = re.sub(r"\?[^\s'\")]*", "", first_line(error))
    for name in _SECRETS:
        if value := os.environ.get(name):
            text = text.replace(value, f"<{name}>")
    return text


def _is_of_network(error: Exception) -> bool:
    libraries = ("aiohttp", "fsspec", "httpx", "httpcore", "requests", "urllib3", "huggingface_hub")
    return isinstance(error, OSError | EOFError) or type(error).__module__.startswith(libraries)
