"""Tests of mutants run in scratch directories, because a mutant may write into the directory that it runs in."""

from __future__ import annotations

import pathlib
import sys
import tempfile


def test_command(tree: pathlib.Path) -> list[str]:
    """Return the command that runs pytest with a tree's configuration, from any directory."""
    return [sys.executable, "-m", "pytest", "-c", str(tree / "pyproject.toml")]


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Create a working directory. Files that its processes still delete or add meanwhile are no error."""
    return tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True)
