"""The wrong changes that bench/mutants.py makes."""
from __future__ import annotations

import ast
import pathlib

import pytest

from bench import mutants

FUNCTION = "def f(a: Literal[1], b=2):\n    if a < b:\n        print(a, b)\n    return not a and b\n"


@pytest.fixture
def module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "m.py").write_text(FUNCTION)
    return pathlib.Path("m.py")


def test_every_change_gives_another_program_that_can_be_read(module: pathlib.Path) -> None:
    made = {str(m): mutants.mutated(m) for m in mutants.mutants_of(module)}
    assert sorted(name.partition(" ")[2] for name in made) == sorted(
        ["Lt → LtE", "condition negated", "first two arguments swapped", "statement dropped", "And → Or", "not x → x", "2 → 3"]
    )
    for name, source in made.items():
        assert source != ast.unparse(ast.parse(FUNCTION)), name
        ast.parse(source)


def test_a_dropped_statement_leaves_a_program(module: pathlib.Path) -> None:
    dropped = next(m for m in mutants.mutants_of(module) if m.what == "statement dropped")
    assert "print" not in mutants.mutated(dropped)


def test_the_nearest_tests_come_first() -> None:
    tests = {pathlib.Path("tests/unit/test_duration.py"): {"pilot.lib.duration"}, pathlib.Path("tests/unit/test_hosts.py"): {"pilot.lib.hosts"}}
    assert mutants.nearest_tests(pathlib.Path("pilot/lib/hosts.py"), tests)[0] == "tests/unit/test_hosts.py"
