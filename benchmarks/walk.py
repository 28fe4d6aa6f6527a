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
from pathlib import Path
from types import FrameType

TABLE = Path(__file__).with_name("iris.csv")


def walked(*words: str) -> set[tuple[str, str]]:
    """Return the file and the name of each function that the command calls; imports are not calls."""
    import vicinal
    from vicinal.cli import main

    root, met = str(Path(vicinal.__file__).parent), set()

    def look(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(root):
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
    # A class body runs when its file is imported.
    return {(file, name) for file, name in met if not _is_import(file, name)}


def _is_import(file: str, name: str) -> bool:
    """Whether a code object is a class body: it has the name of a class of that file."""
    import ast

    import vicinal

    tree = ast.parse((Path(vicinal.__file__).parent / file).read_text())
    return name.rpartition(".")[2] in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


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
