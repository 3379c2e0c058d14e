"""Tasks of dev.py: the environments that they install."""

from __future__ import annotations

import hashlib
import importlib.util
import pathlib
import subprocess
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def dev() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("dev_script", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["sample"], "sample"),
        (["run", "pilotctl", "problems"], "sample"),
        (["run", "pilot-discovery", "discovery"], "sample"),
        (["run", "pytest", "tests/golden"], "dev"),
        (["run", "python", "bench/chaos.py"], "dev"),
        (["test"], "dev"),
    ],
)
def test_task_installs_only_what_it_needs(
    dev: types.ModuleType, monkeypatch: pytest.MonkeyPatch, words: list[str], extra: str
) -> None:
    extras: list[str] = []
    monkeypatch.setattr(dev, "ensure", extras.append)
    monkeypatch.setattr(dev, "run_command", lambda command: 0)
    assert dev.main(words) == 0
    assert extras == [extra]


@pytest.mark.parametrize(("current", "installs"), [((), True), (("sample",), False), (("dev",), False)])
def test_current_environment_is_not_installed_again(
    dev: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    current: tuple[str, ...],
    installs: bool,
) -> None:
    commands: list[list[str]] = []
    for name, value in {"VENV": tmp_path, "BIN": tmp_path}.items():
        monkeypatch.setattr(dev, name, value)
    (tmp_path / "python").touch()
    for extra in current:
        (tmp_path / f".{extra}").write_text(hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest())
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    dev.ensure("sample")
    assert bool(commands) is installs
