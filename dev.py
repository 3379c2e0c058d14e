#!/usr/bin/env python3
"""Run the tasks of this repository. Requires Python, git and a package index. The first use creates .venv.

python3 dev.py sample          run the sample shop: apps, control plane and a stock Envoy, until Ctrl-C
python3 dev.py sample secure   run two of its services behind sidecars, with mutual TLS and an AuthorizationPolicy
python3 dev.py test [ARGS]     run all tests on all cores; ARGS are passed to pytest (paths, -k NAME, -n0 …)
python3 dev.py test fast       run the fast tests: tests/unit, protocol, simulate and golden, except those marked `slow`
                               and without end-to-end, incremental and property tests
python3 dev.py conformance     compare with recordings of istiod; see tests/conformance/README.md
python3 dev.py lint            run ruff and mypy, and check import layers, wording, regular expressions, dependencies,
                               workflows, generated files, documentation and secrets
python3 dev.py secrets [PATHS] search the repository for private keys and tokens (part of lint)
python3 dev.py version         print the project's version from pyproject.toml
python3 dev.py run COMMAND     run a command in the environment (pilotctl, pilot-discovery, python …)
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import signal
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
    ["python", "tools/lint_regexes.py"],
    ["python", "tools/audit_dependencies.py"],
    ["zizmor", "--offline", "--quiet", ".github"],
    ["python", "-m", "pilot.settings", "--check", "docs/settings.md"],
    ["python", "-m", "deploy", "--check"],
    ["python", "-m", "sphinx", "-W", "-q", "--keep-going", "-b", "html", "docs", "build/site"],
]
# Entropy plugins are disabled because hashes and base64 are everywhere in a mesh. --no-verify: secrets are not sent to
# their providers.
SECRETS = [
    "detect-secrets-hook",
    "--no-verify",
    "--disable-plugin=Base64HighEntropyString",
    "--disable-plugin=HexHighEntropyString",
    "--disable-plugin=KeywordDetector",
    "--exclude-files=/template_table/",  # expressions that generate keys
]
FAST = ["bench/tests", "tests/unit", "tests/protocol", "tests/simulate", "tests/golden", "-m", "not slow"]
# Each file stays on one worker, because its tests share fixtures. conftest.py determines the order of the files.
PARALLEL = ["--numprocesses", "auto", "--maxprocesses", "8", "--dist", "loadfile", "--no-loadscope-reorder"]
GENERATED = [
    "tests/conformance/meshes",
    "tests/golden/cases",
    "deploy/manifests",
    "deploy/charts/base/files",
    "*_pb2.py*",
]


def ensure(extra: str) -> None:
    """Create or update the environment with an extra of pyproject.toml, unless it is up to date.

    The extra `dev` includes all others.
    """
    stamp, digest = VENV / f".{extra}", hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if any(path.exists() and path.read_text() == digest for path in (stamp, VENV / ".dev")):
        return
    if not (BIN / "python").exists():
        print("creating .venv", flush=True)
        venv.create(VENV, with_pip=True)
    print(f"installing into .venv ({extra})", flush=True)
    environ = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", **os.environ}
    subprocess.run(
        [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--editable", f".[{extra}]"],
        cwd=ROOT,
        check=True,
        env=environ,
    )
    stamp.write_text(digest)


def environment() -> dict[str, str]:
    """Return the environment variables. Bytecode is cached, because tests start hundreds of processes."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**variables, "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", "")]), "VIRTUAL_ENV": str(VENV)}


def run_command(command: list[str]) -> int:
    """Run a command in the environment. Ctrl-C is handled by the command, and SIGTERM is passed to it."""
    process = subprocess.Popen(
        [str(BIN / command[0]) if (BIN / command[0]).exists() else command[0], *command[1:]],
        cwd=ROOT,
        env=environment(),
    )
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
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
    """Search files of the repository for private keys and tokens, on all cores. Return the exit status."""
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
    if sys.version_info < (3, 11):  # noqa: UP036 -- nothing has checked the version yet
        print("Python 3.11 or newer is required", file=sys.stderr)
        return 1
    task, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if task == "sample":
        ensure("sample")
        secure = rest[:1] == ["secure"]
        return run_command(
            ["python", "samples/shop/secure.py", *rest[1:]] if secure else ["python", "samples/shop/run.py", *rest]
        )
    if task == "test":
        ensure("dev")
        return run_command(pytest_command(rest))
    if task == "conformance":
        ensure("dev")
        return run_command(["python", "-m", "tests.conformance", *rest])
    if task == "lint":
        ensure("dev")
        return max(*(run_command(command) for command in LINT), search_secrets([]))
    if task == "secrets":
        ensure("dev")
        return search_secrets(rest)
    if task == "version":
        import tomllib  # not available in the versions rejected above

        print(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
        return 0
    if task == "run" and rest:
        ensure("sample" if rest[0].startswith("pilot") else "dev")
        return run_command(rest)
    print(__doc__)
    return 0 if task in ("help", "-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
