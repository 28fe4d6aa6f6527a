"""The command. `app` has the list of commands, each of which is one file; torch is imported only by one that runs."""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
import threading
from types import FrameType

from vicinal._checks import first_line

__all__ = ["main"]

#: What a terminal without these characters is shown instead; of others their numbers.
_PLAIN = {"…": "...", "–": "-", "—": "-", "−": "-", "×": "x", "≥": ">=", "≤": "<=", "±": "+-", "α": "alpha", "ε": "eps"}


def main() -> None:
    """Run the command line."""
    _repair_streams()
    # Both unwind the stack: what was half written goes. Training ends its step first, and saves it.
    signal.signal(signal.SIGTERM, _leave)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a shell started it with Ctrl-C ignored
        signal.signal(signal.SIGINT, _leave)
    try:
        from vicinal.cli.app import app

        app(prog_name="vicinal")
    except ImportError as error:
        if error.name is None or error.name.startswith("vicinal"):
            raise
        if isinstance(error, ModuleNotFoundError):
            sys.exit(f"the command needs {error.name}, which is not installed: pip install 'vicinal[train]'")
        sys.exit(f"the command needs {error.name}, which cannot be loaded: {first_line(error)}")
    except KeyboardInterrupt:  # before a command could say more
        sys.exit(130)
    except RecursionError:
        sys.exit("Error: the arguments are nested too deeply")


def _leave(number: int, frame: FrameType | None) -> None:
    """End by an exception; at once in an import, where extension modules would make other errors of it, or abort."""
    inner = frame
    while inner is not None:
        if inner.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(128 + number)
        inner = inner.f_back
    sys.unraisablehook = _leave_later
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _leave_later(lost: sys.UnraisableHookArgs) -> None:
    """Give the signal again where its exception was lost, in a finaliser or what a library calls: none leaves these."""
    if isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
        number = signal.SIGINT if isinstance(lost.exc_value, KeyboardInterrupt) else signal.SIGTERM
        again = threading.Timer(0.05, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


def _repair_streams() -> None:
    """Let nothing that is printed raise: streams that are closed, and characters that a terminal does not have."""
    codecs.register_error("vicinal.plain", _plain)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell, as in `vicinal … >&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="vicinal.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that cannot be printed (file names may hold bytes that are no text)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in characters), error.end
