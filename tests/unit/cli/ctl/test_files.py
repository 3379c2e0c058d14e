"""Configuration files from arguments."""

from __future__ import annotations

import os
import pathlib

import pytest

from pilot.cli.ctl.files import read_files


def test_hidden_folders_are_skipped(tmp_path: pathlib.Path) -> None:
    for place in ("a.yaml", "b/c.yaml", ".d/e.yaml", "b/.f.yaml", "b/g.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("x: 1")
    assert [os.path.relpath(name, tmp_path) for name in read_files([str(tmp_path)])] == ["a.yaml", "b/c.yaml"]


def test_paths_that_are_no_files_are_skipped_with_a_warning(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.yaml")
    pathlib.Path("link.yaml").symlink_to("nowhere")
    pathlib.Path("z.yaml").write_text("x: 1")
    assert read_files(["."]) == {"./z.yaml": b"x: 1"}
    assert capsys.readouterr().err == (
        "! ./link.yaml was not read: broken symbolic link to nowhere\n! ./pipe.yaml was not read: not a regular file\n"
    )


def test_files_have_the_order_of_the_control_plane(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("a").mkdir()
    for place in ("b.yaml", "a/c.yaml"):
        pathlib.Path(place).write_text("x: 1")
    assert list(read_files(["."])) == ["./a/c.yaml", "./b.yaml"]
