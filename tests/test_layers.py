"""The import graph: layers point only downward, the core is light, and `import vicinal` is free."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import vicinal

SOURCE = Path(vicinal.__file__).parent

#: Lower layers first, as the design lists them. A folder is one thing: its files may import each other.
LAYERS = [
    {"_typing", "_checks", "_lazy", "_memory", "_names", "_portable", "_remote"},
    {"_random", "_arrays", "_atomic"},
    {"losses", "mixing", "progress"},
    {"objectives", "metrics"},
    {"calibrators"},
    {"probes"},
    {"expressions", "plots", "tables"},
    {"models", "predictions"},
    {"data"},
    {"training"},
    {"experiment"},
    {"runs"},
    {"integrations", "report"},
    {"papers"},
    {"cli"},
]
#: The three doors: the library imports neither of the others, and the command imports the papers in one file.
LIBRARY = {"losses", "mixing", "objectives", "calibrators", "metrics", "probes", "expressions", "plots", "training",
           "integrations"}  # fmt: skip
COMMAND = {"tables", "data", "models", "predictions", "experiment", "runs", "report", "cli"}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def unit(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@functools.cache
def imports(path: Path) -> set[str]:
    """Return the modules of vicinal that a file imports, at any depth of its code, but not for types only."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vicinal":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "vicinal"}
    return found


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py" and path != SOURCE / "__main__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward(path):
    here = unit(path)
    assert here in LEVEL, f"{here} has no layer: add it to LAYERS"
    for module in imports(path):
        parts = module.split(".")
        if len(parts) == 1 or parts[1] not in LEVEL:
            continue  # the package itself, or a public name of it
        target = parts[1]
        if target == here or LEVEL[target] == LEVEL[here] == 0:
            continue  # a folder is one thing, and so is the ground floor
        assert LEVEL[target] < LEVEL[here], f"{path.name} (layer {LEVEL[here]}) imports {module} ({LEVEL[target]})"


def test_the_library_never_imports_the_command():
    for path in FILES:
        if unit(path) in LIBRARY:
            found = [module for module in imports(path) if {*module.split(".")[1:2]} & COMMAND]
            assert found == [], path.name


def test_reproduce_alone_imports_the_papers_and_does_so_in_functions():
    inside = [path for path in SOURCE.rglob("*.py") if unit(path) != "papers"]
    found = [path for path in inside if any(module.startswith("vicinal.papers") for module in imports(path))]
    assert found == [SOURCE / "cli" / "reproduce.py"]
    tree = ast.parse(found[0].read_text())
    assert not any("vicinal.papers" in ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_folder_keeps_its_underscore_names_to_itself(path):
    for module in imports(path):
        private = [part for part in module.split(".")[2:] if part.startswith("_")]
        assert not private or module.split(".")[1] == unit(path), f"{path.name} imports {module}"


def test_no_file_imports_one_that_imports_it():
    files = {module_of(path): path for path in SOURCE.rglob("*.py")}
    graph = {}
    for name, path in files.items():
        wanted = {module if module in files else module.rpartition(".")[0] for module in imports(path)}
        graph[name] = wanted - {name, "vicinal"}  # the package itself imports nothing, and names on first use
    list(graphlib.TopologicalSorter(graph).static_order())  # refuses a cycle, and names it


def test_the_core_imports_torch_numpy_and_scipy_only():
    code = (
        "import sys, vicinal; apart = ('plots', 'VicinalClassifier'); "
        "[getattr(vicinal, name) for name in vicinal.__all__ if name not in apart]; "
        "import vicinal.plots; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    heavy = {"sklearn", "pandas", "matplotlib", "torchvision", "transformers", "accelerate", "lightning"}
    heavy |= {"torchmetrics", "typer", "rich", "jinja2", "pyarrow", "joblib"}
    assert not loaded & heavy


def test_importing_vicinal_imports_nothing_else():
    code = "import sys, vicinal; print('torch' in sys.modules, *[m for m in sys.modules if m.startswith('vicinal.')])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "False vicinal._lazy"


def test_every_public_name_exists_and_is_listed():
    for name in vicinal.__all__:
        assert getattr(vicinal, name) is not None
    assert set(vicinal.__all__) <= set(dir(vicinal))
    with pytest.raises(AttributeError, match="no attribute 'Mixupp'"):
        vicinal.Mixupp
