#!/usr/bin/env python3
"""Run the tasks of this repository. It needs only Python, git and a package index, and makes .venv on first use.

python3 dev.py sample          the shop on this machine: apps, control plane, a stock Envoy (Ctrl-C stops it)
python3 dev.py sample secure   two of its services behind sidecars: mutual TLS, an AuthorizationPolicy
python3 dev.py test [ARGS]     all tests, on all cores; ARGS go to pytest (paths, -k NAME, -n0 for one process, …)
python3 dev.py test fast       the tests that start no processes and take no seconds: tests/unit, protocol, simulate and
                               golden without those marked `slow`. Left out: end-to-end, incremental and property tests
python3 dev.py conformance     compare with recordings of istiod; see tests/conformance/README.md
python3 dev.py lint            ruff, mypy, layer contracts, generated files, documentation, secrets
python3 dev.py secrets [PATHS] search the repository for private keys and tokens; part of lint
python3 dev.py version         print the project's version, from pyproject.toml
python3 dev.py run COMMAND     run a command of the environment (pilotctl, pilot-discovery, python …)
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
LINT = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "--quiet", "."],
    ["mypy"],
    ["lint-imports"],
    ["python", "tools/lint_words.py"],
    ["python", "-m", "pilot.settings", "--check", "docs/settings.md"],
    ["python", "-m", "deploy", "--check"],
    ["python", "-m", "sphinx", "-W", "-q", "--keep-going", "-b", "html", "docs", "build/site"],
]
# Hashes and base64 are everywhere in a mesh, so that entropy says nothing. --no-verify: nothing is sent anywhere.
SECRETS = [
    "detect-secrets-hook",
    "--no-verify",
    "--disable-plugin=Base64HighEntropyString",
    "--disable-plugin=HexHighEntropyString",
    "--disable-plugin=KeywordDetector",
    "--exclude-files=/template_table/",  # expressions that make keys
]
FAST = ["bench/tests", "tests/unit", "tests/protocol", "tests/simulate", "tests/golden", "-m", "not slow"]
# A file stays on one worker, because its tests share fixtures. conftest.py decides the order of the files.
PARALLEL = ["--numprocesses", "auto", "--maxprocesses", "8", "--dist", "loadfile", "--no-loadscope-reorder"]
GENERATED = [
    "tests/conformance/meshes",
    "tests/golden/cases",
    "deploy/manifests",
    "deploy/charts/base/files",
    "*_pb2.py*",
]


def ensure(extra: str) -> None:
    """Make the environment with that extra of pyproject.toml, unless it is there and pyproject.toml is the same."""
    stamp, want = VENV / f".{extra}", hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == want:
        return
    if not (BIN / "python").exists():
        print("making .venv", flush=True)
        venv.create(VENV, with_pip=True)
    print(f"installing into .venv ({extra})", flush=True)
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", **os.environ}
    subprocess.run(
        [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--editable", f".[{extra}]"],
        cwd=ROOT,
        check=True,
        env=quiet,
    )
    stamp.write_text(want)


def environment() -> dict[str, str]:
    """Return the variables of the environment. Bytecode is cached, because tests start hundreds of processes."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**variables, "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", "")]), "VIRTUAL_ENV": str(VENV)}


def become(command: list[str]) -> int:
    """Run a command of the environment; Ctrl-C is for the command."""
    process = subprocess.Popen(
        [str(BIN / command[0]) if (BIN / command[0]).exists() else command[0], *command[1:]],
        cwd=ROOT,
        env=environment(),
    )
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def pytest_command(arguments: list[str]) -> list[str]:
    """Return the command that runs tests: on all cores, unless the arguments name a file or a number of workers."""
    if arguments[:1] == ["fast"]:
        arguments = [*FAST, *arguments[1:]]
    is_serial = any(".py" in word or word.startswith(("-n", "--numprocesses", "--pdb")) for word in arguments)
    return ["python", "-m", "pytest", *([] if is_serial else PARALLEL), *arguments]


def search_secrets(paths: list[str]) -> int:
    """Search files of the repository for private keys and tokens, on all cores."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    output = subprocess.run([*listing, *(f":!{path}" for path in GENERATED)], cwd=ROOT, check=True, capture_output=True)
    files = [name for name in output.stdout.decode().split("\0") if (ROOT / name).is_file()]
    cores = os.cpu_count() or 1
    searches = [
        subprocess.Popen([str(BIN / SECRETS[0]), *SECRETS[1:], *files[start::cores]], cwd=ROOT, env=environment())
        for start in range(cores)
    ]
    return max(search.wait() for search in searches)


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 -- this file runs before anything could check it
        print("Python 3.11 or newer is needed", file=sys.stderr)
        return 1
    task, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if task == "sample":
        ensure("sample")
        secure = rest[:1] == ["secure"]
        return become(
            ["python", "samples/shop/secure.py", *rest[1:]] if secure else ["python", "samples/shop/run.py", *rest]
        )
    if task == "test":
        ensure("dev")
        return become(pytest_command(rest))
    if task == "conformance":
        ensure("dev")
        return become(["python", "-m", "tests.conformance", *rest])
    if task == "lint":
        ensure("dev")
        return max(*(become(command) for command in LINT), search_secrets([]))
    if task == "secrets":
        ensure("dev")
        return search_secrets(rest)
    if task == "version":
        import tomllib  # not in the versions of Python that are refused above

        print(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
        return 0
    if task == "run" and rest:
        ensure("dev")
        return become(rest)
    print(__doc__)
    return 0 if task in ("help", "-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
