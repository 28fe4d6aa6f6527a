"""The documentation as a site: every page of the folder is on it, and what it shows of the library exists."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import itertools
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text()
#: The pages of packages. Modules of frameworks, which have no list of public names, are on a page of their own.
API = [page for page in sorted((DOCS / "reference" / "api").glob("*.md")) if page.stem != "integrations"]
NAMED = re.findall(r":\s([\w/-]+\.md)$", CONFIG, re.MULTILINE)


def test_every_page_is_on_the_site() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    # Each recipe and each run of the gallery has a page that its overview leads to.
    own = {page for page in pages if not page.startswith(("evidence/", "gallery/"))}
    generated = {"cards/index.md", "project/contributing.md", "project/changelog.md", "project/benchmarks.md"}
    assert own | generated == set(NAMED)
    assert len(NAMED) == len(set(NAMED))


def test_what_the_reference_names_exists() -> None:
    for page in API:
        modules = _modules(page)
        assert modules
        assert all(module.__all__ for module in modules)


def test_the_reference_shows_every_public_class_and_function() -> None:
    """What griffe cannot see by itself, names that are imported on first use or called like a file, the pages name."""
    for page in API:
        text = page.read_text()
        for module in _modules(page):
            public = {name: getattr(module, name) for name in module.__all__}
            named = {name for name, value in public.items() if inspect.isclass(value) or inspect.isfunction(value)}
            if module.__name__ == "vicinal":
                assert set(_hook("site_pages").public_names()) == named
                continue
            assert "__all__ = [*" not in inspect.getsource(module)
            files = {path.stem for path in Path(inspect.getfile(module)).parent.glob("*.py")}
            hidden = named & files if hasattr(module, "__path__") else set()
            assert set(re.findall(rf"heading: {module.__name__}\.(\w+)$", text, re.M)) == hidden


def _modules(page: Path) -> list[ModuleType]:
    """Return the modules of a page; longer names on it are those of functions."""
    names = re.findall(r"^::: (\S+)", page.read_text(), re.M)
    return [importlib.import_module(name) for name in names if name.count(".") < 2]


def test_records_that_explain_fields_at_the_field_explain_all_of_them() -> None:
    """The reference leaves out a field without a docstring of its own."""
    modules = [module for page in API for module in _modules(page)]
    names = [getattr(module, name) for module in modules for name in module.__all__]
    explained = 0
    for record in {base for name in names if dataclasses.is_dataclass(name) for base in name.__mro__[:-1]}:
        if not dataclasses.is_dataclass(record):
            continue
        body = ast.parse(inspect.getsource(record)).body[0].body
        fields = {
            node.target.id: isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            for node, after in itertools.pairwise([*body, ast.Pass()])
            if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation)
        }
        if any(fields.values()):
            explained += 1
            assert [name for name, has in fields.items() if not has] == [], record
    assert explained > 20


def test_the_hook_finds_what_it_adds() -> None:
    pytest.importorskip("mkdocs")
    from mkdocs.config import load_config
    from mkdocs.structure.files import Files

    config = load_config(str(ROOT / "mkdocs.yml"))
    files = config.plugins.on_files(Files([]), config=config)
    added = {file.src_uri for file in files}
    assert {"cards/index.md", "cards/mixup.md", "project/contributing.md", "project/changelog.md"} <= added


def test_every_training_option_is_in_the_reference() -> None:
    from vicinal.training import FitConfig

    table = _hook("site_pages").training_options()
    for field in dataclasses.fields(FitConfig):
        assert f"| `{field.name}` | `{field.default!r}` |" in table


def test_every_formula_can_be_drawn() -> None:
    """As MathML, which needs neither a script nor the network."""
    pytest.importorskip("latex2mathml")
    markdown = pytest.importorskip("markdown")
    found = _hook("site_math")
    pages = [*DOCS.rglob("*.md"), *(ROOT / "src/vicinal/cards").glob("*.md")]
    formulas = [match[1] for page in pages for match in found._BLOCK.finditer(page.read_text(encoding="utf-8"))]
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = f"{ast.get_docstring(node) or ''}\n"
                formulas += [f"{match[2]} {match[3]}" for match in found._DIRECTIVE.finditer(text)]
                formulas += re.findall(found._ROLE, text)
    assert len(formulas) > 200
    for formula in formulas:
        assert found.mathml(formula).startswith("<math")
    text = "A\n\n.. math::\n    a = b,\n\n    c = d\n\nthen :math:`x_1`, `:math:` and\n\n$$y$$\n\n```\n$$z$$\n```\n"
    page = markdown.markdown(text, extensions=["fenced_code", found.Formulas()])
    assert page.count("<math") == 3
    assert page.count("$$") == 2  # those of the code
    assert "<code>:math:</code>" in page
    with pytest.raises(ValueError, match="does not know"):
        found.mathml(r"\nosuchcommand x")


def test_cells_of_wide_tables_name_their_columns() -> None:
    """A phone shows such a table as a list."""
    hook, row = _hook("site_pages"), "<tr>\n<td>1</td>\n<td style='text-align: right'>2</td>\n"
    heads = "".join(f"<th>{name}</th>" for name in ("a", "<code>b</code>", 'c "d"', "e", "f"))
    body = f"<tbody>\n{row}<td>3</td><td>4</td><td>5</td></tr>\n</tbody>"
    html = f"<table>\n<thead>\n<tr>{heads}</tr>\n</thead>\n{body}</table>"
    shown = hook.on_page_content(html)
    assert re.findall(r'data-column="([^"]*)"', shown) == ["a", "b", "c &quot;d&quot;", "e", "f"]
    assert shown.startswith("<table data-wide>")
    narrow = html.replace("<th>f</th>", "")
    assert hook.on_page_content(narrow) == narrow


def test_dark_pictures_keep_their_colours(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = image.new("RGB", (3, 1), "white")
    picture.putpixel((1, 0), (0, 0, 0))
    picture.putpixel((2, 0), (220, 140, 40))
    picture.save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(_hook("site_pages").dark(tmp_path / "a.png"))
    shown = image.open(tmp_path / "b.png").convert("RGB")
    ground, words, colour = (shown.getpixel((x, 0)) for x in range(3))
    assert max(ground) < 60
    assert min(words) > 200
    assert colour == (220, 140, 40)


def test_tables_and_returns_of_docstrings_are_drawn() -> None:
    pytest.importorskip("griffe")
    hook = _hook("site_docstrings")
    table = (
        "Text.\n\n====  ==========\na     b and c\n====  ==========\n1     two words\n2     \n====  ==========\n\nMore."
    )
    found = hook._TABLE.sub(hook.as_markdown, table.replace("2     \n", "2     x\n"))
    assert found == "Text.\n\n| a | b and c |\n| --- | --- |\n| 1 | two words |\n| 2 | x |\n\nMore."
    text = "Do it.\n\nReturns\n-------\nThe same thing,\nonce more.\n\nExamples\n--------\n>>> 1\n1"
    said = hook._RETURNS.sub(lambda one: hook.described(one, "Self"), text)
    assert "Returns\n-------\nSelf\n    The same thing,\n    once more.\n\nExamples" in said


def test_nothing_on_the_site_needs_the_network() -> None:
    for page in DOCS.rglob("*.md"):
        assert "```mermaid" not in page.read_text(encoding="utf-8")


def _hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_option_of_the_command_is_in_the_reference() -> None:
    hook = _hook("site_pages")
    text = hook.command_reference()
    for name, command in hook.commands().items():
        part = text.split(f"## vicinal {name}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            for flag in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{flag}" in part or f"`{parameter.metavar}`" in part, (name, flag)
    assert re.search(r"^\| `--epochs \w+` \| `10` \[by data\]", text, re.MULTILINE)
    assert "| `--method EXPR` | `Mixup(alpha=0.2)` |" in text


def test_the_reference_shows_doctests_and_defaults_as_such() -> None:
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(DOCS / "site_docstrings.py"))
    package = griffe.load("vicinal", search_paths=[ROOT / "src"], extensions=extensions)
    shown = 0
    for path in (
        "losses",
        "objectives.mixup",
        "metrics.intervals",
        "probes.confident_learning",
        "objectives.guided.aum",
    ):
        for member in package[path].members.values():
            if not member.is_alias and member.docstring and ">>> " in member.docstring.value:
                sections = griffe.parse_numpy(member.docstring)
                kinds = [section.kind.value for section in sections]
                assert "examples" in kinds, member.path
                others = [str(section.value) for section in sections if section.kind.value != "examples"]
                assert not any(">>>" in text for text in others), member.path
                shown += 1
    assert shown > 10
    assert str(package["objectives.mixup.Mixup.prob"].value) == "1.0"
