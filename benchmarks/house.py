"""Counts of the source: size, comments, long signatures and bodies, `Any`, and public names.

    python -m benchmarks.house [--all]

The limits are those of CONTRIBUTING. Lines of code leave out comments, docstrings and blank lines.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "vicinal"
#: The most parameters and lines that a function may have without being listed.
PARAMETERS, BODY = 8, 50
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Counts:
    """What was counted, over all files."""

    code: Counter[str] = field(default_factory=Counter)
    comments: int = 0
    untyped: int = 0
    records: int = 0
    signatures: list[tuple[int, str]] = field(default_factory=list)
    bodies: list[tuple[int, str]] = field(default_factory=list)
    public: dict[str, int] = field(default_factory=dict)


def strings(tree: ast.AST) -> set[int]:
    """Return the lines of docstrings, those of fields included."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        for child in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                lines.update(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return lines


def functions(tree: ast.AST) -> Iterator[tuple[Function, int, int]]:
    """Yield each function, the number of its parameters but for self, and the lines of its body."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield node, sum(one.arg not in ("self", "cls") for one in given), lines


def names(tree: ast.Module) -> int:
    """Return how many names `__all__` lists."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in {getattr(target, "id", "") for target in node.targets}:
            return len(node.value.elts) if isinstance(node.value, ast.List | ast.Tuple) else 0
    return 0


def count() -> Counts:
    """Return the counts of the package."""
    counts = Counts()
    for path in sorted(SOURCE.rglob("*.py")):
        text, place = path.read_text(), str(path.relative_to(SOURCE))
        tree, code = ast.parse(text), set()
        blank = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                counts.comments += 1
            elif token.type not in blank:
                code.update(range(token.start[0], token.end[0] + 1))
        counts.code[Path(place).parts[0]] += len(code - strings(tree))
        counts.untyped += len(re.findall(r"\bAny\b", text))
        counts.records += len(re.findall(r"dict\[str, (?:object|Any)\]|\bJson\b", text))
        for node, n, lines in functions(tree):
            if n > PARAMETERS:
                counts.signatures.append((n, f"{place}: {node.name}"))
            if lines > BODY:
                counts.bodies.append((lines, f"{place}: {node.name}"))
        # The package itself lists every objective; only its folders are counted.
        if path.name == "__init__.py" and path.parent != SOURCE:
            counts.public[str(path.parent.relative_to(SOURCE))] = names(tree)
    return counts


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="List folders and functions too.")
    counts, everything = count(), parser.parse_args().all
    total = sum(counts.code.values())
    longest = max((n for n, _ in counts.signatures), default=0)
    rows = [
        ("lines of code", f"{total:,}", "30,600"),
        ("comments per thousand lines", f"{1000 * counts.comments / total:.1f}", "at least 60"),
        ("`Any` per thousand lines", f"{1000 * counts.untyped / total:.1f}", "8"),
        ("`dict[str, object]`, `dict[str, Any]` and `Json`", str(counts.records), ""),
        (f"functions of more than {PARAMETERS} parameters", str(len(counts.signatures)), "10"),
        ("most parameters", str(longest), "14"),
        (f"bodies of more than {BODY} lines", str(len(counts.bodies)), "0"),
        ("public names of folders", str(sum(counts.public.values())), "200"),
    ]
    for name, value, limit in rows:
        print(f"{name:<52}{value:>8}  {limit and f'(limit: {limit})'}")
    if everything:
        for one in counts.code.most_common():
            print(*one)
        for found in (counts.signatures, counts.bodies):
            print(*(f"{n} {where}" for n, where in sorted(found, reverse=True)), sep="\n")
        print(counts.public)


if __name__ == "__main__":
    main()
