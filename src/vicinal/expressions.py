"""Methods as text: the one way a method is written, in Python, on the command line and in result files.

>>> parse("LogitMix(CutMix(alpha=1.0), weight=0.1)").weight
0.1

The text is read with `ast` and never evaluated: names of public objectives, their alternate constructors
(`SequenceMixup.cls(alpha=1.0)`), literals, `inf`, and nesting.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import vicinal
from vicinal._checks import nearest_names

if TYPE_CHECKING:
    from vicinal.objectives.base import Objective

_MAX_LENGTH = 10_000


def objective_names() -> list[str]:
    """Return the names of all objectives: the public ones, and those that installed packages add.

    A package adds one through the entry point group `vicinal.objectives`. Every process finds it, workers too. A public
    name cannot be replaced.

    >>> "Mixup" in objective_names()
    True
    """
    return [*vicinal.OBJECTIVES, *_installed()]


def objective_class(name: str) -> type[Objective]:
    """Return the class of an objective, by one of `objective_names`."""
    if name in vicinal.OBJECTIVES:
        public: type[Objective] = getattr(vicinal, name)
        return public
    from vicinal.objectives.base import Objective

    entry = _installed()[name]
    found = entry.load()
    if not (isinstance(found, type) and issubclass(found, Objective)):
        raise TypeError(
            f"the entry point {name} = {entry.value} must be a subclass of vicinal.Objective, got {found!r}"
        )
    return found


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    """Return the objectives of installed packages, by their names."""
    entries = entry_points(group="vicinal.objectives")
    return {entry.name: entry for entry in entries if entry.name not in vicinal.OBJECTIVES}


def parse(text: str) -> Objective:
    """Build the objective that `text` describes; the inverse of an objective's `repr`.

    Parameters
    ----------
    text
        For instance `"LogitMix(Mixup(alpha=3.0))"`.

    Returns
    -------
    Objective
        The objective. Its `repr` parses to an equal one.

    Raises
    ------
    ValueError
        If the text is not such an expression; the message points at the place.

    Examples
    --------
    >>> parse("Mixup(alhpa=0.4)")
    Traceback (most recent call last):
    ...
    ValueError: Mixup has no parameter 'alhpa'; did you mean 'alpha'?
        Mixup(alhpa=0.4)
              ^
    """
    from vicinal.objectives.base import Objective

    source = _checked(text)
    try:
        value = _Builder(source).build(_tree(source))
    except (RecursionError, MemoryError):
        raise ValueError("the method expression is nested too deeply") from None
    if not isinstance(value, Objective):
        _fail(source, "a method expression must build an objective, such as Mixup(alpha=0.4)", 1, 0)
    return value


def check_method(text: str) -> None:
    """Raise if `text` is no expression, calls what is no objective, or names a parameter that it does not have.

    Values are for `parse`, which imports torch.

    >>> check_method("LogitMix(Mxup())")
    Traceback (most recent call last):
    ...
    ValueError: unknown objective 'Mxup'; did you mean 'Mixup' or 'KMixup' or 'RegMixup'?
        LogitMix(Mxup())
                 ^
    """
    source = _checked(text)
    builder = _Builder(source)
    try:
        for node in ast.walk(_tree(source)):
            if isinstance(node, ast.Call):
                name, constructor = builder.name_of(node.func)
                if constructor is None and name in vicinal.OBJECTIVES:
                    builder.check_parameters(node, name, _parameters(vicinal.OBJECTIVES[name], name))
    except (RecursionError, MemoryError):
        raise ValueError("the method expression is nested too deeply") from None


@functools.cache
def _parameters(module: str, name: str) -> tuple[str, ...]:
    """Return the fields of a dataclass and of those that it derives from, read in their sources: without an import.

    >>> _parameters("vicinal.objectives.mixup", "Mixup")[:2]
    ('alpha', 'labels')
    """
    path = Path(vicinal.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    imported = {one.name: node.module for node in body if isinstance(node, ast.ImportFrom) for one in node.names}
    found: list[str] = []
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for base in node.bases:
                above = ast.unparse(base).partition("[")[0]
                home = imported.get(above, module) or ""
                found += _parameters(home, above) if home.startswith("vicinal.") else ()
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            names = [ast.unparse(each.target) for each in fields if "ClassVar" not in ast.unparse(each.annotation)]
            found = [*names, *(each for each in found if each not in names)]
    return tuple(found)


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"text must be a string such as 'Mixup(alpha=0.4)', got {text!r}")
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"a method expression has at most {_MAX_LENGTH} characters, got {len(text)}")
    return text.strip()


def _tree(source: str) -> ast.expr:
    try:
        return ast.parse(source, mode="eval").body
    except SyntaxError as error:
        _fail(source, f"not a method expression ({error.msg})", error.lineno or 1, (error.offset or 1) - 1)
    except ValueError as error:  # null characters (before Python 3.12) and lone surrogates
        _fail(source, f"not a method expression ({error})", 1, 0)


class _Builder:
    """Turns the nodes of one expression into objects."""

    def __init__(self, source: str) -> None:
        self.source = source

    def build(self, node: ast.expr) -> Any:
        match node:
            case ast.Call():
                return self._call(node)
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.Name(id="inf"):
                return math.inf
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                value = self.build(operand)
                if isinstance(value, bool) or not isinstance(value, int | float):
                    self._fail(node, "a sign belongs before a number")
                return -value if isinstance(sign, ast.USub) else value
            case ast.Tuple(elts=items):
                return tuple(self.build(item) for item in items)
            case ast.List(elts=items):
                return [self.build(item) for item in items]
            case ast.Name(id=name):
                hint = "" if name in objective_names() else nearest_names(name, objective_names())
                self._fail(
                    node, f"{name!r} must be called, as in {name}(...)" if not hint else f"unknown name {name!r}{hint}"
                )
            case _:
                self._fail(node, "only objectives and literals are allowed here")

    def _call(self, node: ast.Call) -> object:
        name, constructor = self._constructor(node.func)
        parameters = inspect.signature(constructor).parameters
        args = [self.build(arg) for arg in node.args]
        kwargs: dict[str, object] = {}
        self.check_parameters(node, name, parameters)
        for keyword in node.keywords:
            if keyword.arg in kwargs:
                self._fail(keyword, f"{keyword.arg!r} is given twice")
            kwargs[str(keyword.arg)] = self.build(keyword.value)
        positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        if len(args) > len(positional) and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
            example = next((p for p in parameters if p not in kwargs), "name")
            self._fail(node.args[len(positional)], f"parameters of {name} are named: write {example}=…")
        try:
            return constructor(*args, **kwargs)
        except (TypeError, ValueError) as error:
            message = str(error).replace(f"{constructor.__name__}.__init__() ", "")
            self._fail(node, f"{name}: {message}", cause=error)

    def check_parameters(self, node: ast.Call, name: str, parameters: Iterable[str]) -> None:
        """Refuse a parameter that what is called by this name does not have."""
        known = list(parameters)
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg not in known:
                what = "**" if keyword.arg is None else repr(keyword.arg)
                self._fail(keyword, f"{name} has no parameter {what}{nearest_names(keyword.arg or '', known)}")

    def _constructor(self, node: ast.expr) -> tuple[str, Callable[..., Any]]:
        """Return an objective class, or one of its alternate constructors, with its name."""
        name, attr = self.name_of(node)
        cls = objective_class(name)
        if attr is None:
            return name, cls
        others = [n for n in dir(cls) if n[0] != "_" and isinstance(inspect.getattr_static(cls, n), classmethod)]
        if attr not in others:
            self._fail(node, f"{name} has no constructor {attr!r}{nearest_names(attr, others)}")
        return f"{name}.{attr}", getattr(cls, attr)

    def name_of(self, node: ast.expr) -> tuple[str, str | None]:
        """Return the name of the objective that is called, and that of its alternate constructor if there is one."""
        match node:
            case ast.Name(id=name) if name in objective_names():
                return name, None
            case ast.Name(id=name):
                self._fail(node, f"unknown objective {name!r}{nearest_names(name, objective_names())}")
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner in objective_names():
                return owner, attr
            case _:
                self._fail(node, "only public objectives can be called")

    def _fail(self, node: ast.expr | ast.keyword, message: str, *, cause: Exception | None = None) -> NoReturn:
        line = self.source.splitlines()[node.lineno - 1]
        column = len(line.encode()[: node.col_offset].decode(errors="ignore"))  # ast counts bytes
        _fail(self.source, message, node.lineno, column, cause=cause)


def _fail(source: str, message: str, line: int, column: int, *, cause: Exception | None = None) -> NoReturn:
    shown = (source.splitlines() or [""])[max(0, line - 1)]
    raise ValueError(f"{message}\n    {shown}\n    {' ' * max(0, column)}^") from cause
