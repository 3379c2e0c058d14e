"""A killed control plane restarts with its last configuration, even if a file has become invalid."""

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


def test_last_valid_objects_are_served_after_a_kill(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    file = config / "v.yaml"
    file.write_text(RULE)
    killed = start(tmp_path, config)
    objects = eventually(lambda: configz(killed), 30, "the object is loaded")
    replace(file, RULE.replace("1s", "soon"))
    eventually(lambda: "bad-duration" in codes(killed), 30, "the error is reported")
    killed.child.kill()
    killed.child.wait()
    restarted = start(tmp_path, config)
    try:
        assert configz(restarted) == objects
        assert codes(restarted) >= {"bad-duration", "old-version"}
        replace(file, RULE.replace("1s", "2s"))
        eventually(
            lambda: "bad-duration" not in codes(restarted) and "2s" in str(configz(restarted)),
            30,
            "the corrected file takes effect",
        )
    finally:
        restarted.stop()


def start(work: pathlib.Path, config: pathlib.Path) -> ControlPlane:
    plane = ControlPlane(work, config, more=["--stateDir", str(work / "state")])
    plane.wait_ready()
    return plane


def replace(file: pathlib.Path, text: str) -> None:
    """Replace a file atomically, so that it is never empty."""
    (file.parent / "next").write_text(text)
    (file.parent / "next").rename(file)


def codes(plane: ControlPlane) -> set[str]:
    return {problem["code"] for problem in json.loads(plane.get("/debug/problemz"))}


def configz(plane: ControlPlane) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = json.loads(plane.get("/debug/configz"))
    return objects
