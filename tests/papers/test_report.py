"""The report of a recipe: a table beside the paper's, the figure, every claim with its verdict."""

from __future__ import annotations

import io

import pytest

from tests.cli.running import text_of
from vicinal.papers.report import RecipePage, Rows, write_recipe


def plot() -> bytes:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.new("RGB", (900, 300), "#0072B2").save(file, format="PNG")
    return file.getvalue()


def recipe_page(*, name: str = "z18-tab2", long: str = "a row", failures: dict[str, str] | None = None) -> RecipePage:
    claim = [f"20 %: {long}", "primary", "+4.0 points", "+3.10 points [+2.00, +4.20]", "5", "12 min"]
    return RecipePage(
        name=name,
        title=f"Memorisation of {long}",
        source="Zhang et al. 2018, Table 2",
        sizes="cpu scale, 27 cells, 3 seeds",
        summary=["Of 3 claims: 1 holds, 1 reversed, 1 not tested."],
        claims=[
            [*claim, "holds", ""],
            [*claim, "reversed", ""],
            [*claim, "not tested", "the baseline is not over-confident"],
        ],
        varies="A seed draws weights.",
        beside=Rows(
            ["here", "in the paper", "last error (%): paper", "here"], [[long, "20 %, ERM", "16.6", "16.60 ± 1.20"]]
        ),
        deviations=Rows(["option", "here", "paper"], [["epochs", "20", "200"]]),
        reading=["A <b>reading</b> of the paper."],
        forest=plot(),
        plot=plot(),
        failures=failures or {},
        command="vicinal reproduce z18-tab2 --scale cpu",
        provenance=(("torch", "2.15.0"),),
    )


def test_everything_is_on_the_page(tmp_path):
    text = write_recipe(recipe_page(), tmp_path / "page.html").read_text()
    for expected in (
        "z18-tab2: Memorisation of a row",
        "Zhang et al. 2018, Table 2",
        "Of 3 claims: 1 holds",
        "20 %, ERM",
        "16.60 ± 1.20",
        '<span class="better">holds</span>',
        '<span class="worse">reversed</span>',
        "the baseline is not over-confident",
        "A seed draws weights.",
        "What differs from the paper's setting",
        "data:image/png;base64,",
        "2.15.0",
    ):
        assert expected in text, expected
    assert "vicinal reproduce z18-tab2 --scale cpu" in text_of(tmp_path / "page.html")
    assert "What failed" not in text


def test_failures_are_named_and_text_is_escaped(tmp_path):
    page = recipe_page(name="<script>alert(1)</script>", failures={"cell": "<i>no luck</i>"})
    text = write_recipe(page, tmp_path / "page.html").read_text()
    assert "What failed" in text
    assert "&lt;i&gt;no luck&lt;/i&gt;" in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "A &lt;b&gt;reading&lt;/b&gt;" in text
