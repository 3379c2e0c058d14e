"""Mutants, and the selection of tests for them."""

from __future__ import annotations

import ast
import pathlib

import pytest

from bench import mutants
from bench.mutation import trial
from bench.mutation.changes import DROPPED, Mutant, mutants_of, mutated

FUNCTION = "def f(a: Literal[1], b=2):\n    if a < b:\n        print(a, b)\n    return not a and b\n"


@pytest.fixture
def module(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "m.py").write_text(FUNCTION)
    return tmp_path


def test_every_mutant_is_a_different_valid_program(module: pathlib.Path) -> None:
    sources = {str(m): ast.unparse(mutated(m, module)) for m in mutants_of(pathlib.Path("m.py"), module)}
    assert sorted(name.partition(" ")[2] for name in sources) == sorted(
        [
            "Lt → LtE",
            "condition negated",
            "first two arguments swapped",
            "statement dropped",
            "And → Or",
            "not x → x",
            "2 → 3",
        ]
    )
    for name, source in sources.items():
        assert source != ast.unparse(ast.parse(FUNCTION)), name
        compile(source, name, "exec")


def test_dropped_statement_becomes_pass(module: pathlib.Path) -> None:
    dropped = next(m for m in mutants_of(pathlib.Path("m.py"), module) if m.change == DROPPED)
    assert "print" not in ast.unparse(mutated(dropped, module))


def test_nearest_tests_come_first() -> None:
    tests = {
        pathlib.Path("tests/unit/ca/test_csr.py"): set[str](),
        pathlib.Path("tests/unit/lib/test_duration.py"): {"pilot.lib.duration"},
        pathlib.Path("tests/unit/lib/test_hosts.py"): set[str](),
        pathlib.Path("tests/unit/mesh/test_names.py"): {"pilot.lib.hosts"},
    }
    own, importing, beside, other = mutants.nearest_tests(pathlib.Path("pilot/lib/hosts.py"), tests)
    assert (own, importing) == ("tests/unit/lib/test_hosts.py", "tests/unit/mesh/test_names.py")
    assert (beside, other) == ("tests/unit/lib/test_duration.py", "tests/unit/ca/test_csr.py")


def test_existing_functions_get_the_changed_code(module: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ROOT", module)
    namespace: dict[str, object] = {}
    exec(
        compile(
            "def f(a, b=2):\n    def g():\n        return a < b\n    return g\n",
            str(module / "m.py"),
            "exec",
            dont_inherit=True,
        ),
        namespace,
    )
    (module / "m.py").write_text("def f(a, b=2):\n    def g():\n        return a < b\n    return g\n")
    factory = namespace["f"]
    assert callable(factory)
    assert not factory(2)()
    mutants_by_change = {m.change: m for m in mutants_of(pathlib.Path("m.py"), module)}
    assert not trial.Functions().change(mutants_by_change["2 → 3"])  # defaults are evaluated at import
    assert trial.Functions().change(mutants_by_change["Lt → LtE"])
    assert factory(2)()


def test_jobs_round_trip(tmp_path: pathlib.Path) -> None:
    jobs = [trial.Job(Mutant(pathlib.Path("m.py"), 3, 1, 2, "Lt → LtE"), ["test_m.py::test_f"], 0.5)]
    trial.write_jobs(tmp_path / "jobs.json", jobs)
    assert trial.read_jobs(tmp_path / "jobs.json") == jobs


@pytest.mark.parametrize(
    ("name", "file"),
    [("webhook", "webhook/__init__.py"), ("mesh", "pilot/mesh/__init__.py"), ("ca", "ca/__init__.py")],
)
def test_packages_below_and_beside_pilot(name: str, file: str) -> None:
    assert pathlib.Path(file) in mutants.files_of(name)


def test_files_of_a_package_exclude_listed_sub_packages() -> None:
    assert not [path for path in mutants.files_of("mesh") if path.parts[2] == "analysis"]
    assert mutants.files_of("mesh/analysis")


def test_every_package_exists() -> None:
    assert [name for name in mutants.PACKAGES if name != mutants.READS and not mutants.files_of(name)] == []
