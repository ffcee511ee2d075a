"""Reads configuration files written in Python, such as those of MMEngine, without executing them.

A file is parsed and its assignments are evaluated: literals, ``dict()``, arithmetic, names of the file, attributes and
items of values, ``_base_`` files and ``with read_base():``. Anything else is refused with its line.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vcycle.utils.reading import LONGEST, read_text, resolved

__all__ = ["PythonConfig", "read_python_config"]

_DELETE, _BASE = "_delete_", "_base_"
_DEEPEST = 16
"""Maximum length of a chain of bases."""
_MOST = 100_000
"""Maximum length of a list or text that an expression makes."""
_BUDGET = 1_000_000
"""Maximum number of values that reading names may copy, so that a short file cannot describe a huge value."""
_LARGEST = 1 << 256

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "dict": dict,
    "list": list,
    "tuple": tuple,
    "range": lambda *bounds: list(range(*bounds)[:_MOST]),
    "int": int,
    "float": float,
    "str": str,
    "len": len,
}


class PythonConfig(NamedTuple):
    """What a file defines."""

    values: dict[str, Any]
    """Its names and values, over those of its bases."""
    read: frozenset[str]
    """Names that other values use."""


class _RefusedError(ValueError):
    """An error that names its file."""


class _Imported(str):
    """The name of an imported object, such as a class that stands for its own name."""


def read_python_config(path: Path) -> PythonConfig:
    """Read a configuration and its bases.

    Raises:
        OSError: if a file cannot be read.
        ValueError: if it is not Python, or has an expression that cannot be evaluated; names file and line.
    """
    found = _read(path, ())
    values = {name: value for name, value in found.values.items() if not isinstance(value, _Imported)}
    return PythonConfig(values, found.read)


def _read(path: Path, chain: tuple[Path, ...]) -> PythonConfig:
    place = resolved(path)
    if place in chain or len(chain) >= _DEEPEST:
        raise _RefusedError(f"{path}: {_BASE} is circular, or a chain of more than {_DEEPEST} files")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its style, such as escape sequences
            tree = ast.parse(read_text(path, LONGEST), filename=str(path))
    except SyntaxError as error:
        raise _RefusedError(f"{path}:{error.lineno}: not Python: {error.msg}") from None
    except (RecursionError, MemoryError, UnicodeDecodeError, ValueError) as error:
        raise _RefusedError(f"{path}: not Python: {error}") from None
    file = _File(path, (*chain, place))
    for statement in tree.body:
        try:
            file.run(statement)
        except _RefusedError:
            raise
        except RecursionError:
            raise _RefusedError(f"{path}:{statement.lineno}: nested too deeply") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError) as error:
            raise _RefusedError(f"{path}:{statement.lineno}: `{_shown(statement)}`: {error}") from None
    return PythonConfig(_merged(file.bases, file.names, str(path)), frozenset(file.read))


def _merged(base: Mapping[str, Any], own: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Merge dictionaries key by key, recursively; any other value replaces that of the base."""
    result = dict(base)
    for key, value in own.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below, list):
            raise _RefusedError(f"{source}: key {key!r} is a dictionary, but a list in the base")
        if isinstance(value, dict) and isinstance(below, dict) and not value.get(_DELETE, False):
            result[key] = _merged(below, value, source)
        else:
            result[key] = _clean(value)
    return result


def _clean(value: Any) -> Any:
    """Remove the marks that a merge has used."""
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items() if key != _DELETE}
    return value


