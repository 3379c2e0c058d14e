#!/usr/bin/env python3
"""Small wrong changes of the product, one at a time: which of them do the tests not see?

    python bench/mutants.py [reads] [PACKAGES] [--sample 200] [--minutes 60]

PACKAGES are folders or files below pilot/ (derive, serve, model/views …) or beside it (webhook, ca); `model` is what model/views and the
others that the table names leave of it. First all fast tests run once under coverage.py (`pip install
coverage`), which says what reaches what; --work keeps that. A mutant is then shown to the tests that reach it, those that import its module
first, in a fork of a process that has collected them. What runs at import alone is changed in a copy of the tree, and the nearest test
files run there. PYISTIOD_SEED draws the sample. The word `reads` makes every tracked read of a table by model and translate that is on the
way to what proxies get or users are told untracked instead, one at a time, at run time, and edits of a mesh must notice: first one that is
made for the read (testing/edits/resource_read_cases.py, told_read_cases.py), then random ones. Without words it is all of it. Prints survivors and a
table by package; exits 1 where less than nine in ten mutants, or not all reads, were caught.
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
PROMISE = 0.90
NEAREST = 12  # test files that come first
SHOWN_SECONDS, SHOWN_SECONDS_ANEW = (
    60.0,
    20.0,
)  # of tests that a mutant is shown to; of those that a change at import is shown to
ANEW_SECONDS = 300.0  # how long the latter may take
TOURS = 16  # of edits that look for untracked reads, at most
SHORT_TOURS = 12  # after them, of edits of one kind of object, from other states of everything else


def nearest_tests(path: pathlib.Path, tests: dict[pathlib.Path, set[str]]) -> list[str]:
    """Return the test files that are closest to a module: its own, which mirrors its path, then those that import it, then those
    in the folder that mirrors its package."""
    module = ".".join(path.with_suffix("").parts)
    folder = pathlib.Path("tests/unit", *path.parent.parts[path.parts[0] == "pilot" :])

    def distance(item: tuple[pathlib.Path, set[str]]) -> tuple[bool, bool, int, int]:
        test, imported = item
        common = len({test, *test.parents} & {folder, *folder.parents})
        is_own = test.parent == folder and test.stem == f"test_{path.stem}"
        return not is_own, module not in imported, -common, len(imported)

    return [str(test) for test, _ in sorted(tests.items(), key=distance)[:NEAREST]]


def imports_of_tests() -> dict[pathlib.Path, set[str]]:
    """Return the modules of the product that each fast test file imports, also through the package testing."""
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
    """The test files that look at every module of a package, whether they name it or not."""
    fast = (path for path in (ROOT / "tests").rglob("test_*.py") if "e2e" not in path.parts)
    return sorted(
        str(path.relative_to(ROOT))
        for path in fast
        if "walk_packages" in path.read_text() or "import classes" in path.read_text()
    )


def files_of(name: str) -> list[pathlib.Path]:
    """The files of a package, without those of the packages of the table that are inside of it."""
    place = next(
        (p for p in (ROOT / "pilot" / name, ROOT / name) if p.exists() or p.with_suffix(".py").exists()),
        ROOT / "pilot" / name,
    )
    inner = [place / other.removeprefix(f"{name}/") for other in PACKAGES if other.startswith(f"{name}/")]
    every = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return [
        p.relative_to(ROOT)
        for p in every
        if not p.name.endswith("_pb2.py") and not any(p.is_relative_to(i) for i in inner)
    ]


class Package:
    """The sampled mutants of a package, and what became of each."""

    def __init__(self, name: str, choose: random.Random, sample: int) -> None:
        every = [m for path in files_of(name) for m in mutants_of(path, ROOT)]
        self.name = name
        self.mutants = choose.sample(every, min(sample, len(every)))


class Nearness:
    """Chooses the tests that a mutant is shown to."""

    def __init__(self, reached: CoverageMap) -> None:
        self._reached = reached
        self._imports = imports_of_tests()
        self._of_all = tests_of_all_modules()

    def job(self, mutant: Mutant) -> Job:
        """The tests that reach the mutant."""
        return self._chosen(mutant, range(mutant.first, mutant.last + 1), SHOWN_SECONDS)

    def job_anew(self, mutant: Mutant) -> Job:
        """The tests that run anything of the mutant's file, for a change at import, and those of every module; those of the nearest files, where it
        has nothing to run."""
        job = self._chosen(mutant, None, SHOWN_SECONDS_ANEW)
        every = [test for file in self._of_all for test in self._reached.of_file(file)]
        return job._replace(tests=list(dict.fromkeys([*every, *job.tests])))

    def _chosen(self, mutant: Mutant, lines: range | None, at_most: float) -> Job:
        """Return the job with tests of the nearest files first, some of each in turn, then some of every other file in turn."""
        files: dict[str, list[str]] = {}
        reaching = self._reached.reaching(mutant.path, lines)
        if not reaching and lines is None:
            reaching = [
                test for file in nearest_tests(mutant.path, self._imports) for test in self._reached.of_file(file)
            ]
        for test in reaching:
            files.setdefault(test.partition("::")[0], []).append(test)
        nearest = [files.pop(file, []) for file in nearest_tests(mutant.path, self._imports)]
        turns = (turn for several in (nearest, files.values()) for turn in itertools.zip_longest(*several))
        chosen, seconds = list[str](), 0.0
        for test in (test for turn in turns for test in turn if test):
            if seconds + self._reached.seconds[test] <= at_most:
                chosen.append(test)
                seconds += self._reached.seconds[test]
        return Job(mutant, chosen, seconds)


def run_jobs(jobs: Sequence[Job], folder: pathlib.Path, deadline: float) -> dict[int, int]:
    """How the trial of each job ended, by its number; those that the time did not reach are missing."""
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
        process.send_signal(signal.SIGINT)  # it ends the trial that it is at
        process.communicate()
    lines = results.read_text().splitlines() if results.exists() else []
    return {int(number): int(exit_code) for number, _, exit_code in (line.partition(" ") for line in lines)}


def is_caught_anew(job: Job, tree: pathlib.Path) -> bool:
    """Whether one of the job's tests fails, or does not end, in a tree with the change; the tree is as it was afterwards."""
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
            return child.wait(ANEW_SECONDS) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):  # the tests' own children too
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            path.write_text(source)


