#!/usr/bin/env python3
"""Small wrong changes of the product, one at a time: which of them do the tests not see?

    python bench/mutants.py [reads] [PACKAGES] [--sample 200] [--minutes 60]

PACKAGES are folders or files below pilot/ (derive, serve, model/views …). A mutant is made in a copy of the tree, never in place, and the
tests nearest to it run there: those that import its module, fewest other modules first. PYISTIOD_SEED draws the sample. The word `reads`
makes every tracked read of a table by model and translate untracked instead, one at a time, at run time, and edits of a mesh must notice.
Without words it is all of it. Prints survivors and a table by package; exits 1 where less than nine in ten mutants, or not all reads, were
caught.
"""
from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

READS = "reads"
PACKAGES = (
    READS, "derive", "serve", "ingest", "model/validate", "model/checks", "model/views", "translate", "settings", "lib", "debug", "cli", "app"
)  # fmt: skip
PROMISE = 0.90
NEAREST = 8  # test files a mutant is shown to
BASE_SECONDS, MIN_SECONDS, PATIENCE = 400.0, 30.0, 6.0  # how long tests may take without a change, and how much longer with one
TOURS = 16  # of edits that look for untracked reads, at most
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutant(NamedTuple):
    """`node` is the number of the changed node in a walk of the module's tree; `what` says the change."""

    path: pathlib.Path
    node: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


Change = Callable[[ast.AST], None]


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """The wrong changes that can be made at a node."""
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
            yield "statement dropped", lambda n: None