class _File:
    """One file while it is read."""

    def __init__(self, path: Path, chain: tuple[Path, ...]) -> None:
        self.path, self.chain = path, chain
        self.names: dict[str, Any] = {}
        self.bases: dict[str, Any] = {}
        self.read: set[str] = set()
        self.budget = _BUDGET

    def run(self, statement: ast.stmt) -> None:
        """Evaluate a statement."""
        match statement:
            case ast.Assign(targets=targets, value=value):
                found = self.value(value)
                for target in targets:
                    self.assign(target, found, statement)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value), statement)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                if name not in self.names:
                    raise self.refusal(statement)
                self.names[name] = self.computed(op, self.names[name], self.value(value), statement)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr="update"), args=args, keywords=keywords)):
                into = self.place(of)
                if not isinstance(into, dict):
                    raise self.refusal(statement)
                into.update(*map(self.value, args), **self.keywords(keywords))
            case ast.Delete(targets=targets) if all(isinstance(target, ast.Name) for target in targets):
                for target in targets:
                    self.names.pop(target.id, None)  # type: ignore[attr-defined]
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    self.names[alias.asname or alias.name.partition(".")[0]] = _Imported(alias.name)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Name(id="read_base")))], body=body):
                for inner in body:
                    self.import_base(inner)
            case _:
                raise self.refusal(statement)

    def assign(self, target: ast.expr, value: Any, statement: ast.stmt) -> None:
        match target:
            case ast.Name(id=name) if name == _BASE:
                for file in [value] if isinstance(value, str) else value:
                    self.add_base(self.path.parent / str(file))
            case ast.Name(id=name):
                self.names[name] = value
            case ast.Tuple(elts=targets) if isinstance(value, tuple | list) and len(value) == len(targets):
                for one, item in zip(targets, value, strict=True):
                    self.assign(one, item, statement)
            case ast.Subscript(value=of, slice=key):
                self.place(of)[self.value(key)] = value
            case ast.Attribute(value=of, attr=key) if isinstance(into := self.place(of), dict):
                into[key] = value
            case _:
                raise self.refusal(statement)

    def add_base(self, path: Path) -> PythonConfig:
        base = _read(path, self.chain)
        self.bases = _merged(self.bases, base.values, str(path))
        self.read |= base.read
        return base

    def import_base(self, statement: ast.stmt) -> None:
        """Read the file that ``from .x import *`` within ``read_base`` names."""
        if not isinstance(statement, ast.ImportFrom) or not statement.level:
            raise self.refusal(statement)
        folder = self.path.parent
        for _ in range(statement.level - 1):
            folder = folder.parent
        base = self.add_base(folder.joinpath(*(statement.module or "").split(".")).with_suffix(".py"))
        self.names |= {name: value for name, value in base.values.items() if name not in self.names}

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression."""
        match node:
            case ast.Constant(value=constant) if not isinstance(constant, bytes | complex):
                return constant
            case ast.Name(id=name) if name == _BASE:
                return self.copied(self.bases)
            case ast.Name(id=name) if name in self.names:
                self.read.add(name)
                return self.copied(self.names[name])
            case ast.List(elts=items):
                return self.items(items)
            case ast.Tuple(elts=items):
                return tuple(self.items(items))
            case ast.Set(elts=[ast.Set(elts=[inner])]):  # {{_base_.name}}
                return self.value(inner)
            case ast.Set(elts=items):
                return self.items(items)
            case ast.Dict(keys=keys, values=values):
                found: dict[Any, Any] = {}
                for key, value in zip(keys, values, strict=True):
                    found |= self.value(value) if key is None else {self.value(key): self.value(value)}
                return found
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _CALLS:
                return _CALLS[name](*self.items(args), **self.keywords(keywords))
            case ast.Call(func=ast.Attribute(attr="deepcopy" | "copy"), args=[copied]):
                return self.value(copied)
            case ast.Call(func=ast.Attribute(value=copied, attr="deepcopy" | "copy"), args=[]):
                return dict(self.value(copied))
            case ast.BinOp(left=left, op=op, right=right):
                return self.computed(op, self.value(left), self.value(right), node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test) else orelse)
            case ast.Subscript(value=of, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                return self.value(of)[slice(*(part and self.value(part) for part in (lower, upper, step)))]
            case ast.Subscript(value=of, slice=key):
                return self.value(of)[self.value(key)]
            case ast.Attribute(value=of, attr=key):
                within = self.value(of)
                if isinstance(within, _Imported):  # a class of an imported module
                    return _Imported(f"{within}.{key}")
                if not isinstance(within, dict):
                    raise self.refusal(node)
                return within[key]
            case ast.JoinedStr(values=parts):
                return self.text(parts, node)
        raise self.refusal(node)

    def place(self, node: ast.expr) -> Any:
        """The value to change: a name of the file, or a part of one."""
        match node:
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Subscript(value=of, slice=key) if not isinstance(key, ast.Slice):
                return self.place(of)[self.value(key)]
            case ast.Attribute(value=of, attr=key) if isinstance(within := self.place(of), dict):
                return within[key]
        raise self.refusal(node)

    def copied(self, value: Any) -> Any:
        """A copy of a value, in which nothing is shared; the file's budget limits the total."""
        self.budget -= 1
        if self.budget < 0:
            raise _RefusedError(f"{self.path}: describes more than {_BUDGET:,} values")
        if isinstance(value, dict):
            return {key: self.copied(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.copied, value))
        return value

    def items(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            found += self.value(node.value) if isinstance(node, ast.Starred) else [self.value(node)]
        return found

    def keywords(self, nodes: list[ast.keyword]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node in nodes:
            found |= self.value(node.value) if node.arg is None else {node.arg: self.value(node.value)}
        return found

    def text(self, parts: list[ast.expr], node: ast.expr) -> str:
        """The value of an f-string without format specifications."""
        found = ""
        for part in parts:
            inner = part
            if isinstance(part, ast.FormattedValue):
                if part.format_spec is not None or part.conversion != -1:
                    raise self.refusal(node)
                inner = part.value
            found += str(self.value(inner))
        return found

    def computed(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        """Compute an operation whose result stays small."""
        numbers = all(isinstance(side, int | float) for side in (left, right))
        joined = isinstance(op, ast.Add) and type(left) is type(right) and isinstance(left, list | tuple | str)
        repeated = isinstance(op, ast.Mult) and isinstance(left, list | tuple | str) and isinstance(right, int)
        small = numbers and all(abs(side) < _LARGEST for side in (left, right))
        if isinstance(op, ast.Pow):
            small = small and abs(right) <= 64 and abs(left) <= 1 << 20
        short = (joined and len(left) + len(right) <= _MOST) or (repeated and len(left) * max(right, 0) <= _MOST)
        if type(op) not in _ARITHMETIC or not (small or short):
            raise self.refusal(node)
        return _ARITHMETIC[type(op)](left, right)

    def refusal(self, node: ast.AST) -> "_RefusedError":
        """The error for what only Python itself could evaluate."""
        line = getattr(node, "lineno", 0)
        return _RefusedError(
            f"{self.path}:{line}: `{_shown(node)}` cannot be read without executing the file; accepted: literals, "
            f"dict(), arithmetic, names of the file, {_BASE} and read_base()"
        )


def _shown(node: ast.AST) -> str:
    """The first line of a node's code, shortened."""
    line = ast.unparse(node).partition("\n")[0]
    return line if len(line) <= 60 else f"{line[:57]}..."
