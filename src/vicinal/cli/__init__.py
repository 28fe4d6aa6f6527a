"""The command. `app` has the list of commands, each of which is one file; torch is imported only by one that runs."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    # As Ctrl-C does, it unwinds the stack: what was half written goes. Training ends its step first, and saves it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        from vicinal.cli.app import app
    except ImportError as error:
        if error.name is None or error.name.startswith("vicinal"):
            raise
        sys.exit(f"the command needs {error.name}, which is not installed: pip install 'vicinal[train]'")
    try:
        app(prog_name="vicinal")
    except KeyboardInterrupt:  # before a command could say more
        sys.exit(130)
