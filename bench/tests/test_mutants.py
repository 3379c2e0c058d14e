"""The mutants of bench/mutants.py, and the tests that they are shown to."""

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


def test_every_change_gives_another_program_that_can_be_read(module: pathlib.Path) -> None:
    made = {str(m): ast.unparse(mutated(m, module)) for m in mutants_of(pathlib.Path("m.py"), module)}
    assert sorted(name.partition(" ")[2] for name in made) == sorted(
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
    for name, source in made.items():
        assert source != ast.unparse(ast.parse(FUNCTION)), name
        compile(source, name, "exec")


def test_a_dropped_statement_leaves_a_program(module: pathlib.Path) -> None:
    dropped = next(m for m in mutants_of(pathlib.Path("m.py"), module) if m.what == DROPPED)
    assert "print" not in ast.unparse(mutated(dropped, module))


def test_the_nearest_tests_come_first() -> None:
    tests = {
        pathlib.Path("tests/unit/ca/test_csr.py"): set[str](),
        pathlib.Path("tests/unit/lib/test_duration.py"): {"pilot.lib.duration"},
        pathlib.Path("tests/unit/lib/test_hosts.py"): set[str](),
        pathlib.Path("tests/unit/mesh/test_names.py"): {"pilot.lib.hosts"},
    }
    own, importing, beside, other = mutants.nearest_tests(pathlib.Path("pilot/lib/hosts.py"), tests)
    assert (own, importing) == ("tests/unit/lib/test_hosts.py", "tests/unit/mesh/test_names.py")
    assert (beside, other) == ("tests/unit/lib/test_duration.py", "tests/unit/ca/test_csr.py")


def test_functions_that_are_there_get_the_changed_code(module: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    kept = namespace["f"]
    assert callable(kept)
    assert not kept(2)()
    found = {m.what: m for m in mutants_of(pathlib.Path("m.py"), module)}
    assert not trial.Functions().change(found["2 → 3"])  # a default is made at import
    assert trial.Functions().change(found["Lt → LtE"])
    assert kept(2)()


def test_jobs_are_read_as_they_were_written(tmp_path: pathlib.Path) -> None:
    jobs = [trial.Job(Mutant(pathlib.Path("m.py"), 3, 1, 2, "Lt → LtE"), ["test_m.py::test_f"], 0.5)]
    trial.write_jobs(tmp_path / "jobs.json", jobs)
    assert trial.read_jobs(tmp_path / "jobs.json") == jobs


@pytest.mark.parametrize(
    ("name", "file"),
    [("webhook", "webhook/__init__.py"), ("mesh", "pilot/mesh/__init__.py"), ("ca", "ca/__init__.py")],
)
def test_a_package_is_below_pilot_or_beside_it(name: str, file: str) -> None:
    assert pathlib.Path(file) in mutants.files_of(name)


def test_a_package_is_without_those_inside_of_it_that_are_measured_themselves() -> None:
    assert not [path for path in mutants.files_of("mesh") if path.parts[2] == "analysis"]
    assert mutants.files_of("mesh/analysis")


def test_every_package_exists() -> None:
    assert [name for name in mutants.PACKAGES if name != mutants.READS and not mutants.files_of(name)] == []
