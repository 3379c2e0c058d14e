"""Access to the cluster, and confirmation prompts."""

from __future__ import annotations

import os
import pathlib
from importlib import import_module
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from pilot.cli.ctl.cluster import MANAGER, Cluster, confirm, default_namespace, with_cluster_options
from pilot.kube.api_access import InCluster, KubeconfigFile
from pilot.kube.object_client import ObjectClient

cluster = import_module("pilot.cli.ctl.cluster")


@pytest.mark.parametrize(
    ("flag", "environ", "has_file", "expected"),
    [
        ("f", {"KUBECONFIG": "g", "KUBERNETES_SERVICE_HOST": "h"}, False, "f"),
        ("", {"KUBECONFIG": "g", "KUBERNETES_SERVICE_HOST": "h"}, False, "g"),
        ("", {"KUBERNETES_SERVICE_HOST": "h"}, True, "~/.kube/config"),
        ("", {"KUBERNETES_SERVICE_HOST": "h"}, False, None),
        ("", {}, False, "~/.kube/config"),
        ("", {}, True, "~/.kube/config"),
        ("", {"KUBECONFIG": ""}, True, "~/.kube/config"),
        ("~/.kube/config", {"KUBERNETES_SERVICE_HOST": "h"}, False, "~/.kube/config"),
    ],
)
def test_cluster_credentials_precedence(
    flag: str,
    environ: dict[str, str],
    has_file: bool,
    expected: str | None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), **environ})
    if has_file:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").touch()
    credentials = cluster._credentials(flag, "west")
    assert isinstance(credentials, InCluster) if expected is None else isinstance(credentials, KubeconfigFile)
    assert expected is None or vars(credentials) == vars(KubeconfigFile(expected, "west"))


@pytest.mark.parametrize("dry_run", [True, False])
def test_dry_run_client_changes_nothing(dry_run: bool) -> None:
    async def work(objects: ObjectClient, trial: ObjectClient) -> list[Any]:
        return [objects.dry_run, trial.dry_run, objects is trial, objects.field_manager, trial.field_manager]

    assert Cluster(InCluster()).run(work, dry_run) == [dry_run, True, dry_run, MANAGER, MANAGER]
    assert Cluster(InCluster()).run(work)[0] is False


@pytest.mark.parametrize(
    ("stdin", "skip", "error"),
    [
        ("y\n", False, None),
        ("n\n", False, "aborted, nothing was changed"),
        ("", True, None),
        ("", False, "cannot prompt for confirmation: use --skip-confirmation (-y)"),
    ],
)
def test_confirmation_prompt(stdin: str, skip: bool, error: str | None) -> None:
    @click.command()
    def prompt() -> None:
        confirm("Continue?", skip)

    result = CliRunner().invoke(prompt, input=stdin)
    assert (result.exit_code, result.stdout) == (1 if error else 0, "")
    assert ("Continue? [y/N]" in result.stderr, error is None or error in result.stderr) == (not skip, True)


CONTEXTS = {
    "current-context": "east",
    "contexts": [{"name": "east", "context": {"namespace": "shop"}}, {"name": "west", "context": {"cluster": "west"}}],
}


@pytest.mark.parametrize(("words", "expected"), [((), "shop"), (("--context", "west"), "default")])
def test_the_default_namespace_is_that_of_the_context(
    words: tuple[str, ...], expected: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(CONTEXTS))

    @click.command()
    @with_cluster_options
    def command() -> None:
        click.echo(default_namespace())

    result = CliRunner().invoke(command, ["-c", str(tmp_path / "kubeconfig"), *words])
    assert result.output == f"{expected}\n"
    assert CliRunner().invoke(command).output == "default\n"
