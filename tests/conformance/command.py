"""Runs pilotctl for a comparison."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

SECONDS = 120


def run_pilotctl(
    arguments: Sequence[str], folder: pathlib.Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pilotctl of this environment in a folder, with these variables added."""
    return subprocess.run(
        [str(pathlib.Path(sys.executable).parent / "pilotctl"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **(environ or {})},
    )
