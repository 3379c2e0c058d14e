"""A control plane that is killed comes back with what it served, also where a file has become wrong meanwhile."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from testing.processes.process import ControlPlane, eventually

RULE = """apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: shop}
spec: {hosts: [a.example], http: [{timeout: 1s, route: [{destination: {host: a.example}}]}]}
"""


def test_after_a_kill_the_last_good_objects_of_a_broken_file_are_served_and_marked(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    file = config / "v.yaml"
    file.write_text(RULE)
    before = start(tmp_path, config)
    good = eventually(lambda: configz(before), 30, "the object is there")
    replace(file, RULE.replace("1s", "soon"))
    eventually(lambda: "bad-duration" in codes(before), 30, "the mistake is noticed")
    before.child.kill()
    before.child.wait()
    after = start(tmp_path, config)
    try:
        assert configz(after) == good
        assert codes(after) >= {"bad-duration", "old-version"}
        replace(file, RULE.replace("1s", "2s"))
        eventually(
            lambda: "bad-duration" not in codes(after) and "2s" in str(configz(after)), 30, "the mended file counts"
        )
    finally:
        after.stop()


def start(work: pathlib.Path, config: pathlib.Path) -> ControlPlane:
    plane = ControlPlane(work, config, more=["--stateDir", str(work / "state")])
    plane.wait_ready()
    return plane


def replace(file: pathlib.Path, text: str) -> None:
    """Writes a file as a whole: one that is empty for a moment would declare nothing in that moment."""
    (file.parent / "next").write_text(text)
    (file.parent / "next").rename(file)


def codes(plane: ControlPlane) -> set[str]:
    return {problem["code"] for problem in json.loads(plane.get("/debug/problemz"))}


def configz(plane: ControlPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(plane.get("/debug/configz"))
    return found
