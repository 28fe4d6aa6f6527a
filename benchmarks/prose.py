"""How the documentation reads: words in a sentence, long sentences, colons and semicolons, page by page.

    python -m benchmarks.prose [PAGE ...]

Only prose counts: no code, tables, headings, formulas, comments and front matter. An item of a list begins a sentence,
code between backticks is one word, and a link is its text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Pages that a program writes from results are measured by their program's tests.
GENERATED = ("docs/evidence", "docs/gallery/")

_DROPPED = [
    (r"\A---\n.*?^---\n", "\n"),  # front matter
    (r"^( *)(```+|~~~+).*?^\1\2 *$", "\n"),
    (r"<!--.*?-->", " "),
    (r"\$\$.*?\$\$", "\n"),
    (r"^(?:#|\||:::|<|!!! |\?\?\? |=== ).*$", "\n"),  # headings, tables, reference, HTML, admonitions
    (r"(?<=\n\n)(?: {4}(?! *[-*\d]).*\n)+", "\n"),  # indented code
    (r"!\[[^\]]*\]\([^)]*\)(?:\{[^}]*\})?", " "),  # images
    (r"`[^`]*`", "code"),
    (r"\[([^\]]*)\]\([^)]*\)(?:\{[^}]*\})?", r"\1"),
    (r"https?://\S+", "address"),
    (r"\b(et al|e\.g|i\.e|vs|cf|Fig|Eq|Eqs|Sec|approx|Mio)\.", r"\1"),
]


@dataclass(frozen=True)
class Prose:
    """The sentences of a text, as numbers of words, and how many colons and semicolons it has."""

    words: tuple[int, ...]
    marks: int

    def __add__(self, other: Prose) -> Prose:
        return Prose(self.words + other.words, self.marks + other.marks)

    @property
    def mean(self) -> float:
        return sum(self.words) / max(len(self.words), 1)

    @property
    def long(self) -> float:
        """The share of sentences with more than 30 words, in per cent."""
        return 100 * sum(n > 30 for n in self.words) / max(len(self.words), 1)

    @property
    def marks_rate(self) -> float:
        """Colons and semicolons in 100 words."""
        return 100 * self.marks / max(sum(self.words), 1)

    def __str__(self) -> str:
        words = f"{sum(self.words):6d} words  {self.mean:5.1f} a sentence"
        return f"{words}  {self.long:5.1f} % long  {self.marks_rate:4.2f} marks"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page in Markdown."""
    for pattern, replacement in _DROPPED:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE | re.DOTALL if ".*?" in pattern else re.MULTILINE)
    for part in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s", text, flags=re.MULTILINE):
        for sentence in re.split(r"(?<=[.!?])[*_)\"”]*\s+", part):
            if re.search(r"\w", sentence):
                yield " ".join(sentence.split())


def measure(text: str) -> Prose:
    """Measure one page."""
    found = list(sentences(text))
    return Prose(
        tuple(len(re.findall(r"\S*\w\S*", sentence)) for sentence in found),
        sum(len(re.findall(r"[:;](?!\w)", sentence)) for sentence in found),
    )


def pages() -> list[Path]:
    """Return the pages that people write: the site, the cards and the files at the top."""
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src/vicinal/cards").glob("*.md"), ROOT / "benchmarks/README.md"]
    found += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return sorted(page for page in found if not str(page.relative_to(ROOT)).startswith(GENERATED))


def main() -> None:
    asked = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    whole = Prose((), 0)
    for page in asked:
        one = measure(page.read_text(encoding="utf-8"))
        whole += one
        print(f"{one}  {page.relative_to(ROOT)}")
        if sys.argv[1:]:
            for sentence in sentences(page.read_text(encoding="utf-8")):
                if (n := len(sentence.split())) > 25 or len(re.findall(r"[:;](?!\w)", sentence)) > 1:
                    print(f"    {n:3d} {sentence}")
    print(f"{whole}  all {len(asked)} pages")


if __name__ == "__main__":
    main()
