"""What a notebook shows of evaluations, comparisons and reliability tables: HTML with a diagram, and nothing to load.

The diagrams of papers and reports are `vicinal.plots`'; these take no library, so that measuring needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal.metrics.reliability import ReliabilityTable

#: Of the diagram and its margin, in pixels.
_SIDE, _MARGIN = 220, 30


def reliability_svg(table: ReliabilityTable) -> str:
    """Return the reliability diagram: accuracy of each filled bin as a bar, the diagonal where it would fit.

    >>> from vicinal.metrics import ReliabilityTable
    >>> reliability_svg(ReliabilityTable.from_confidences([0.9, 0.6], [True, False])).count("<rect")
    3
    """

    def at(x: float, y: float) -> tuple[float, float]:
        return round(_MARGIN + x * _SIDE, 2), round(8 + (1 - y) * _SIDE, 2)

    bars = []
    for low, high, n, accuracy in zip(
        table.edges[:-1], table.edges[1:], table.bin_count, table.bin_accuracy, strict=True
    ):
        if n:
            x, y = at(float(low), float(accuracy))
            width, height = round(float(high - low) * _SIDE, 2), round(float(accuracy) * _SIDE, 2)
            bars.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#0072B2" stroke="#fff"/>')
    (left, top), (right, bottom) = at(0, 1), at(1, 0)
    label = f"Reliability diagram: accuracy by confidence, ECE {100 * table.ece():.2f} % ({table.n_bins} bins)"
    text = 'font-size="11" font-family="sans-serif" fill="currentColor"'
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{_SIDE + _MARGIN + 10}" height="{_SIDE + 44}">'
        f'<rect x="{left}" y="{top}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#9aa3ae"/>'
        f"{''.join(bars)}"
        f'<line x1="{left}" y1="{bottom}" x2="{right}" y2="{top}" stroke="currentColor" stroke-dasharray="4 3"/>'
        f'<text x="{left}" y="{bottom + 14}" {text}>0</text><text x="{right - 6}" y="{bottom + 14}" {text}>1</text>'
        f'<text x="{left + _SIDE / 2 - 30}" y="{bottom + 14}" {text}>confidence</text>'
        f'<text x="{left}" y="{bottom + 30}" {text}>ECE {100 * table.ece():.2f} % ({table.n_bins} bins)</text></svg>'
    )


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; everything in it is text."""
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def side_by_side(caption: str, *parts: str) -> str:
    """Return parts beside each other under a caption, which is text."""
    return (
        f'<div><p>{escape(caption)}</p><div style="display:flex;gap:2em;flex-wrap:wrap;align-items:start">'
        f"{''.join(f'<div>{part}</div>' for part in parts)}</div></div>"
    )
