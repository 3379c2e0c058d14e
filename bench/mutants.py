#!/usr/bin/env python3
"""Run mutation tests: make small wrong changes to the product, one at a time, and report those that no test detects.

    python bench/mutants.py [reads] [PACKAGES] [--sample 200] [--minutes 60]

PACKAGES are folders or files below pilot/ (derive, xds, mesh/analysis …) or beside it (webhook, ca). `mesh` excludes
sub-packages that are listed separately, such as mesh/analysis. First, all fast tests run once under coverage.py (`pip
install coverage`) to find the tests for each line; --work keeps this data. A mutant is then run against the tests that
execute it, those that import its module first, in a fork of a process that has collected them. Changes that only take
effect at import are made in a copy of the tree, with the nearest test files. PYISTIOD_SEED selects the sample.

The word `reads` tests dependency tracking instead: it makes each tracked read of a table by the mesh and envoy packages
untracked, one at a time, and checks that edits of a mesh detect it: first the edits written for the read
(testing/edits/resource_read_cases.py, report_read_cases.py), then random ones.

Without arguments, everything is tested. Survivors and a table by package are printed. The exit status is 1 if fewer
than nine in ten mutants, or not all reads, are detected.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
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
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.mutation.changes import UNCHANGED, Mutant, mutants_of, mutated  # noqa: E402
from bench.mutation.coverage_map import MEASURED, OUTCOMES, CoverageMap, measure  # noqa: E402
from bench.mutation.scratch import scratch_directory, test_command  # noqa: E402
from bench.mutation.trial import BROKEN, IMPORT_TIME, SURVIVED, Job, write_jobs  # noqa: E402

READS = "reads"
PACKAGES = (
    READS,
    "derive",
    "xds",
    "ingest",
    "config/validation",
    "mesh/analysis",
    "mesh",
    "config",
    "envoy",
    "settings",
    "lib",
    "debug",
    "cli",
    "bootstrap",
    "kube",
    "controllers",
    "webhook",
    "gotemplate",
    "ca",
    "agent",
    "install",
    "operator",
    "mcp",
    "controlz",
    "pprof",
)
REQUIRED_SHARE = 0.90
NEAREST = 12  # number of nearest test files
FORK_SECONDS, IMPORT_SECONDS = 60.0, 20.0  # duration of the tests per mutant, in a fork and for changes at import
IMPORT_TIMEOUT = 300.0  # for changes at import
TOURS = 16  # maximum number of tours of edits for untracked reads
SHORT_TOURS = 12  # number of further tours with one kind of object, from different states


def nearest_tests(path: pathlib.Path, tests: dict[pathlib.Path, set[str]]) -> list[str]:
    """Return the test files closest to a module: its own, which mirrors its path, those that import it, those in its
    folder.
    """
    module = ".".join(path.with_suffix("").parts)
    folder = pathlib.Path("tests/unit", *path.parent.parts[path.parts[0] == "pilot" :])

    def distance(item: tuple[pathlib.Path, set[str]]) -> tuple[bool, bool, int, int]:
        test, imports = item
        common = len({test, *test.parents} & {folder, *folder.parents})
        is_own = test.parent == folder and test.stem == f"test_{path.stem}"
        return not is_own, module not in imports, -common, len(imports)

    return [str(test) for test, _ in sorted(tests.items(), key=distance)[:NEAREST]]


def imports_of_tests() -> dict[pathlib.Path, set[str]]:
    """Return the product modules that each fast test file imports, directly or through the package testing."""
    direct = {
        path.relative_to(ROOT): set(re.findall(r"^from (\S+) import", path.read_text(), re.MULTILINE))
        for folder in ("tests", "testing")
        for path in (ROOT / folder).rglob("*.py")
    }
    shared = {".".join(p.with_suffix("").parts): modules for p, modules in direct.items() if p.parts[0] == "testing"}
    fast = {
        path: modules for path, modules in direct.items() if path.stem.startswith("test_") and "e2e" not in path.parts
    }
    whole = {path: modules.union(*(shared.get(m, set()) for m in modules)) for path, modules in fast.items()}
    return {path: {m for m in modules if m.partition(".")[0] in MEASURED} for path, modules in whole.items()}


def tests_of_all_modules() -> list[str]:
    """Return the test files that inspect every module of a package."""
    fast = (path for path in (ROOT / "tests").rglob("test_*.py") if "e2e" not in path.parts)
    return sorted(
        str(path.relative_to(ROOT))
        for path in fast
        if "walk_packages" in path.read_text() or "import classes" in path.read_text()
    )


def files_of(name: str) -> list[pathlib.Path]:
    """Return the files of a package, without packages inside it that are listed separately."""
    root = next(
        (p for p in (ROOT / "pilot" / name, ROOT / name) if p.exists() or p.with_suffix(".py").exists()),
        ROOT / "pilot" / name,
    )
    inner = [root / other.removeprefix(f"{name}/") for other in PACKAGES if other.startswith(f"{name}/")]
    paths = sorted(root.rglob("*.py")) if root.is_dir() else [root.with_suffix(".py")]
    return [
        p.relative_to(ROOT)
        for p in paths
        if not p.name.endswith("_pb2.py") and not any(p.is_relative_to(i) for i in inner)
    ]


class Package:
    """A sample of the mutants of a package."""

    def __init__(self, name: str, rng: random.Random, sample: int) -> None:
        mutants = [m for path in files_of(name) for m in mutants_of(path, ROOT)]
        self.name = name
        self.mutants = rng.sample(mutants, min(sample, len(mutants)))


class TestSelection:
    """Selects the tests for a mutant."""

    def __init__(self, coverage_map: CoverageMap) -> None:
        self._coverage = coverage_map
        self._imports = imports_of_tests()
        self._general_tests = tests_of_all_modules()

    def job(self, mutant: Mutant) -> Job:
        """Return a job with the tests that execute the mutant."""
        return self._select(mutant, range(mutant.first, mutant.last + 1), FORK_SECONDS)

    def import_job(self, mutant: Mutant) -> Job:
        """Return a job for a change at import: tests of every module, and those that execute anything in the mutant's
        file.
        """
        job = self._select(mutant, None, IMPORT_SECONDS)
        general = [test for file in self._general_tests for test in self._coverage.tests_of_file(file)]
        return job._replace(tests=list(dict.fromkeys([*general, *job.tests])))

    def _select(self, mutant: Mutant, lines: range | None, limit: float) -> Job:
        """Return a job with tests of the nearest files, taken in turn, and then of all other files in turn."""
        files: dict[str, list[str]] = {}
        reaching = self._coverage.reaching(mutant.path, lines)
        if not reaching and lines is None:
            reaching = [
                test
                for file in nearest_tests(mutant.path, self._imports)
                for test in self._coverage.tests_of_file(file)
            ]
        for test in reaching:
            files.setdefault(test.partition("::")[0], []).append(test)
        nearest = [files.pop(file, []) for file in nearest_tests(mutant.path, self._imports)]
        rounds = (one_round for group in (nearest, files.values()) for one_round in itertools.zip_longest(*group))
        tests, seconds = list[str](), 0.0
        for test in (test for one_round in rounds for test in one_round if test):
            if seconds + self._coverage.seconds[test] <= limit:
                tests.append(test)
                seconds += self._coverage.seconds[test]
        return Job(mutant, tests, seconds)


def run_jobs(jobs: Sequence[Job], folder: pathlib.Path, deadline: float) -> dict[int, int]:
    """Run jobs, and return their results by number. Jobs beyond the deadline are missing."""
    path = folder / "jobs.json"
    write_jobs(path, jobs)
    results = path.with_suffix(".results")
    results.unlink(missing_ok=True)
    files = sorted({str(ROOT / test.partition("::")[0]) for job in jobs for test in job.tests})
    command = [*test_command(ROOT), "-q", "-s", "-p", "no:cacheprovider", "-p", "bench.mutation.trial", *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYISTIOD_SEED": "1", "MUTATION_JOBS": str(path)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        if not results.exists():
            sys.exit(output)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # stop the current trial
        process.communicate()
    lines = results.read_text().splitlines() if results.exists() else []
    return {int(number): int(exit_code) for number, _, exit_code in (line.partition(" ") for line in lines)}


def is_caught_at_import(job: Job, tree: pathlib.Path) -> bool:
    """Return whether a test fails or times out in a tree with the change. The tree is restored afterwards."""
    path = tree / job.mutant.path
    source = path.read_text()
    path.write_text(ast.unparse(mutated(job.mutant, ROOT)))
    command = [*test_command(tree), "-x", "-q", "-p", "no:cacheprovider", *(str(tree / test) for test in job.tests)]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "PYISTIOD_SEED": "1"}
    with scratch_directory() as scratch:
        child = subprocess.Popen(
            command,
            cwd=scratch,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
        try:
            return child.wait(IMPORT_TIMEOUT) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):  # including child processes of the tests
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            path.write_text(source)


def try_package(
    package: Package, coverage_map: CoverageMap, folder: pathlib.Path, tree: pathlib.Path, deadline: float
) -> tuple[int, int]:
    """Return the numbers of mutants that were tried and caught, and print survivors."""
    selection = TestSelection(coverage_map)
    jobs = [selection.job(mutant) for mutant in package.mutants]
    longest = max(jobs, key=lambda job: job.seconds)
    jobs.insert(0, longest._replace(mutant=longest.mutant._replace(change=UNCHANGED)))
    tried, caught = 0, 0
    for number, exit_code in run_jobs(jobs, folder, deadline).items():
        job = jobs[number]
        if job.mutant.change == UNCHANGED:
            if exit_code != SURVIVED:
                sys.exit("tests fail without a mutation, so the results would be meaningless")
            continue
        if exit_code == BROKEN:
            sys.exit(f"trial failed: {job.mutant}")
        is_caught, scope = exit_code != SURVIVED, f"{len(job.tests)} tests"
        if exit_code == IMPORT_TIME:
            if time.monotonic() > deadline:
                continue
            job = selection.import_job(job.mutant)
            is_caught, scope = bool(job.tests) and is_caught_at_import(job, tree), f"{len(job.tests)} tests, at import"
        tried, caught = tried + 1, caught + is_caught
        if not is_caught:
            print(f"survived: {job.mutant} ({scope if job.tests else 'not executed by any test'})", flush=True)
    return tried, caught


def try_reads() -> tuple[int, int]:
    """Return the number of reads, and of those that are detected when untracked or exempt. Print the others."""
    from testing.edits.mesh_edits import FLAGS, SLOTS, tour
    from testing.edits.report_read_cases import REPORT_CASES
    from testing.edits.resource_read_cases import CASES
    from testing.edits.untracked_reads import EXEMPT_SITES, Survey

    case_results = {site: detected for case in (*CASES, *REPORT_CASES) for site, detected in case.results().items()}
    sites, detected = set(case_results), {site for site in case_results if case_results[site]}
    for number in range(TOURS):
        survey = Survey()
        survey.add(tour(random.Random(f"reads {number}"), calm=number < 2), FLAGS if number % 2 else {})
        sites |= survey.sites
        detected |= {site for site in survey.sites - detected if survey.detects(site)}
        print(f"tour {number + 1}: {len(detected)} of {len(sites)} reads", flush=True)
        if number and all(site.name in EXEMPT_SITES for site in sites - detected):
            break
    for table in sorted({site.table for site in sites - detected if site.name not in EXEMPT_SITES}):
        slots = [number for number, slot in enumerate(SLOTS) if slot.table == table]
        survey = Survey()
        for number in range(SHORT_TOURS):
            survey.add(
                tour(random.Random(f"{table} {number}"), calm=number == 0, among=slots), {} if number == 1 else FLAGS
            )
        sites |= survey.sites
        detected |= {site for site in survey.sites - detected if site.table == table and survey.detects(site)}
        print(f"short tours of {table}: {len(detected)} of {len(sites)} reads", flush=True)
    for site in sorted(sites - detected, key=str):
        print(
            f"exempt: {site}: {EXEMPT_SITES[site.name]}"
            if site.name in EXEMPT_SITES
            else f"survived: {site} untracked",
            flush=True,
        )
    stale_exemptions = EXEMPT_SITES.keys() - {site.name for site in sites - detected}
    for name in sorted(stale_exemptions):
        print(f"exempt, but detected or removed: {name}", flush=True)
    return len(sites) + len(stale_exemptions), len(detected) + sum(
        site.name in EXEMPT_SITES for site in sites - detected
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages", nargs="*", default=[], help="folders or files below pilot/ or beside it, or `reads`"
    )
    parser.add_argument("--sample", type=int, default=200, help="mutants per package")
    parser.add_argument("--minutes", type=float, default=600, help="stop after this time")
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        help="folder that keeps the coverage data, for further runs with the same tree",
    )
    options = parser.parse_args()
    seed = os.environ.get("PYISTIOD_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"PYISTIOD_SEED={seed}", flush=True)
    results: dict[str, tuple[int, int]] = {}
    deadline = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        work, tree = options.work or pathlib.Path(temporary) / "work", pathlib.Path(temporary) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache"))
        packages = options.packages or PACKAGES
        if set(packages) != {READS} and not (work / OUTCOMES).exists():
            measure(work, sorted(str(path) for path in imports_of_tests()))
        for name in packages:
            if name == READS:
                results[name] = try_reads()
            else:
                package = Package(name, random.Random(f"{seed} {name}"), options.sample)
                results[name] = try_package(package, CoverageMap(work), work, tree, deadline)
            print(row(name, *results[name]), flush=True)
    print("| package | tried | caught | |\n|---|---|---|---|")
    for name, (tried, caught) in results.items():
        print(row(name, tried, caught))
    return (
        0
        if all(
            caught >= (1.0 if name == READS else REQUIRED_SHARE) * tried for name, (tried, caught) in results.items()
        )
        else 1
    )


def row(name: str, tried: int, caught: int) -> str:
    """Return a row of the table."""
    return f"| {name} | {tried} | {caught} | {100 * caught / tried if tried else 0:.0f} % |"


if __name__ == "__main__":
    sys.exit(main())