def try_package(
    package: Package, reached: CoverageMap, folder: pathlib.Path, tree: pathlib.Path, deadline: float
) -> tuple[int, int]:
    """How many mutants of a package were tried, and how many caught; survivors are printed."""
    nearness = Nearness(reached)
    jobs = [nearness.job(mutant) for mutant in package.mutants]
    longest = max(jobs, key=lambda job: job.seconds)
    jobs.insert(0, longest._replace(mutant=longest.mutant._replace(what=UNCHANGED)))
    tried, caught = 0, 0
    for number, exit_code in run_jobs(jobs, folder, deadline).items():
        job = jobs[number]
        if job.mutant.what == UNCHANGED:
            if exit_code != SURVIVED:
                sys.exit("tests fail without a change: what they catch says nothing")
            continue
        if exit_code == BROKEN:
            sys.exit(f"cannot be tried: {job.mutant}")
        found, shown = exit_code != SURVIVED, f"{len(job.tests)} tests"
        if exit_code == IMPORT_TIME:
            if time.monotonic() > deadline:
                continue
            job = nearness.job_anew(job.mutant)
            found, shown = bool(job.tests) and is_caught_anew(job, tree), f"{len(job.tests)} tests, at import"
        tried, caught = tried + 1, caught + found
        if not found:
            print(f"survived: {job.mutant} ({shown if job.tests else 'no test reaches it'})", flush=True)
    return tried, caught


def try_reads() -> tuple[int, int]:
    """How many reads of tables there are, and how many are missed when they are not tracked, or explained; the others are printed."""
    from testing.edits.mesh_edits import FLAGS, SLOTS, tour
    from testing.edits.report_read_cases import REPORT_CASES
    from testing.edits.resource_read_cases import CASES
    from testing.edits.untracked_reads import EXEMPT_SITES, Survey

    tried = {site: noticed for case in (*CASES, *REPORT_CASES) for site, noticed in case.results().items()}
    sites, noticed = set(tried), {site for site in tried if tried[site]}
    for number in range(TOURS):
        survey = Survey()
        survey.add(tour(random.Random(f"reads {number}"), calm=number < 2), FLAGS if number % 2 else {})
        sites |= survey.sites
        noticed |= {site for site in survey.sites - noticed if survey.detects(site)}
        print(f"tour {number + 1}: {len(noticed)} of {len(sites)} reads", flush=True)
        if number and all(site.name in EXEMPT_SITES for site in sites - noticed):
            break
    for table in sorted({site.table for site in sites - noticed if site.name not in EXEMPT_SITES}):
        among = [number for number, slot in enumerate(SLOTS) if slot.table == table]
        survey = Survey()
        for number in range(SHORT_TOURS):
            survey.add(
                tour(random.Random(f"{table} {number}"), calm=number == 0, among=among), {} if number == 1 else FLAGS
            )
        sites |= survey.sites
        noticed |= {site for site in survey.sites - noticed if site.table == table and survey.detects(site)}
        print(f"short tours of {table}: {len(noticed)} of {len(sites)} reads", flush=True)
    for site in sorted(sites - noticed, key=str):
        print(
            f"explained: {site}: {EXEMPT_SITES[site.name]}"
            if site.name in EXEMPT_SITES
            else f"survived: {site} untracked",
            flush=True,
        )
    wrong = EXEMPT_SITES.keys() - {site.name for site in sites - noticed}
    for name in sorted(wrong):
        print(f"explained, but it is missed or gone: {name}", flush=True)
    return len(sites) + len(wrong), len(noticed) + sum(site.name in EXEMPT_SITES for site in sites - noticed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages", nargs="*", default=[], help="folders or files below pilot/ or beside it, and `reads`"
    )
    parser.add_argument("--sample", type=int, default=200, help="mutants a package")
    parser.add_argument("--minutes", type=float, default=600, help="stop then, with what was tried")
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        help="a folder that keeps which tests reach which lines, for more runs of the same tree",
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
        if all(caught >= (1.0 if name == READS else PROMISE) * tried for name, (tried, caught) in results.items())
        else 1
    )


def row(name: str, tried: int, caught: int) -> str:
    """A row of the table."""
    return f"| {name} | {tried} | {caught} | {100 * caught / tried if tried else 0:.0f} % |"


if __name__ == "__main__":
    sys.exit(main())
