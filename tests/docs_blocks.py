"""The examples of the documentation: run the blocks of a page, and compare what they print and draw with the page.

    python -m tests.docs_blocks PAGE ...    # write into pages what their blocks print and draw, where that has changed

- A block of `python` or `bash` is run, in the order of the page, in a folder of the page's own. Blocks of Python share
  a namespace.
- It is followed by a block `output` with what it prints, or by the plot that it saves: NAME.png is docs/img/NAME.png.
- In an `output` block, `...` stands for anything. Decimal numbers may differ by a twentieth: processors round
  differently.
- `<!-- after: start/csv.md -->` starts in the folder that another page left. `<!-- needs: timm -->` skips a page where
  this package is missing.
- A block of `sh` is not run: it needs a network, a cluster or hours. Its options must exist.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import io
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import types
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from rich.console import Console as RichConsole

from tests.cli.running import vicinal
from vicinal import progress
from vicinal.cli import console

ROOT = Path(__file__).parents[1]
#: Pages show what a terminal of this width shows.
WIDTH = 96
IMAGES = ROOT / "docs" / "img"
BLOCK = re.compile(
    r"^```(?P<language>python|bash)\n(?P<code>.*?)^```\n(?P<output>\n*```output\n(?P<expected>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
AFTER = re.compile(r"^<!-- after: (\S+) -->", re.MULTILINE)
NEEDS = re.compile(r"^<!-- needs: (\w+) -->", re.MULTILINE)
NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)"


@dataclass(frozen=True)
class Ran:
    """What the blocks of a page printed, in their order, and the plots that each of them saved."""

    printed: list[str]
    drawn: list[list[str]]
    folder: Path


def missing(page: Path) -> list[str]:
    """Return the packages that a page needs and that are not installed."""
    return [name for name in NEEDS.findall(page.read_text()) if importlib.util.find_spec(name) is None]


def run(page: Path, root: Path) -> Ran:
    """Run a page in a folder under `root`, once for all processes that share it."""
    name = str(page.relative_to(ROOT)).replace("/", "-").removesuffix(".md")
    folder, record = root / name, root / f"{name}.json"
    with FileLock(root / f"{name}.lock"):
        if not record.exists():
            text = page.read_text()
            if before := AFTER.search(text):
                shutil.copytree(run(ROOT / "docs" / before[1], root).folder, folder)
            folder.mkdir(exist_ok=True)
            record.write_text(json.dumps(_run_blocks(text, page, folder)))
    return Ran(*json.loads(record.read_text()), folder)


def _run_blocks(text: str, page: Path, folder: Path) -> tuple[list[str], list[list[str]]]:
    printed, drawn = [], []
    # A real module, so that dataclasses defined in a block find their own namespace.
    module = types.ModuleType("docs_page")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        if NEEDS.search(text):  # packages that Vicinal does not depend on may warn
            warnings.simplefilter("ignore")
        patch.setitem(sys.modules, "docs_page", module)
        patch.chdir(folder)  # what a block writes stays out of the tree
        patch.setenv("MPLBACKEND", "Agg")
        patch.setattr(console, "_rich", lambda: RichConsole(width=WIDTH))
        patch.setattr(console, "_on_terminal", lambda: True)
        patch.setattr(progress, "EVERY", 1e6)  # lines that depend on how fast a machine is
        torch.manual_seed(0)
        for block in BLOCK.finditer(text):
            before = set(folder.rglob("*.png"))
            if block["language"] == "python":
                line = text[: block.start("code")].count("\n")
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * line + block["code"], str(page), "exec"), module.__dict__)
                printed.append(out.getvalue())
            else:
                printed.append("".join(_shell(command) for command in commands(block["code"])))
            drawn.append(sorted(path.name for path in set(folder.rglob("*.png")) - before))
    return [text.replace(str(folder), "...") for text in printed], drawn


def commands(block: str) -> list[list[str]]:
    """Return the commands of a block of a shell, as words; comments are left out."""
    return [words for line in block.replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))]


def _shell(words: list[str]) -> str:
    if words[0] == "vicinal":
        ran = vicinal(*words[1:], code=None)
        return ran.out + ran.err
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def difference(expected: str, actual: str) -> str | None:
    """Return what differs between a page and what its block printed, or None.

    >>> difference("ECE 0.041 in ... s", "ECE  0.042 in 3 s")
    >>> difference("ECE 0.041", "ECE 0.091")
    '0.041 is 0.091 now'
    >>> difference("5 rows", "6 rows")
    '5 is 6 now'
    """
    pattern, numbers = "", []
    for part in re.split(rf"({NUMBER}|─+|\s+|\.\.\.|…)", expected.strip()):
        if part in ("...", "…"):
            pattern += r"[\s\S]*?"
        elif re.fullmatch(NUMBER, part):
            pattern += r"(\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)"
            numbers.append(part)
        elif part and not part.strip("─"):
            pattern += "─+"
        elif part and part.isspace():
            pattern += r"\s+"
        else:
            pattern += re.escape(part)
    found = re.fullmatch(pattern, actual.strip())
    if found is None:
        return f"expected\n{expected}\ngot\n{actual}"
    for page, now in zip(numbers, found.groups(), strict=True):
        a, b = (float(text.replace(",", "")) for text in (page, now))
        digits = len(page.partition(".")[2]) if "e" not in page else 12
        if abs(a - b) > (0.05 * abs(a) + 3 * 10.0**-digits if "." in page else 0):
            return f"{page} is {now} now"
    return None


def same_plot(name: str, folder: Path) -> bool:
    """Return whether a plot that was drawn is that of the page, but for what fonts and rounding change."""
    import numpy as np
    from PIL import Image

    (drawn,) = folder.rglob(name)
    if not (IMAGES / name).exists():
        return False
    ours, page = (Image.open(path).convert("L") for path in (drawn, IMAGES / name))
    close = max(abs(a - b) / b for a, b in zip(ours.size, page.size, strict=True)) < 0.03
    small = [np.asarray(image.resize((64, 64)), dtype=float) for image in (ours, page)]
    return close and float(np.abs(small[0] - small[1]).mean()) < 6


def update(page: Path, root: Path) -> None:
    """Write what the blocks of a page print and draw into it, where that is not there yet."""
    ran, text = run(page, root), page.read_text()
    for block, printed, drawn in reversed(list(zip(BLOCK.finditer(text), ran.printed, ran.drawn, strict=True))):
        if printed and (block["expected"] is None or difference(block["expected"], printed)):
            lines = "\n".join(wrapped(line) for line in printed.strip("\n").splitlines()).splitlines()
            kept = "\n".join(elided(lines, (block["expected"] or "").splitlines()))
            shown = f"```{block['language']}\n{block['code']}```\n\n```output\n{kept}\n```\n"
            text = text[: block.start()] + shown + text[block.end() :]
        for name in drawn:
            if not same_plot(name, ran.folder):
                shutil.copy(next(ran.folder.rglob(name)), IMAGES / name)
    page.write_text(text)


def elided(lines: list[str], before: list[str]) -> list[str]:
    """Return the lines that the page showed of an earlier output: those between the most similar first and last lines.

    >>> elided(["a 1", "b", "c", "d 2", "e"], ["a 7", "...", "d 8", "..."])
    ['a 1', '...', 'd 2', '...']
    """
    if "..." not in before:
        return lines
    shown, start = list[str](), 0
    for dots, group in itertools.groupby(before, lambda line: line == "..."):
        part = list(group)
        if not dots:
            first = _nearest(lines, part[0], start)
            last = None if first is None else _nearest(lines, part[-1], first)
            if first is None or last is None:
                return lines
            shown += lines[first : last + 1]
            start = last + 1
        else:
            shown.append("...")
    return shown


def _nearest(lines: list[str], line: str, start: int) -> int | None:
    """Return the place of the line that is most similar but for its digits, or None if none is."""
    plain = [re.sub(r"[\d.]+", "0", text) for text in (line, *lines[start:])]
    found = difflib.get_close_matches(plain[0], plain[1:], 1, 0.7)
    return start + plain[1:].index(found[0]) if found else None


def wrapped(line: str) -> str:
    """Return a line as a terminal would show it: broken between words."""
    if len(line) <= WIDTH or re.search(r"\S {3,}\S", line):  # rows of a table stay whole
        return line.rstrip()
    return "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # of Lightning itself
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:]:
            if absent := missing(Path(name).resolve()):
                sys.exit(f"{name} needs {', '.join(absent)}")
            update(Path(name).resolve(), Path(folder))
