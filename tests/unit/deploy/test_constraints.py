"""Pinned versions of the image, and the search for known vulnerabilities in them."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import tomllib

import pytest

from tools.audit_dependencies import judge

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["constraints.txt", "build-requirements.txt"])
def test_every_pin_has_hashes(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text().replace("\\\n", "")
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert pins
    for pin in pins:
        assert re.fullmatch(r"[\w.-]+==\S+( ; \S.*?)?( +--hash=sha256:[0-9a-f]{64})+", pin.rstrip()), pin[:60]


def test_the_image_is_built_from_digests_and_hashes() -> None:
    text = (ROOT / "Dockerfile").read_text()
    bases = {line.split()[1] for line in text.splitlines() if line.startswith("FROM ")}
    stages = set(re.findall(r"^FROM .* AS (\w+)$", text, re.MULTILINE))
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", base) for base in bases - stages)
    installs = re.findall(r"^.*\bpip .*install .*$", text, re.MULTILINE)
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-deps --no-index" in line for line in installs)


def run_of(stdout: str, stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], 1, stdout, stderr)


SOUND = {"name": "a", "version": "1", "vulns": []}
FAULTY = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found: c (1)"}


@pytest.mark.parametrize(
    ("dependencies", "status", "line"),
    [
        ([SOUND], 0, "p: no known vulnerabilities in 1 packages"),
        ([SOUND, FAULTY], 1, "p: b 2 has CVE-1, fixed in 3"),
        ([SOUND, SKIPPED], 1, "p: not found: c (1)"),
        ([SKIPPED], 0, "p: the vulnerability database cannot be reached; the dependencies were not checked"),
    ],
)
def test_audit_of_dependencies(dependencies: list[object], status: int, line: str) -> None:
    assert judge("p", run_of(json.dumps({"dependencies": dependencies}))) == (status, [line])


@pytest.mark.parametrize(
    ("stderr", "status"),
    [("requests.exceptions.ProxyError: refused", 0), ("error: unknown option", 1), ("", 1)],
)
def test_audit_that_fails_is_an_error_unless_the_database_is_unreachable(stderr: str, status: int) -> None:
    assert judge("p", run_of("", stderr))[0] == status


def test_every_image_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["kubernetes"]]
    names = {re.split(r"[^\w-]", requirement)[0].lower() for requirement in requirements}
    pins = re.findall(r"^([\w-]+)==", (ROOT / "deploy/constraints.txt").read_text(), re.MULTILINE)
    assert names - {pin.lower() for pin in pins} == set()
