"""`vicinal methods`."""

from __future__ import annotations

import importlib.resources
import re
from typing import Annotated

import typer

from vicinal._checks import nearest_names
from vicinal.cli.speaking import Speaker, kindly

__all__ = ["methods"]


@kindly
def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this method's card.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for machines.")] = False,
) -> None:
    """Say what methods there are; with a name, show its card: idea, equation, use, cost, when it hurts."""
    cards = _cards()
    speaker = Speaker(as_json=as_json)
    if name is None:
        for title, text in cards.items():
            speaker.event("method", {"name": title, "idea": _idea(text)})
        speaker.table(
            "Methods (vicinal methods NAME shows one)",
            ["", "idea"],
            [[title, _idea(card)] for title, card in cards.items()],
            figures=False,
        )
        return
    wanted = {title.lower(): title for title in cards}.get(name.partition("(")[0].lower())
    if wanted is None:
        raise ValueError(f"there is no method {name!r}{nearest_names(name, cards)}")
    speaker.event("method", {"name": wanted, "card": cards[wanted]})
    speaker.markdown(cards[wanted])


def _cards() -> dict[str, str]:
    """Return the cards by the method's name."""
    folder = importlib.resources.files("vicinal") / "cards"
    texts = [file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".md")]
    return dict(sorted((text.splitlines()[0].removeprefix("# ").strip(), text) for text in texts))


def _idea(card: str) -> str:
    """Return the first sentence of a card's idea."""
    found = re.search(r"\*\*Idea\.?\*\*\s*(.*?\.)(?:\s|$)", card, re.DOTALL)
    return " ".join(found[1].split()) if found else ""
