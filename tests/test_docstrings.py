"""Every public docstring says what is returned and shows an example."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

import vicinal
from vicinal.runs import Experiment, run

MODULES = ["", "calibrators", "data", "losses", "metrics", "mixing", "models", "plots", "predictions", "probes", "runs",
           "report", "training", "tables"]  # fmt: skip
INTEGRATIONS = Path(vicinal.__file__).parent / "integrations"

#: Functions without `Returns`, which must not become more.
RETURNS_NOTHING = {
    *(f"vicinal.losses.check_{what}" for what in ("later", "targets", "values")),
    "vicinal.runs.measure_baselines",
}
#: Names without an example, which must not become more.
NO_EXAMPLE = {"vicinal.integrations.calibrated.Classifier"}  # a protocol for annotations: nobody makes one
#: Names whose example needs a trained run or draws a report. It is skipped there and run by the slow test below.
NEEDS_RUN = {
    "vicinal.load",
    *(f"vicinal.report.{name}" for name in ("write_comparison", "write_predictions", "write_run")),
    *(
        f"vicinal.runs.{name}"
        for name in ("Run", "RunResult", "attacks_on", "audited", "audited_by_aum", "between", "measure_baselines",
                     "merged", "ood_reports", "permutation_importance", "prediction_sets", "run", "run_grid",
                     "with_mc_dropout")
    ),
}  # fmt: skip


def public() -> dict[str, tuple[bool, str]]:
    """Return by name whether it is a function, and its docstring."""
    found, seen = {}, set()
    for module in MODULES:
        package = importlib.import_module(f"vicinal.{module}".rstrip("."))
        for name in package.__all__:
            thing = getattr(package, name)
            if (inspect.isfunction(thing) or inspect.isclass(thing)) and id(thing) not in seen:
                seen.add(id(thing))
                found[f"{package.__name__}.{name}"] = inspect.isfunction(thing), inspect.cleandoc(thing.__doc__ or "")
    # Parsed, not imported: Lightning and transformers take seconds.
    for file in sorted(INTEGRATIONS.glob("[a-z]*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found[f"vicinal.integrations.{file.stem}.{node.name}"] = (
                    isinstance(node, ast.FunctionDef),
                    ast.get_docstring(node) or "",
                )
    return found


PUBLIC = public()


def test_every_public_function_says_what_it_returns() -> None:
    missing = {
        name
        for name, (is_function, text) in PUBLIC.items()
        if is_function and not re.search(r"^Returns\n-------\n\S", text, re.MULTILINE)
    }
    assert missing == RETURNS_NOTHING


def test_every_public_name_has_an_example() -> None:
    missing = {
        name
        for name, (_, text) in PUBLIC.items()
        if not re.search(r"^Examples\n--------\n(?:.*\n)*?>>> ", text, re.MULTILINE)
    }
    assert missing == NO_EXAMPLE


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(PUBLIC[name][1])


def test_only_examples_that_need_a_run_are_skipped() -> None:
    """An example counts by its last line: the first ones may prepare it."""
    skipped = {name for name in PUBLIC if (lines := examples(name)) and lines[-1].options.get(doctest.SKIP)}
    assert skipped == NEEDS_RUN


@pytest.mark.slow
def test_examples_that_need_a_run_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("predictions.csv").write_text("label,prob_a,prob_b\n" + "a,0.9,0.1\nb,0.4,0.6\nb,0.7,0.3\n" * 20)
    Path("table.csv").write_text("x,y\n" + "".join(f"{i / 7},{'ab'[i % 5 > 2]}\n" for i in range(200)))
    digits = Experiment(source="digits", model_options={"width": 4}, training={"epochs": 1})
    table = Experiment(
        source="table.csv", data={"target": "y"}, model="mlp", model_options={"dropout": 0.1}, training={"epochs": 1}
    )
    for name, experiment in (("digits", digits), ("table", table)):
        run(experiment, f"runs/{name}", progress=False)
    for name in sorted(NEEDS_RUN):
        thing = inspect.unwrap(getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]))
        names = {**vars(vicinal.runs), **vars(sys.modules[thing.__module__])}
        for example in examples(name):
            exec(compile(example.source, name, "single"), names)
