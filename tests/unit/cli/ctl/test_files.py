"""Configuration files from arguments."""

from __future__ import annotations

import os
import pathlib

from pilot.cli.ctl.files import read_files


def test_hidden_folders_are_skipped(tmp_path: pathlib.Path) -> None:
    for place in ("a.yaml", "b/c.yaml", ".d/e.yaml", "b/.f.yaml", "b/g.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("x: 1")
    assert [os.path.relpath(name, tmp_path) for name in read_files([str(tmp_path)])] == ["a.yaml", "b/c.yaml"]