def mutants_of(path: pathlib.Path) -> Iterator[Mutant]:
    """Every mutant of a file; annotations, decorators and texts stay."""
    tree = ast.parse((ROOT / path).read_text())
    fixed = {id(inner) for node in ast.walk(tree) for part in _left_alone(node) for inner in ast.walk(part)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in fixed:
            for what, _ in changes(node):
                yield Mutant(path, number, getattr(node, "lineno", 0), what)


def _left_alone(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if (part := getattr(node, name, None)) is not None:
            yield part
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield node


def mutated(mutant: Mutant) -> str:
    """The source of the mutant's file with its change."""
    tree = ast.parse((ROOT / mutant.path).read_text())
    target = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    if mutant.what == "statement dropped":
        return ast.unparse(ast.fix_missing_locations(_Without(target).visit(tree)))
    next(change for what, change in changes(copy.copy(target)) if what == mutant.what)(target)
    return ast.unparse(ast.fix_missing_locations(tree))


class _Without(ast.NodeTransformer):
    """Replaces one statement by `pass`."""

    def __init__(self, target: ast.AST) -> None:
        self.target = target

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.Pass() if node is self.target else self.generic_visit(node)


def nearest_tests(path: pathlib.Path, tests: dict[pathlib.Path, set[str]]) -> list[str]:
    """The test files that are closest to a module: those that import it, the fewest imports first, then those of the same package."""
    module = ".".join(path.with_suffix("").parts)
    package = module.rpartition(".")[0]

    def distance(item: tuple[pathlib.Path, set[str]]) -> tuple[bool, bool, bool, int]:
        test, imported = item
        return (path.stem not in test.stem, module not in imported, not any(i.startswith(package) for i in imported), len(imported))

    return [str(test) for test, _ in sorted(tests.items(), key=distance)[:NEAREST]]


def imports_of_tests() -> dict[pathlib.Path, set[str]]:
    """The modules of the product that each fast test file imports, also through tests/support."""
    direct = {path: set(re.findall(r"^from (\S+) import", path.read_text(), re.M)) for path in (ROOT / "tests").rglob("*.py")}
    support = {".".join(p.relative_to(ROOT).with_suffix("").parts): found for p, found in direct.items() if "support" in p.parts}
    whole = {path: found | set().union(*(support.get(m, set()) for m in found)) for path, found in direct.items()}
    fast = {path: found for path, found in whole.items() if path.stem.startswith("test_") and "e2e" not in path.parts}
    return {path.relative_to(ROOT): {m for m in found if m.startswith("pilot")} for path, found in fast.items()}


class Tests(NamedTuple):
    """The tests that mutants of one file are shown to. `seconds`: after which they hang."""

    paths: tuple[str, ...]
    seconds: float


def tests_that_pass(paths: list[str], tree: pathlib.Path) -> Tests:
    """The nearest tests of a file that pass in a tree without a change, and how long they may take: a multiple of what they took."""
    began = time.monotonic()
    if _passes(paths, tree, BASE_SECONDS):
        return Tests(tuple(paths), max(MIN_SECONDS, PATIENCE * (time.monotonic() - began)))
    good = [path for path in paths if _passes([path], tree, BASE_SECONDS)]
    if not good:
        sys.exit(f"no test passes without a change: is pytest there? {' '.join(paths)}")
    print(f"failing without a change: {', '.join(sorted(set(paths) - set(good)))}", flush=True)
    return Tests(tuple(good), BASE_SECONDS)


def is_caught(mutant: Mutant, tree: pathlib.Path, tests: Tests) -> bool:
    """Whether a test fails, or does not end, in a tree with the change; the tree is as it was afterwards."""
    path = tree / mutant.path
    source = path.read_text()
    path.write_text(mutated(mutant))
    try:
        return not _passes(tests.paths, tree, tests.seconds)
    finally:
        path.write_text(source)


def _passes(paths: Sequence[str], tree: pathlib.Path, seconds: float) -> bool:
    """Whether these tests pass in a tree, in that many seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", str(int(seconds)), *paths]
    child = subprocess.Popen(command, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=_environment(tree))
    try:
        return child.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):  # the tests' own children too
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _environment(tree: pathlib.Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "PYISTIOD_SEED": "1"}


def try_package(package: str, choose: random.Random, sample: int, tree: pathlib.Path, deadline: float) -> tuple[int, int]:
    """How many mutants of a package were tried, and how many caught; survivors are printed."""
    place = pathlib.Path("pilot") / package
    one = ROOT / place.with_suffix(".py")
    files = [p.relative_to(ROOT) for p in ([one] if one.exists() else sorted((ROOT / place).rglob("*.py")))]
    every = [m for path in files if not path.name.endswith("_pb2.py") for m in mutants_of(path)]
    imports, tried, caught = imports_of_tests(), 0, 0
    tests: dict[pathlib.Path, Tests] = {}
    for mutant in choose.sample(every, min(sample, len(every))):
        if time.monotonic() > deadline:
            break
        if mutant.path not in tests:
            tests[mutant.path] = tests_that_pass(nearest_tests(mutant.path, imports), tree)
        found = is_caught(mutant, tree, tests[mutant.path])
        tried, caught = tried + 1, caught + found
        if not found:
            print(f"survived: {mutant}", flush=True)
    return tried, caught


def try_reads() -> tuple[int, int]:
    """How many reads of tables there are, and how many are missed when they are not tracked, or explained; the others are printed."""
    from tests.support.mesh_edits import FLAGS, tour
    from tests.support.reads import EXPLAINED, Site, Survey

    sites, noticed = set[Site](), set[Site]()
    for number in range(TOURS):
        survey = Survey()
        survey.add(tour(random.Random(f"reads {number}"), calm=number < 2), FLAGS if number % 2 else {})
        sites |= survey.sites
        noticed |= {site for site in survey.sites - noticed if survey.noticed(site)}
        print(f"tour {number + 1}: {len(noticed)} of {len(sites)} reads", flush=True)
        if number and all(site.name in EXPLAINED for site in sites - noticed):
            break
    for site in sorted(sites - noticed, key=str):
        print(f"explained: {site}: {EXPLAINED[site.name]}" if site.name in EXPLAINED else f"survived: {site} untracked", flush=True)
    wrong = EXPLAINED.keys() - {site.name for site in sites - noticed}
    for name in sorted(wrong):
        print(f"explained, but it is missed or gone: {name}", flush=True)
    return len(sites) + len(wrong), len(noticed) + sum(site.name in EXPLAINED for site in sites - noticed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=[], help="folders or files below pilot/, and `reads`")
    parser.add_argument("--sample", type=int, default=200, help="mutants a package")
    parser.add_argument("--minutes", type=float, default=600, help="stop then, with what was tried")
    options = parser.parse_args()
    seed = os.environ.get("PYISTIOD_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"PYISTIOD_SEED={seed}", flush=True)
    results: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        tree = pathlib.Path(work) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache"))
        deadline = time.monotonic() + 60 * options.minutes
        for package in options.packages or PACKAGES:
            choose = random.Random(f"{seed} {package}")
            results[package] = try_reads() if package == READS else try_package(package, choose, options.sample, tree, deadline)
    print("| package | tried | caught | |\n|---|---|---|---|")
    for name, (tried, caught) in results.items():
        print(f"| {name} | {tried} | {caught} | {100 * caught / tried if tried else 0:.0f} % |")
    return 0 if all(caught >= (1.0 if name == READS else PROMISE) * tried for name, (tried, caught) in results.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
