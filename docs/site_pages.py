"""Pages of the site that are made when it is built: cards, reference tables, and files from outside this folder.

`mkdocs.yml` names it as a hook; see https://www.mkdocs.org/user-guide/configuration/#hooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CARDS = ROOT / "src" / "vicinal" / "cards"
PAGES = {
    "project/contributing.md": ROOT / "CONTRIBUTING.md",
    "project/changelog.md": ROOT / "CHANGELOG.md",
    "project/benchmarks.md": ROOT / "benchmarks" / "README.md",
}
#: The training sets by whose size the reference shows the training defaults.
SIZES = (500, 5_000, 100_000)
#: A table with so many columns is a list on a phone.
_WIDE = 5
_TAG = re.compile(r"<[^>]+>")


def on_config(config: Any, **_: Any) -> Any:
    """Let the search work from `file://` by a script of the site, where the offline plugin names one of the network."""
    config.extra["polyfills"] = ["js/file-worker.js"]
    return config


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Add pages that lie elsewhere in the repository."""
    from mkdocs.structure.files import File

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    for path in sorted(CARDS.glob("*.md")):
        add(f"cards/{path.name}", path.read_text(encoding="utf-8"))
    add("cards/index.md", card_index())
    for image in sorted((CARDS / "img").glob("*.png")):
        add(f"cards/img/{image.name}", image.read_bytes())
        add(f"cards/img/dark-{image.name}", dark(image))
    for uri, path in PAGES.items():
        add(uri, path.read_text(encoding="utf-8"))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Fill in what is generated, let links lead to pages of the site, and rank guides above evidence in the search."""
    uri = page.file.src_uri
    boosts = {"start/": 4, "howto/": 3, "frameworks/": 3, "concepts/": 2, "reference/api/": 0.2, "project/": 0.1}
    boosts |= {"evidence": 0.1, "gallery": 0.1}
    page.meta.setdefault("search", {}).setdefault("boost", next((boosts[b] for b in boosts if uri.startswith(b)), 1))
    if uri.startswith("cards/"):
        shown = r"![\1](img/\2#only-light)\n![\1](img/dark-\2#only-dark)"
        markdown = re.sub(r"^!\[([^\]]*)\]\(img/(\w+\.png)\)$", shown, markdown, flags=re.MULTILINE)
    if uri == "reference/api/vicinal.md":
        return f"{markdown.rstrip()}\n      members: [{', '.join(public_names())}]\n"
    if uri in PAGES:
        return re.sub(r"\]\((?:\.\./)?docs/", "](../", markdown)
    tables = {"cli": command_reference, "networks": network_tables, "training": training_defaults}
    tables |= {"fit": training_options, "data": data_options}
    return re.sub(r"^<!-- table: (\w+) -->$", lambda found: tables[found[1]](), markdown, flags=re.MULTILINE)


def on_page_content(html: str, **_: Any) -> str:
    """Give each cell of a wide table the name of its column, under which a phone shows it."""
    return re.sub(r"<table>.*?</table>", lambda found: _labelled(found[0]), html, flags=re.DOTALL)


def _labelled(html: str) -> str:
    heads = [
        _TAG.sub("", head).strip().replace('"', "&quot;") for head in re.findall(r"<th[^>]*>(.*?)</th>", html, re.S)
    ]
    if len(heads) < _WIDE:
        return html
    body = re.sub(r"<tr>.*?</tr>", lambda row: _labelled_row(row[0], heads), html.split("</thead>")[1], flags=re.DOTALL)
    return f"{html.split('</thead>')[0].replace('<table>', '<table data-wide>')}</thead>{body}"


def _labelled_row(html: str, heads: list[str]) -> str:
    names = iter(heads)
    return re.sub(r"<td(?=[ >])", lambda _: f'<td data-column="{next(names, "")}"', html)


def dark(image: Path) -> bytes:
    """Return a picture for a dark page: its greys, which are ground and words, are inverted."""
    import io

    import numpy as np
    from PIL import Image

    pixels = np.asarray(Image.open(image).convert("RGB"))
    grey = (pixels.max(axis=2) - pixels.min(axis=2) <= 2)[..., None]
    written = io.BytesIO()
    Image.fromarray(np.where(grey, 32 + (255 - pixels) // 8 * 7, pixels).astype(np.uint8)).save(written, "png")
    return written.getvalue()


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    heads = list(head)
    lines = [heads, ["---"] * len(heads), *([_cell(str(text)) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Return a text with its bars escaped, but for those of code, which tables leave alone."""
    return "`".join(part if i % 2 else part.replace("|", "\\|") for i, part in enumerate(text.split("`")))


