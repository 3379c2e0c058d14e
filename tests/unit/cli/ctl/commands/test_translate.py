"""Exact output of pilotctl translate."""

from __future__ import annotations

import pathlib

from tests.unit.cli.ctl.commands.test_manifest import run_command


def test_translate_prints_or_writes_helm_values(tmp_path: pathlib.Path) -> None:
    words = (
        "translate",
        "-s",
        "profile=minimal",
        "-s",
        "components.base.enabled=false",
        "-s",
        "components.pilot.k8s.overlays[0].name=istiod",
    )
    folder = tmp_path / "values"
    command = "# helm upgrade --install istiod charts/istiod --namespace istio-system --create-namespace -f "
    warning = "! spec.components.pilot.k8s.overlays of istiod modifies objects, which values cannot express; use a post-renderer\n"
    assert run_command(*words, "-o", str(folder)) == (0, f"{command}{folder}/istiod-values.yaml\n", warning)
    values = (folder / "istiod-values.yaml").read_text()
    assert run_command(*words) == (0, f"{command}istiod-values.yaml\n---\n{values}\n", warning)
    assert run_command("translate", "-s", "values.pilot.cpu=1") == (
        1,
        "",
        "Error: spec.values.pilot.cpu: expected a mapping, got 1\n",
    )
