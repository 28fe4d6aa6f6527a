"""Files and functions of vicinal that `vicinal train` on a small table calls, by `sys.setprofile`.

    python -m benchmarks.walk [--files]

The table is `benchmarks/iris.csv`. The limit is 65 files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

TABLE = Path(__file__).with_name("iris.csv")


def walked(*words: str) -> set[tuple[str, str]]:
    """Return the file and the name of each function that the command calls, but for those called by imports."""
    import vicinal
    from vicinal.cli import main

    root, met, importing = str(Path(vicinal.__file__).parent), set(), Counter[int]()

    def look(frame: FrameType, event: str, argument: object) -> None:
        code, thread = frame.f_code, threading.get_ident()
        if code.co_name == "<module>":
            # Decorators and defaults run while a file is imported: they are no step of the walk.
            importing[thread] += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing[thread] and code.co_filename.startswith(root):
            met.add((code.co_filename.removeprefix(f"{root}/"), code.co_qualname))

    sys.argv = ["vicinal", *words]
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return met


def main() -> None:
    """Print how many files and functions there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="List the files, with the number of their functions.")
    listed = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        met = walked("train", str(TABLE), "--target", "species", "--epochs", "2", "--out", f"{folder}/run")
    files = sorted({file for file, _ in met})
    print(f"{len(files)} files and {len(met)} functions")
    for file in files if listed else []:
        print(f"{sum(one == file for one, _ in met):4} {file}")


if __name__ == "__main__":
    main()