def card_index() -> str:
    """Return the list of methods: what each is for, and what it costs."""
    rows = []
    for path in sorted(CARDS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        title = text.splitlines()[0].removeprefix("# ")
        data, cost, paper = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)[1]
        rows.append([f"[{title}]({path.name})", data, cost, paper])
    told = "One card a method. The command `vicinal methods NAME` prints the same. "
    told += "[Choose a method](../howto/choose.md) says where to start."
    return f"# Methods\n\n{told}\n\n{table(['method', 'data', 'cost of a step', 'paper'], rows)}\n"


def public_names() -> list[str]:
    """Return the public classes and functions, which mkdocstrings cannot see: they are imported on first use."""
    import vicinal

    files = {path.stem for path in (ROOT / "src" / "vicinal").iterdir()}
    return [name for name in vicinal.__all__ if name not in files and name != "__version__"]


def training_options() -> str:
    """Return the options of training as a table, made of the fields that state them."""
    from vicinal.training.config import options

    rows = []
    for option in options():
        allowed = f" One of {', '.join(f'`{name}`' for name in option.choices)}." if option.choices else ""
        alone = "" if option.in_command else " Python only."
        rows.append([f"`{option.name}`", f"`{option.default!r}`", f"{option.help}{allowed}{alone}"])
    return table(["field", "default", "what it does"], rows)


def data_options() -> str:
    """Return the options of `load` as a table, made of the fields that state them."""
    from vicinal.data.options import RECORDS

    rows = [
        [f"`{record.__name__}`", f"`{one.name}`", f"`{one.default!r}`", one.metadata["help"]]
        for record in RECORDS
        for one in fields(record)
    ]
    return table(["record", "field", "default", "what it does"], rows)


def commands() -> dict[str, Any]:
    """Return the commands by name, as the parser has them."""
    import typer

    from vicinal.cli.app import app

    return dict(typer.main.get_command(app).commands)


def command_reference() -> str:
    """Return every command with all of its arguments and options, by group, with their defaults."""
    parts = []
    for name, command in commands().items():
        parts.append(f"## vicinal {name}\n\n{command.help}\n")
        groups: dict[str, list[Any]] = {}
        for parameter in command.params:
            groups.setdefault(getattr(parameter, "rich_help_panel", None) or "", []).append(parameter)
        for title, group in groups.items():
            heading = f"**{title}**\n\n" if title else ""
            rows = [[_written(one), _default(one), _help(one)] for one in group]
            parts.append(heading + table(["option", "default", "what it does"], rows) + "\n")
    return "\n".join(parts)


def _written(parameter: Any) -> str:
    """Return an option as it is typed, such as `--out RUN`."""
    argument = not parameter.opts[0].startswith("-")
    names = [parameter.metavar or parameter.name.upper()] if argument else [*parameter.opts, *parameter.secondary_opts]
    flag = argument or getattr(parameter, "is_flag", False)
    value = "" if flag else f" {parameter.metavar or _type_name(parameter)}"
    return " ".join(f"`{name}{value}`" for name in names)


def _type_name(parameter: Any) -> str:
    kind = str(getattr(parameter.type_descriptor, "annotation", ""))
    return "N" if "int" in kind else "X" if "float" in kind else "TEXT"


