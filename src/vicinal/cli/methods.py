"""`vicinal methods`."""

from __future__ import annotations

import importlib.resources
import inspect
import re
from importlib.metadata import entry_points
from typing import Annotated

import typer

from vicinal._checks import nearest_names
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.options import AsJson


@handle_errors
def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this method's card.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what methods there are; with a name, show its card: idea, equation, use, cost, when it hurts."""
    cards = _cards()
    console = Console(as_json=as_json)
    if name is None:
        for title, text in cards.items():
            console.event("method", {"name": title, "idea": _idea(text)})
        console.table(
            "Methods (vicinal methods NAME shows one)",
            ["", "idea"],
            [[title, _idea(card)] for title, card in cards.items()],
            numbers=False,
        )
        return
    wanted = {title.lower(): title for title in cards}.get(name.partition("(")[0].lower())
    if wanted is None:
        raise ValueError(f"there is no method {name!r}{nearest_names(name, cards)}")
    console.event("method", {"name": wanted, "card": cards[wanted]})
    console.markdown(re.sub(r"\$\$(.*?)\$\$", lambda found: _readable(found[1]), cards[wanted], flags=re.DOTALL))


def _cards() -> dict[str, str]:
    """Return the cards by the method's name. Methods of installed packages have their docstring for a card."""
    folder = importlib.resources.files("vicinal") / "cards"
    texts = [file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".md")]
    cards = {text.splitlines()[0].removeprefix("# ").strip(): text for text in texts}
    for entry in entry_points(group="vicinal.objectives"):
        cards.setdefault(
            entry.name, f"# {entry.name}\n\n## Idea\n\n{inspect.getdoc(entry.load()) or 'No docstring.'}\n"
        )
    return dict(sorted(cards.items()))


def _idea(card: str) -> str:
    """Return the first sentence of a card's idea."""
    sentence = re.search(r"^## Idea\s+(.*?\.)(?:\s|$)", card, re.DOTALL | re.MULTILINE)
    return " ".join(sentence[1].split()) if sentence else ""


#: Commands of LaTeX; any other is shown by its name, such as max.
_SYMBOLS = {"lambda": "λ", "pi": "π", "beta": "β", "gamma": "γ", "eta": "η", "sigma": "σ", "varepsilon": "ε",
            "tau": "τ", "phi": "φ", "partial": "∂", "sum": "Σ", "odot": "⊙", "pm": "±", "ne": "≠", "sim": "~",
            "big": "", "Big": "", ",": " ", " ": " ", "quad": "  "}  # fmt: skip


def _readable(equation: str) -> str:
    r"""Return an equation in LaTeX as lines of code for a terminal, with Unicode in place of commands.

    >>> print(_readable(r"\tilde x = \lambda x + (1-\lambda) x_\pi").strip("`").strip())
    x̃ = λ x + (1-λ) x_π
    """
    text = re.sub(r"\\t?frac(\d)(\w)", r"\1/\2", " ".join(equation.split()))
    text = re.sub(r"\\t?frac\{([^}]*)\}\{([^}]*)\}", lambda m: f"{_one(m[1])}/{_one(m[2])}", text)
    text = re.sub(r"\\(?:mathcal|mathrm|text)\{([^}]*)\}", r"\1", text)
    text = re.sub(r"\\tilde (\w)", "\\1\u0303", text)
    text = re.sub(r"\\bar (\w)", "\\1\u0304", text)
    text = text.replace(r"\qquad", "\n").replace("_+", "₊").replace("_-", "₋")
    text = re.sub(r"\\([a-zA-Z]+|.)", lambda m: _SYMBOLS.get(m[1], m[1]), text)
    text = re.sub(r"([_^])\{([^}]*)\}", lambda m: f"{m[1]}{_one(m[2])}", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "\n".join(["```", *lines, "```"])


def _one(text: str) -> str:
    """Return a part of an equation, in brackets where it has several."""
    return text if len(text.lstrip("\\")) == 1 or re.fullmatch(r"\\?\w+|\(\w\)", text) else f"({text})"
