"""Pinned versions of the image."""

from __future__ import annotations

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_every_image_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["kubernetes"]]
    names = {re.split(r"[^\w-]", requirement)[0].lower() for requirement in requirements}
    pins = re.findall(r"^([\w-]+)==", (ROOT / "deploy/constraints.txt").read_text(), re.MULTILINE)
    assert names - {pin.lower() for pin in pins} == set()
