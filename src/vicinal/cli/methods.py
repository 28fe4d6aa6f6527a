"""`vicinal methods`."""

from __future__ import annotations

import importlib.resources
import re
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
    console.markdown(cards[wanted])


def _cards() -> dict[str, str]:
    """Return the cards by the method's name."""
    folder = importlib.resources.files("vicinal") / "cards"
    texts = [file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".md")]
    return dict(sorted((text.splitlines()[0].removeprefix("# ").strip(), text) for text in texts))


def _idea(card: str) -> str:
    """Return the first sentence of a card's idea."""
    sentence = re.search(r"\*\*Idea\.?\*\*\s*(.*?\.)(?:\s|$)", card, re.DOTALL)
    return " ".join(sentence[1].split()) if sentence else ""
