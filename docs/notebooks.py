"""Write the notebooks in `examples/` from the pages that they are: a training loop, a CSV, a paper.

python docs/notebooks.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {"loop": "start/loop.md", "csv": "start/csv.md", "paper": "reproducing.md"}
_BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n*```output\n.*?^```\n)?", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> str:
    """Return a page of the site as a notebook without outputs. Links and images of the site are left out."""
    cells: list[dict[str, object]] = []

    def add(kind: str, text: str) -> None:
        if lines := text.strip("\n").splitlines(keepends=True):
            extra = {"execution_count": None, "outputs": []} if kind == "code" else {}
            cells.append({"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": lines, **extra})

    end = 0
    for block in _BLOCK.finditer(page):
        add("markdown", _words(page[end : block.start()]))
        shell = "".join(f"!{line}\n" for line in block[2].splitlines())
        add("code", shell if block[1] == "bash" else block[2])
        end = block.end()
    add("markdown", _words(page[end:]))
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _words(text: str) -> str:
    text = re.sub(r"^!\[.*\n|<!--.*?-->\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


if __name__ == "__main__":
    for name, page in NOTEBOOKS.items():
        text = notebook((ROOT / "docs" / page).read_text(encoding="utf-8"))
        (ROOT / "examples" / f"{name}.ipynb").write_text(text, encoding="utf-8")
