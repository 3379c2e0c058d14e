"""Scratch directories for tests of mutants, which may write to their working directory."""

from __future__ import annotations

import pathlib
import sys
import tempfile


def test_command(tree: pathlib.Path) -> list[str]:
    """Return the command that runs pytest with a tree's configuration, from any directory."""
    return [sys.executable, "-m", "pytest", "-c", str(tree / "pyproject.toml")]


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Create a working directory. Errors during its cleanup are ignored, because processes may still be using it."""
    return tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True)
