"""The mutations that can be made in a file of the product, one at a time."""

from __future__ import annotations

import ast
import copy
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
DROPPED = "statement dropped"
UNCHANGED = "nothing changed"  # no mutant: a check that the tests pass

Change = Callable[[ast.AST], None]


class Mutant(NamedTuple):
    """A file with one change.

    `node` is the index of the changed node in a walk of the file's tree. `first` to `last` are the lines that execute
    it.
    """

    path: pathlib.Path
    node: int
    first: int
    last: int
    change: str

    def __str__(self) -> str:
        return f"{self.path}:{self.first} {self.change}"


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield the mutations of a node."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            other = COMPARISONS[type(op)]
            yield f"{type(op).__name__} → {other.__name__}", lambda n: setattr(n, "ops", [other()])
        case ast.BoolOp(op=op):
            swapped = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield f"{type(op).__name__} → {type(swapped).__name__}", lambda n: setattr(n, "op", swapped)
        case ast.Constant(value=bool(value)):
            yield f"{value} → {not value}", lambda n: setattr(n, "value", not value)
        case ast.Constant(value=int(value)):
            yield f"{value} → {value + 1}", lambda n: setattr(n, "value", value + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not x → x", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), operand))
        case ast.IfExp() | ast.If():
            yield "condition negated", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))  # type: ignore[attr-defined]
        case ast.Call(args=[_, _, *_]) if not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            yield "first two arguments swapped", lambda n: setattr(n, "args", [n.args[1], n.args[0], *n.args[2:]])  # type: ignore[attr-defined]
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield DROPPED, lambda n: None


def mutants_of(path: pathlib.Path, root: pathlib.Path) -> Iterator[Mutant]:
    """Yield every mutant of a file, relative to `root`. Annotations, decorators and strings are not changed."""
    tree = ast.parse((root / path).read_text())
    fixed = {id(inner) for node in ast.walk(tree) for part in _excluded_parts(node) for inner in ast.walk(part)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in fixed:
            for change, _ in changes(node):
                part: ast.AST = node.test if isinstance(node, ast.If) else node
                yield Mutant(path, number, getattr(part, "lineno", 0), getattr(part, "end_lineno", 0), change)


def _excluded_parts(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if (part := getattr(node, name, None)) is not None:
            yield part
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield node


def mutated(mutant: Mutant, root: pathlib.Path) -> ast.Module:
    """Return the tree of the file with the mutant's change. Nodes keep their lines."""
    tree = ast.parse((root / mutant.path).read_text())
    target = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    if mutant.change == DROPPED:
        _Without(target).visit(tree)
    else:
        next(apply for change, apply in changes(copy.copy(target)) if change == mutant.change)(target)
    return ast.fix_missing_locations(tree)


class _Without(ast.NodeTransformer):
    """Replaces one statement with `pass`."""

    def __init__(self, target: ast.AST) -> None:
        self.target = target

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if node is self.target else self.generic_visit(node)
