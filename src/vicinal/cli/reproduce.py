"""`vicinal reproduce`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal._checks import ArgumentError, choice
from vicinal._portable import make_portable
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.options import MOST_SEEDS, Common, PoolOptions, takes_records, use_device
from vicinal.cli.outputs import check_outputs
from vicinal.training.config import device_name

if TYPE_CHECKING:
    from vicinal.papers.checking import Batch
    from vicinal.papers.execute import Plan
    from vicinal.papers.results import Result
    from vicinal.runs.scheduler import Pool


@dataclass(frozen=True)
class _Folders:
    """Where results go, and data come from."""

    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where results and runs go; by default reproduced/SCALE.")
    ] = None
    data_root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where data sets are; else the folder in VICINAL_DATA.")
    ] = None


@dataclass(frozen=True)
class _Wanted:
    """Which cells to run."""

    seeds: Annotated[
        str | None,
        typer.Option(metavar="N|A-B", help="Run the first N seeds, or seeds A to B; they are added to the result."),
    ] = None
    more_seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=MOST_SEEDS, help="Add N seeds to those of the result.")
    ] = None
    until: Annotated[
        str | None,
        typer.Option(metavar="decided", help="Add seeds where they decide most claims for their cost; see --hours."),
    ] = None
    hours: Annotated[float, typer.Option(min=0, help="With --until: begin nothing after so many hours.")] = 6.0
    only: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Only rows whose name holds this; may be repeated.")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and what they cost; run nothing.")] = False
    check: Annotated[
        bool, typer.Option("--check", help="List data, weights, disk and GPU hours that are needed; run nothing.")
    ] = False
    allow_slices: Annotated[
        bool, typer.Option("--allow-slices", help="At paper scale take data sets with too few samples; results say so.")
    ] = False

    def __post_init__(self) -> None:  # before torch is imported
        _seeds(self.seeds, 0)
        if self.seeds is not None and self.more_seeds is not None:
            raise ValueError("give --seeds or --more-seeds, not both")
        if self.until is not None:
            choice("until", self.until, ("decided",))


@dataclass(frozen=True)
class _Evidence:
    """What is shown of results that are there."""

    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Finished results by scale (FOLDER/cpu/NAME.json), for the list and --pages."
        ),
    ] = None
    coverage: Annotated[
        bool,
        typer.Option(
            "--coverage", help="List every row, column and panel of the papers with the recipe that covers it."
        ),
    ] = False
    pages: Annotated[
        Path | None, typer.Option(metavar="DOCS", help="Write the evidence pages into this folder, from --results.")
    ] = None


@dataclass(frozen=True)
class _Hardware:
    """How cells are trained and measured; those that change digits are for the paper scale."""

    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where to train and measure: cpu, cuda, cuda:1, mps.")
    ] = None
    gpu_memory: Annotated[
        int | None, typer.Option(metavar="GB", help="Cut batches into micro-batches for 24 or 80 GB, by accumulation.")
    ] = None
    mixed_precision: Annotated[str | None, typer.Option(metavar="no|bf16|fp16", help="Compute in half precision.")] = (
        None
    )
    accumulation: Annotated[int | None, typer.Option(min=1, help="Micro-batches per step and process.")] = None
    num_workers: Annotated[int | None, typer.Option(min=0, help="Processes that load data, of each training.")] = None
    compile: Annotated[bool, typer.Option("--compile", help="Compile networks with torch.compile.")] = False
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Images with their channels last.")] = False

    def __post_init__(self) -> None:  # before torch is imported
        if self.mixed_precision is not None:
            choice("mixed_precision", self.mixed_precision, ("no", "bf16", "fp16"))
        if self.device is not None:
            device_name("device", self.device)


@handle_errors
@takes_records
def reproduce(
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Recipes, or `all`; without one, the list.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(metavar="cpu|night|paper", help="Minutes on two cores, a night there, or the paper's setting."),
    ] = "cpu",
    *,
    folders: _Folders,
    wanted: _Wanted,
    evidence: _Evidence,
    where: PoolOptions,
    hardware: _Hardware,
    common: Common,
) -> None:
    """Run tables and figures of the papers again, beside the papers' numbers, with a verdict on every claim.

    A cell in a result is kept, and never trained again. Run the same command again to resume.
    """
    not_portable = make_portable()  # before torch is imported
    asked = _asked(recipes or ["all"], scale)
    if evidence.pages is not None and evidence.results is None:
        raise ValueError("--pages needs --results FOLDER, where the results are")

    from vicinal.papers import execute
    from vicinal.runs.scheduler import Pool

    console = Console(as_json=common.as_json)
    if evidence.pages is not None:
        return _write_pages(evidence.pages, evidence.results, console)
    if evidence.coverage:
        return _coverage(console)
    if not recipes and wanted.until is None:
        return _list(evidence.results, console)
    if folders.data_root is not None:
        os.environ["VICINAL_DATA"] = str(folders.data_root.expanduser().resolve())
    folder = folders.out or Path("reproduced") / scale
    if not (wanted.dry_run or wanted.check):
        for name in asked:  # cells are added to a result of ours
            check_outputs({"--out": folder / f"{name}.json"}, [], overwrite=common.overwrite)
    shared = _is_shared(scale, wanted, hardware)
    use_device(hardware.device)
    plans = [_plan(name, scale, folder, wanted, hardware) for name in asked]
    if wanted.dry_run:
        return _dry(plans, console)
    if wanted.check:
        return _check(plans, console)
    if not_portable is not None:
        console.note(not_portable)
    for plan in plans:
        check_outputs({"--out": plan.report}, [], overwrite=common.overwrite)
    plans = execute.check_data(plans, allow_slices=wanted.allow_slices)
    here = where.backend == "loky" and where.workers is None
    one = "WORLD_SIZE" in os.environ or where.gpus  # torchrun's processes share a training
    pool = Pool(**vars(replace(where, workers=1 if one else 2) if here else where))
    if wanted.until is not None:
        return _until(wanted, plans, pool, console)
    how: dict[str, Any] = {"progress": not common.as_json, "on_job": console.note}
    how["clock"] = execute.Clock(execute.jobs_left(plans))
    # Processes that share trainings do all of them first, so that none waits while the first one measures.
    trained = [execute.train(plan, pool, **how) if shared else None for plan in plans]
    if not execute.is_first_process():
        raise typer.Exit(1 if any(trained) else 0)
    failed = False
    for plan, errors in zip(plans, trained, strict=True):
        result = execute.reproduce(plan, pool, failed=errors, **how)
        failed |= bool(result.failures)
        _show(plan, result, console)
    if failed:
        raise typer.Exit(1)


def _is_shared(scale: str, wanted: _Wanted, hardware: _Hardware) -> bool:
    """Return whether several processes share each training, which not every scale and plan allows."""
    shared = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if shared and (scale != "paper" or hardware.gpu_memory is None):
        raise ValueError("several processes divide the paper's batch: pass --scale paper and --gpu-memory 24 or 80")
    if shared and wanted.until is not None:
        raise ValueError("--until plans by what was measured, which the first process alone knows: pass --seeds")
    return shared


def _asked(recipes: Sequence[str], scale: str) -> tuple[str, ...]:
    from vicinal.papers import SCALES, check_name, names

    choice("scale", scale, SCALES)
    for name in recipes:
        if name != "all":
            check_name(name)
    return names() if "all" in recipes else tuple(dict.fromkeys(recipes))


def _plan(name: str, scale: str, out: Path, wanted: _Wanted, hardware: _Hardware) -> Plan:
    from vicinal.papers import execute, get
    from vicinal.papers.hardware import Hardware

    first = get(name).scales[scale].seeds[0]
    seeds = _seeds(wanted.seeds, first)
    if wanted.more_seeds is not None:
        seeds = execute.further_seeds(name, out, wanted.more_seeds, first)
    given = {name: value for name, value in vars(hardware).items() if value not in (None, False)}
    recipe = Hardware(**given).of(get(name), scale) if given else get(name)
    return execute.plan(name, recipe, scale, out, seeds=seeds, only=wanted.only or ())


def _until(wanted: _Wanted, plans: Sequence[Plan], pool: Pool, console: Console) -> None:
    from vicinal.papers import scheduling
    from vicinal.papers.page_tables import open_table

    where = scheduling.until_decided(plans, pool, hours=wanted.hours, progress=not console.as_json, say=console.note)
    names = [one.name for one in plans]
    console.event("progress", {"decided": where.decided, "claims": where.claims, "hours": where.hours})
    console.markdown(f"{where}.\n\n{open_table(scheduling.still_open(names, plans[0].scale, plans[0].out))}")


def _list(results: Path | None, console: Console) -> None:
    from vicinal.papers import get, names, pages

    found = {} if results is None else pages.results_in(_existing(results))
    rows = []
    for name in names():
        (paper, place, shown), scales = get(name).place, get(name).scales
        minutes = {scale: at.minutes for scale, at in scales.items()}
        verdicts = {scale: pages.counts(found[name, scale]) for scale in scales if (name, scale) in found}
        event = {"name": name, "paper": paper, "place": place, "title": shown, "minutes": minutes}
        console.event("recipe", {**event, "verdicts": verdicts})
        said = [", ".join(f"{n} {verdict}" for verdict, n in of.items()) for of in verdicts.values()]
        rows.append([name, f"{paper} {place}", shown, f"{minutes['cpu']:g}", *(["; ".join(said)] if found else [])])
    title = "Recipes (vicinal reproduce NAME runs one; minutes on two cores)"
    heads = ["", "where", "what it shows", "minutes", *(["verdicts"] if found else [])]
    console.table(title, heads, rows, numbers=False)


def _coverage(console: Console) -> None:
    """Show every row of every table with its columns, and every panel: the recipe that covers it, or why none does."""
    from vicinal.papers import coverage

    every = coverage.parts()
    missing = set(coverage.uncovered(every))
    rows: dict[tuple[str, ...], list[str]] = {}
    for part in every:
        covered = "" if part in missing else part.recipe
        reason = part.reason or ("" if covered else f"{part.recipe} has no such cell at paper scale")
        console.event("part", {**part._asdict(), "recipe": covered, "reason": reason})
        rows.setdefault((part.paper, part.place, part.row, covered or reason), []).append(part.column)
    shown = [[f"{paper} {place}", row, ", ".join(columns), by] for (paper, place, row, by), columns in rows.items()]
    console.table(
        "What of the papers is covered", ["place", "row", "columns", "recipe, or why not"], shown, numbers=False
    )
    named, reasons = sum(bool(part.recipe) for part in every), sum(bool(part.reason) for part in every)
    console.say(
        f"{len(every):,} parts: {named - len(missing):,} covered, {reasons} with a reason, {len(missing)} missing"
    )


def _dry(plans: Sequence[Plan], console: Console) -> None:
    from vicinal.papers.execute import duration

    for wanted in plans:
        minutes = wanted.minutes
        done = len(wanted.cells) - sum(job.result() is None for job in wanted.cells.values())
        console.event("plan", {"recipe": wanted.name, "scale": wanted.scale, "cells": list(wanted.cells),
                               "trainings": list(wanted.trainings), "done": done, "minutes": minutes})  # fmt: skip
        console.say(
            f"{wanted.name} at {wanted.scale} scale: {len(wanted.cells)} cells ({done} done), "
            f"{len(wanted.trainings)} trainings; about {duration(60 * minutes)} for what is not done"
        )
        for job in wanted.cells.values():
            console.say(f"  {job.cell.name}, seed {job.cell.seed}")


def _check(plans: Sequence[Plan], console: Console) -> None:
    """List all that recipes need, whether it is there, its size, and where to get it; and how batches are cut."""
    from vicinal.papers.checking import batches, gigabytes
    from vicinal.papers.execute import duration
    from vicinal.papers.sources import Source, is_there, needs

    total: dict[str, Source] = {}
    cut: dict[Batch, None] = {}
    for wanted in plans:
        found = needs(wanted.recipe, wanted.scale)
        total |= found
        cut |= dict.fromkeys(batches(wanted) if wanted.scale == "paper" else ())
        hours, runs = wanted.minutes / 60, gigabytes(wanted)
        disk = sum(source.gigabytes for source in found.values())
        sources = {name: {**source._asdict(), "there": is_there(name)} for name, source in found.items()}
        facts = {"recipe": wanted.name, "scale": wanted.scale, "hours": hours, "gigabytes": disk, "runs": runs}
        console.event("needs", {**facts, "trainings": len(wanted.trainings), "sources": sources})
        time = f"{hours:,.1f} GPU hours" if wanted.scale == "paper" else duration(60 * wanted.minutes)
        sizes = f"data and weights of {disk:.1f} GB, runs of about {runs:.1f} GB"
        console.say(f"{wanted.name}: {len(wanted.trainings)} trainings, about {time}; {sizes}")
    rows = [
        [source.title, "yes" if is_there(name) else "no", f"{source.gigabytes:g} GB", source.form, source.url]
        for name, source in total.items()
    ]
    console.table("Data and weights", ["", "there", "size", "below the data root", "from"], rows, numbers=False)
    if cut:
        _show_batches(cut, console)


def _show_batches(cut: Iterable[Batch], console: Console) -> None:
    """List how batches are cut for each size of GPU memory."""
    for one in cut:
        console.event("batch", one._asdict())
    if cut:
        title = "Batches as micro-batches × accumulation, in half precision (--gpu-memory; in float32 half as many)"
        shown = [[one.network, one.method or "others", f"{one.batch:,}", *one.cut] for one in cut]
        console.table(title, ["network", "method", "batch", "24 GB", "80 GB"], shown, numbers=False)


def _show(wanted: Plan, result: Result, console: Console) -> None:
    from vicinal.papers.page_tables import beside, claims_table, markdown
    from vicinal.papers.report import recipe_page, write_recipe

    report = write_recipe(recipe_page(wanted.recipe, result), wanted.report)
    fields: dict[str, object] = {**result.to_dict(), "file": str(wanted.file), "report": str(report)}
    console.event("result", fields)
    paper, place, title = wanted.recipe.place
    console.say(f"{wanted.name}: {title} ({paper} {place})")
    table = markdown(*beside(wanted.recipe, result))
    console.markdown(f"Paper and here:\n\n{table}\n\nClaims:\n\n{claims_table(result)}")
    for key, error in result.failures.items():
        console.note(f"{key} failed: {error}")
    console.say(f"result: {wanted.file}\nreport: {report}")


def _write_pages(docs: Path, results: Path | None, console: Console) -> None:
    from vicinal.papers import pages

    assert results is not None  # checked before
    written = pages.write(_existing(results), docs)
    console.event("pages", {"files": [str(path) for path in written]})
    console.say(f"{len(written)} files written below {docs}")


def _existing(results: Path) -> Path:
    if not results.is_dir():
        raise FileNotFoundError(f"there is no folder {str(results)!r} for --results")
    return results


def _seeds(text: str | None, begin: int) -> Sequence[int] | None:
    """Return `5` as the first five seeds of a recipe, and `1010-1014` as those from 1010 to 1014."""
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else True)):
        raise ArgumentError("seeds", text, "a number such as 5, or a range such as 1010-1014")
    wanted = range(int(first), int(last) + 1) if dash else range(begin, begin + int(first))
    if not wanted or wanted[-1] - wanted[0] >= MOST_SEEDS:
        raise ArgumentError("seeds", text, f"1 to {MOST_SEEDS:,} seeds")
    return wanted
