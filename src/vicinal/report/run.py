"""The report of a run: what was trained, how far to trust it, where it is wrong, and how to run it again."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from vicinal._atomic import Json
from vicinal.calibrators import LossParts, loss_parts
from vicinal.metrics import ClasswiseTable, Evaluation, Samples, SetEvaluation, Slice
from vicinal.metrics.ood import OODReport
from vicinal.metrics.selective import RiskCoverage, risk_coverage
from vicinal.models.specification import ABOUT_INPUTS
from vicinal.probes import AttackErrors, BetweenCurves
from vicinal.report import sections, verdicts
from vicinal.report.formatting import count, from_here, percent
from vicinal.report.labels import labels_contents, labels_page
from vicinal.report.page import contents, write_page
from vicinal.report.plots import Sheet
from vicinal.runs import Importance, RunResult, Scores, prediction_sets
from vicinal.runs.importance import measured_importance
from vicinal.runs.mistakes import OF_EACH, SHOWN

#: |log T| up to which a temperature changes too little to speak of: a confidence of 90 % becomes 89.5 or 90.4 %.
_HARDLY = 0.05

_UNSEEN = "Each was judged by a model that was trained without it."
_AUM = (
    "The area under the margin (AUM) is how far, on average over training, the label was ahead of the next class; at "
    "or below the threshold it was learned no better than a wrong label is."
)

#: An option of a network that takes more room is not shown.
_LONG = 60


@dataclass(frozen=True, kw_only=True)
class ReportExtras:
    """What a report shows beside the run itself.

    Examples
    --------
    >>> from vicinal.metrics import ood_report
    >>> extras = ReportExtras(ood=[("noise", ood_report([0.9, 0.8, 0.7], [0.6, 0.5]))])
    >>> extras.ood[0][0], extras.audit
    ('noise', None)
    """

    command: str | None = None
    """The command that writes this report again; by default the one that trains the run."""
    ood: Sequence[tuple[str, OODReport]] = ()
    """Names of other data and how well the model tells them from its own."""
    attacks: Sequence[tuple[str, AttackErrors]] = ()
    """Names of attacks and the errors under them."""
    mc_dropout: Evaluation | None = None
    """The metrics of the test set with dropout on, averaged over passes."""
    between: BetweenCurves | None = None
    """What the network does between training samples."""
    audit: Sequence[Json] | None = None
    """Samples whose labels are to be reviewed, the most probably wrong first.

    They are as `mistakes.json` has samples, with `aum` and `threshold` in addition. An empty list says that none does.
    """
    audit_summary: str = ""
    """How many labels look wrong, and how many false alarms are expected among them."""
    slices: Sequence[Slice] | None = None
    """Those of columns that were named in advance; by default all that training measured."""
    importance: Sequence[Importance] = ()
    """Of the columns of a table, as `vicinal.runs.permutation_importance` returns it; by default it is measured."""
    sets: tuple[float, Mapping[str, SetEvaluation]] | None = None
    """The coverage asked of prediction sets, and their metrics, as `vicinal.runs.prediction_sets` measures.

    Sets of 90 % if not given.
    """
    parts: Mapping[str, LossParts] = field(default_factory=dict)
    """Calibration and refinement of the test set before calibration, as `vicinal.calibrators.loss_parts` returns.

    By default they are measured where that takes a moment.
    """


def write_run(result: RunResult, path: str | os.PathLike[str], extras: ReportExtras | None = None) -> Path:
    """Write the report of what `vicinal.runs.run` returned to an HTML file, and return its path.

    Returns
    -------
    Path
        The HTML file.

    Examples
    --------
    >>> from vicinal.runs import Run
    >>> write_run(Run("runs/digits").result(), "report.html")  # doctest: +SKIP
    """
    sheet, extras = Sheet(), extras or ReportExtras()
    extras = replace(extras, importance=extras.importance or _importance(result))
    experiment, data = result.experiment, result.facts["data"]
    shared: dict[str, object] = {
        "title": f"{data['name']}: {_method_of(result)}",
        "method": f"{model_name(result)}, trained by {_method_of(result)}",
        "facts": facts_of(result),
        "command": from_here(extras.command or experiment.command(result.out)),
        "provenance": _provenance(result),
    }
    if result.is_multilabel:
        page = labels_page(sheet, result)
        shared["curves"] = sections.learning_curves(sheet, result.history, result.fit)
        shared["sections"] = labels_contents({**shared, **page})
        return write_page("labels.html.j2", {**shared, **page}, path)
    context = {**shared, **_measured(sheet, result, extras)}
    context["sections"] = _contents(context)
    return write_page("run.html.j2", context, path)


def _importance(result: RunResult) -> list[Importance]:
    """Return the importance of columns; none where the model or its data are gone."""
    try:
        return measured_importance(result)
    except (OSError, ValueError):
        return []


def _method_of(result: RunResult) -> str:
    """Return the method as it was asked for, and what `auto` chose."""
    asked = result.experiment.method
    return f"{result.fit['method']}, chosen by validation rows" if asked == "auto" else asked


def _measured(sheet: Sheet, result: RunResult, extras: ReportExtras) -> dict[str, object]:
    """Return what the report of one target says: the main set first, then other sets, then what was asked for."""
    data = result.facts["data"]
    classes = [str(name) for name in data["classes"]]
    key = next((name for name in ("test", "val") if name in result.sets), None)
    more = {} if extras.mc_dropout is None else {"with MC dropout": extras.mc_dropout}
    main = None if key is None else _set_section(sheet, result.sets[key], _of(key, result.sets[key]), classes, more)
    further = [
        {
            "id": name,
            "name": scored.name,
            "notes": scored.notes,
            **_set_section(sheet, scored, f"{scored.after.n:,} samples of {scored.name}", classes),
        }
        for name, scored in result.sets.items()
        if name not in ("val", "test")
    ]
    context: dict[str, object] = {
        "heading": f"{data['name']}, {count(len(classes), 'class', 'classes')}",
        "verdict": verdicts.judge_run(result, extras.slices, extras.importance),
        "main": main,
        "further": further,
        "calibrator": result.calibrators.text(),
        "warnings": _warnings(result, key),
        "notes": data.get("notes", []),
        "curves": sections.learning_curves(sheet, result.history, result.fit),
        "ood": sections.ood_section(sheet, extras.ood),
        "attacks": sections.attack_table(extras.attacks),
        "between": None if extras.between is None else sections.between_section(sheet, extras.between),
        "audit": None if extras.audit is None else sections.sample_rows(extras.audit),
        "audit_head": _audit_head(extras.audit or (), extras.audit_summary),
        "label_noise": result.label_noise and sections.label_noise_table(result.label_noise, data["sizes"]),
        "baselines": sections.baselines_section(result.test.after, result.run.baselines()) if key == "test" else None,
        "sets": _sets(result, extras.sets, classes),
        "parts": sections.parts_table(extras.parts or _parts(result)),
        **dict.fromkeys(("binary", "risk", "classes", "confusion", "mistakes")),
        "shared": [],
        "slices": None,
        "importance": None,
        "mistakes_head": "",
        "tiles": [],
    }
    if main is not None and key is not None:
        context |= _about(sheet, result, key, classes, extras.slices)
        context["importance"] = sections.importance_section(extras.importance)
    return context


def _audit_head(audit: Sequence[Mapping[str, object]], summary: str) -> str:
    """Say what the audit found, and how: by margins in training, or by models that did not see the samples."""
    how = _AUM if any("aum" in sample for sample in audit) else _UNSEEN
    shown = f"{count(len(audit), 'sample')}, the most probably wrong first. {how}" if audit else ""
    return f"{summary} {shown}".strip()


#: The coverage of the prediction sets that a report shows where none is asked for.
_COVERAGE = 0.9


def _parts(result: RunResult) -> dict[str, LossParts]:
    """Return calibration and refinement of the test set; none where they take long or say nothing."""
    if "test" not in result.sets:
        return {}
    test = result.test
    n, k = test.logits.shape
    enough = n >= verdicts.ENOUGH and n * k <= sections.FEW_SCORES and len(test.labels.unique()) > 1
    return loss_parts(test.labels, logits=test.logits) if enough else {}


def _sets(
    result: RunResult, given: tuple[float, Mapping[str, SetEvaluation]] | None, classes: Sequence[str]
) -> dict[str, object] | None:
    if given is None and {"val", "test"} <= set(result.sets):
        given = _COVERAGE, prediction_sets(result, _COVERAGE)
    return None if given is None else sections.sets_section(*given, classes)


def _contents(context: Json) -> list[tuple[str, str]]:
    return contents(
        [
            ("metrics", "Metrics", context["main"]),
            ("baselines", "Baselines", context["baselines"]),
            ("reliability", "Reliability", context["main"]),
            ("binary", "Two classes", context["binary"]),
            ("risk", "What it may answer", context["risk"]),
            ("sets", "Prediction sets", context["sets"]),
            ("classes", "Classes", context["classes"]),
            ("importance", "Importance", context["importance"]),
            ("slices", "Slices", context["slices"]),
            ("shared", "Error slices", context["shared"]),
            ("mistakes", "Mistakes", context["mistakes"] is not None),
            *((one["id"], one["name"], True) for one in context["further"]),
            ("ood", "Unknown inputs", context["ood"]),
            ("attacks", "Attacks", context["attacks"]),
            ("between", "Between samples", context["between"]),
            ("noise", "Label noise", context["label_noise"]),
            ("audit", "Suspicious labels", context["audit"] is not None),
            ("learning", "Learning", context["curves"]),
            ("trained", "What was trained", True),
            ("rerun", "Run it again", True),
        ]
    )


def _set_section(
    sheet: Sheet, scored: Scores, of: str, classes: Sequence[str], more: Mapping[str, Evaluation] | None = None
) -> dict[str, object]:
    """Return the verdict, the figures (and those of `more` predictions) and the diagrams of one set of samples."""
    before, after = scored.before, scored.after
    same = before.metrics == after.metrics
    return {
        "of": of,
        "verdict": verdicts.judge(after, classes=classes, binary=scored.binary()),
        "table": sections.metrics_table({**({} if same else {"before": before}), "after": after, **(more or {})}),
        "drawings": sections.reliability_pair(
            sheet,
            {"": after} if same else {"before calibration": before, "after calibration": after},
        ),
        "same": same,
        "bins": sections.bins_section(sheet, after),
        "summary": (
            f"On {of} it is right {percent(after.table.accuracy)} of the time and says "
            f"{percent(after.table.confidence)} on average. "
            f"The mean gap (ECE, {after.n_bins} bins) is {percent(after.ece.value, 2)}."
        )
        + (
            ""
            if same
            else f" Before calibration it said {percent(before.table.confidence)}, and the gap was "
            f"{percent(before.ece.value, 2)}."
        ),
    }


def _about(
    sheet: Sheet, result: RunResult, key: str, classes: Sequence[str], slices: Sequence[Slice] | None
) -> dict[str, object]:
    """Return what is said of the main set beside its figures."""
    scored = result.sets[key]
    samples = _samples(scored)
    correct = samples.correct
    held_out = _curve(result.sets["val"]) if key == "test" and "val" in result.sets else None
    k = len(classes)
    by_class = ClasswiseTable(k, scored.after.n_bins).update(scored.labels, logits=scored.calibrators(scored.logits))
    binary = scored.binary()
    about: dict[str, object] = {
        "binary": None if binary is None else sections.binary_section(sheet, binary, classes[1]),
        "tiles": sections.tiles(scored.after, _calibrator_tile(result)),
        "risk": sections.risk_section(sheet, _curve(scored), held_out=held_out),
        "classes": sections.class_table(
            classes,
            by_class.per_class(),
            by_class.n_bins,
            np.bincount(samples.labels, minlength=k),
            np.bincount(samples.predictions, minlength=k),
            np.bincount(samples.labels[correct], minlength=k),
            np.bincount(samples.predictions, samples.confidence, k).astype(np.float64),
        ),
    }
    about["confusion"] = sections.confusion_section(classes, samples.labels, samples.predictions)
    measured: Sequence[Slice] = ()
    if key == "test":
        measured = result.run.slices() if slices is None else slices
        about["slices"] = sections.slices_section(measured)
    if key == "test" and result.run.files.mistakes.exists():
        # A slice of a column has its metrics above; words of texts have not.
        known = {one.name for one in measured}
        shared = [entry for entry in result.run.error_slices() if entry["property"] not in known]
        about["shared"] = sections.error_slices_section(shared)
        shown = sections.sample_rows(result.run.mistakes())
        wrong = count(int((~correct).sum()), "mistake")
        of = f"{wrong} on {_of(key, scored)}"
        about["mistakes"] = shown
        about["mistakes_head"] = (
            f"{of}, the most confident first."
            if len(shown) == int((~correct).sum())
            else f"{of}. The {min(len(shown), SHOWN)} most confident are shown, and the {OF_EACH} most confident of "
            "each label and of each prediction."
        )
    return about


def _curve(scored: Scores) -> RiskCoverage:
    samples = _samples(scored)
    return risk_coverage(samples.confidence, samples.correct)


def _samples(scored: Scores) -> Samples:
    if scored.after.samples is None:
        raise ValueError("a run's evaluation keeps its samples")
    return scored.after.samples


def _of(key: str, scored: Scores) -> str:
    return count(scored.after.n, {"test": "test sample", "val": "validation sample"}[key])


def _calibrator_tile(result: RunResult) -> tuple[str, str, str]:
    if not result.calibrators.only_temperatures:
        return "Calibrator", result.calibrators.text(), "fitted on the validation set"
    return "Temperature", f"{result.temperature:.3g}", _temperature_word(result.temperature)


def _temperature_word(temperature: float) -> str:
    if temperature == 1:
        return "probabilities left as they are"
    if abs(math.log(temperature)) < _HARDLY:
        return "probabilities hardly changed"
    return "it was over-confident" if temperature > 1 else "it was under-confident"


def _warnings(result: RunResult, key: str | None) -> list[str]:
    warnings = []
    if key == "val":
        warnings.append(
            "There is no test set: the metrics are of the validation set, which also chose the temperature and the "
            "epoch, so they are slightly optimistic."
        )
    warnings += [f"{text[0].upper()}{text[1:]}." for text in result.facts["data"].get("warnings", [])]
    notes = [str(note) for note in result.facts.get("notes", [])]  # such as a temperature that could not be fitted
    return [*warnings, *(f"{note[0].upper()}{note[1:]}." for note in notes if note)]


def facts_of(result: RunResult) -> list[tuple[str, str, bool]]:
    """Return what was trained: name, value, and whether it is code."""
    data, network, fit = result.facts["data"], result.facts["network"], result.fit
    config = fit["config"]
    parts = {"train": "to train", "val": "to validate", "test": "to test"}
    sizes = ", ".join(f"{n:,} {parts.get(name, name)}" for name, n in data["sizes"].items())
    chosen = {name: value for name, value in network.get("options", {}).items() if name not in ABOUT_INPUTS}
    of_network = {name: repr(value) for name, value in chosen.items()}
    options = ", ".join(f"{name}={shown}" for name, shown in of_network.items() if len(shown) <= _LONG)
    speed = f"{config['optimizer']}, learning rate {config['lr']:g}, batches of {config['batch_size']}"
    weights = f", {result.facts['weights']:,} weights" if result.facts["weights"] else ""
    stopped = " (stopped early)" if fit.get("stopped_early") else ""
    best = fit.get("best") or {}
    kept = f"; weights of epoch {best['epoch']:g} kept" if "val_nll" in best else ""
    if "share" in result.facts:
        kept += f"; the network counts {round(100 * result.facts['share'])} % in the answers, boosted trees the rest"
    return [
        ("Data", f"{data['name']}, {data['kind']}", False),
        *([("Choice", choice["said"], False)] if (choice := result.facts.get("method_choice")) else []),
        ("Samples", sizes, False),
        ("Method", str(fit["method"]), True),
        ("Network", f"{network['name']}({options}){weights}", True),
        ("Training", fit.get("training", f"{fit['epochs']:g} epochs{stopped} of {speed}{kept}"), False),
        *([("Objective", reported, False)] if (reported := result.objective_summary()) else []),
        ("Seed", str(result.experiment.seed), False),
        ("Time", f"{fit['seconds']:,.0f} s on {fit.get('device', 'cpu')}", False),
    ]


def model_name(result: RunResult) -> str:
    """Return the model that answers: the network, and trees with their shares."""
    network = str(result.facts["network"]["name"])
    if "share" not in result.facts:
        return network
    share = round(100 * result.facts["share"])
    return f"{network} ({share} % network, {100 - share} % boosted trees)"


def _provenance(result: RunResult) -> list[tuple[str, str]]:
    """Return where it came from: folder, data, versions, date."""
    done = result.run.files.evaluation
    versions = ", ".join(f"{name} {version}" for name, version in result.fit.get("versions", {}).items())
    return [
        ("Run folder", from_here(str(result.out))),
        ("Data", str(result.facts["data"].get("fingerprint", "unknown"))),
        ("Versions", versions),
        *(
            [("Finished", f"{datetime.fromtimestamp(done.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC")]
            if done.exists()
            else []
        ),
    ]
