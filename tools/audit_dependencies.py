"""Check the image's dependencies and the build tools for known vulnerabilities.

The exit status is 1 if a pinned version has one. If the vulnerability database cannot be reached, one line per file
says so, and the exit status is 0.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
REQUIREMENTS = ("deploy/constraints.txt", "deploy/build-requirements.txt")
ACCEPTED: dict[str, str] = {}
"""The identifiers of vulnerabilities that do not affect this project, with the reasons."""
_UNREACHABLE = "the vulnerability database cannot be reached; the dependencies were not checked"


def main() -> int:
    worst = 0
    for path in REQUIREMENTS:
        status, lines = judge(path, run_audit(path))
        print("\n".join(lines))
        worst = max(worst, status)
    return worst


def run_audit(path: str) -> subprocess.CompletedProcess[str]:
    """Run pip-audit for a file of pinned versions. Nothing is installed."""
    options = ["--disable-pip", "--progress-spinner=off", "--format=json", "--timeout=10"]
    options += [f"--ignore-vuln={name}" for name in ACCEPTED]
    command = [sys.executable, "-m", "pip_audit", f"--requirement={path}", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def judge(path: str, audit: subprocess.CompletedProcess[str]) -> tuple[int, list[str]]:
    """Return the exit status and the lines of output for the result of pip-audit."""
    try:
        dependencies: list[dict[str, Any]] = json.loads(audit.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (audit.stderr.strip().splitlines() or ["no output"])[-1]
        if reason.startswith("requests.exceptions.") or "ConnectionError" in reason:
            return 0, [f"{path}: {_UNREACHABLE}"]
        return 1, [f"{path}: pip-audit failed: {reason}"]
    checked = [dependency for dependency in dependencies if "vulns" in dependency]
    if not checked:
        return 0, [f"{path}: {_UNREACHABLE}"]
    faults = [*_vulnerabilities(checked), *(d["skip_reason"] for d in dependencies if "vulns" not in d)]
    if faults:
        return 1, [f"{path}: {fault}" for fault in faults]
    return 0, [f"{path}: no known vulnerabilities in {len(checked)} packages"]


def _vulnerabilities(dependencies: list[dict[str, Any]]) -> Iterator[str]:
    for dependency in dependencies:
        for fault in dependency["vulns"]:
            fixed = ", ".join(fault.get("fix_versions") or ()) or "no version"
            yield f"{dependency['name']} {dependency['version']} has {fault['id']}, fixed in {fixed}"


if __name__ == "__main__":
    sys.exit(main())