def _help(parameter: Any) -> str:
    return re.sub(r"\s*\[default: [^]]*\]", "", parameter.help or "")


def _default(parameter: Any) -> str:
    """Return the default, from the parser or from the record that states the option."""
    if parameter.required:
        return "required"
    if getattr(parameter, "is_flag", False) and not parameter.default:
        return "off"
    value = parameter.default
    if value is None or value == ():
        value = stated_defaults().get(parameter.name)
    by_data = " [by data](models.md#training-defaults)" if parameter.name in varying() else ""
    has_value = not (value is None or value is False or value in ((), ""))  # 0 is one
    return (f"`{_plain(value)}`" if has_value else ("" if by_data else "none")) + by_data


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def stated_defaults() -> dict[str, object]:
    """Return the defaults of options that the parser leaves to records: training, data, the experiment."""
    from vicinal.data.options import command_options
    from vicinal.runs import Experiment
    from vicinal.training import FitConfig

    found = {one.name: one.default for one in fields(Experiment) if one.default is not MISSING}
    found |= {"split_seed" if one.name == "seed" else one.name: one.default for one in command_options()}
    found |= {one.name: one.default for one in fields(FitConfig)}
    return found | {"method": "Mixup(alpha=0.2)", "front_end": "mel", "augment": "standard"}


def _networks() -> list[tuple[str, str]]:
    """Return kinds of data with networks whose training defaults differ."""
    tabular = ["mlp-and-trees", "mlp", "linear", "ensemble-mlp"]
    kinds = {
        "tabular": tabular,
        "text": ["minilm", "sentencecnn"],
        "image": ["preactresnet18"],
        "audio": ["soundresnet"],
    }
    return [(kind, name) for kind, names in kinds.items() for name in names]


def _differing(kind: str, network: str, n_train: int) -> dict[str, object]:
    """Return the fields in which the training defaults of a network differ from those of `FitConfig`."""
    from vicinal.training import FitConfig
    from vicinal.training.defaults import default_config

    config, plain = default_config(kind, network, {}, seed=0, n_train=n_train), FitConfig()
    every = {one.name: getattr(config, one.name) for one in fields(config)}
    return {name: value for name, value in every.items() if value != getattr(plain, name)}


def varying() -> set[str]:
    """Return the training options whose defaults depend on the data."""
    return {name for kind, network in _networks() for n in SIZES for name in _differing(kind, network, n)}


def training_defaults() -> str:
    """Return the training defaults by network and size of the training set."""
    rows = []
    for kind, network in _networks():
        for n in SIZES:
            found = _differing(kind, network, n)
            text = ", ".join(
                f"`{name} = {value:.3g}`" if isinstance(value, float) else f"`{name} = {value}`"
                for name, value in found.items()
            )
            if rows and rows[-1][1] == f"`{network}`" and rows[-1][3] == text:
                rows[-1][2] += f", {n:,}"
            else:
                rows.append([kind, f"`{network}`", f"{n:,}", text])
    return table(["data", "network", "training samples", "defaults that differ from `FitConfig`"], rows)


def network_tables() -> str:
    """Return the networks of each kind of data, with their options."""
    from vicinal.models.specification import FAMILIES

    hidden = {
        "plain",
        "numbers",
        "categories",
        "exclusive",
        "checkpoint",
        "config",
        "pretrained",
        "multiple_choice",
        "padding_id",
    }
    parts = []
    for kind, family in FAMILIES.items():
        rows = []
        for name in family.names():
            options = {k: v for k, v in _signature(family.builder(name)).items() if k not in hidden}
            text = ", ".join(f"`{option}={value}`" for option, value in options.items())
            rows.append([f"`{name}`", text or "none"])
        parts.append(f"### {kind}\n\n{table(['`--model`', 'options and defaults (`--model-option`)'], rows)}\n")
    return "\n".join(parts)


def _signature(builder: Any) -> dict[str, object]:
    import inspect

    given = inspect.signature(builder).parameters.values()
    return {one.name: one.default for one in given if one.default is not one.empty}
