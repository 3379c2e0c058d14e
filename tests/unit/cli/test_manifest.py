"""Exact output of pilotctl profile, manifest, translate and the end of install."""

from __future__ import annotations

import os
import pathlib
from importlib import import_module
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import MANAGER, Cluster, confirm
from pilot.cli.pilotctl import pilotctl
from pilot.install.installer import InstallOutcome, StepFailure
from pilot.kube.api_access import InCluster, KubeconfigFile
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind

install = import_module("pilot.cli.ctl.install")  # shadowed by the command of the same name
cluster = import_module("pilot.cli.ctl.cluster")
PROFILES = (
    "ambient",
    "default",
    "demo",
    "empty",
    "minimal",
    "openshift",
    "openshift-ambient",
    "preview",
    "remote",
    "stable",
)


def run_command(*words: str, stdin: str | None = None) -> tuple[int, str, str]:
    """Return the exit status, standard output and standard error of a command."""
    result = CliRunner().invoke(pilotctl, words, input=stdin)
    return result.exit_code, result.stdout, result.stderr


# -- profiles --------------------------------------------------------------------------------------------------------------


def test_profiles_are_listed_and_compared() -> None:
    assert run_command("profile", "list") == (0, "".join(f"{name}\n" for name in PROFILES), "")
    assert run_command("profile", "diff", "minimal", "minimal") == (0, "The profiles are identical.\n", "")
    assert run_command("profile", "diff", "minimal", "default") == (
        1,
        (
            "--- minimal default\n+++ minimal default\n@@ -10,7 +10,7 @@\n     - enabled: false\n       name: istio-egressgateway\n"
            "     ingressGateways:\n-    - enabled: false\n+    - enabled: true\n       name: istio-ingressgateway\n     pilot:\n       enabled: true\n"
        ),
        "",
    )
    unknown = f"Error: spec.profile: unknown profile tea; available: {', '.join(PROFILES)}\n"
    for words in (("diff", "tea", "default"), ("diff", "default", "tea"), ("dump", "tea")):
        assert run_command("profile", *words) == (1, "", unknown)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("ambient", "-p", "components.cni"), "enabled: true\n"),
        (("minimal", "-p", "components.pilot"), "enabled: true\n"),
        (("-p", "components.base"), "enabled: true\n"),
        (("-p", "profile", "-s", "profile=demo"), "demo\n"),
        (("remote", "-p", "profile"), "remote\n"),
        (("-p", "revision", "-r", "r1"), "r1\n"),
        (("-p", "profile", "-s", "profile=demo", "-s", "profile=minimal"), "minimal\n"),
        (("-p", "revision", "-f", "-"), "stdin\n"),
    ],
)
def test_profile_value_at_a_path(words: tuple[str, ...], printed: str) -> None:
    assert run_command("profile", "dump", *words, stdin="spec: {revision: stdin}\n") == (0, printed, "")


def test_profile_dump_is_an_istiooperator() -> None:
    status, printed, stderr = run_command("profile", "dump", "minimal")
    assert (status, stderr, printed.endswith("\n\n")) == (0, "", False)
    document = yaml.safe_load(printed)
    assert (document["kind"], document["spec"]["profile"]) == ("IstioOperator", "minimal")
    assert "revision" not in document["spec"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dump", "minimal", "-f", "x"), "specify a profile name or a file, not both"),
        (("dump", "minimal", "-p", "revision", "-r", "default"), "the path revision has no value"),
        (("dump", "minimal", "-p", "installPackagePath"), "the path installPackagePath has no value"),
        (("dump", "-f", "-", "-f", "x"), "-f -: standard input must be the last file"),
        (("dump", "-f", "/no/such"), "cannot read /no/such: [Errno 2] No such file or directory: '/no/such'"),
        (("dump", "-s", "profile"), '--set profile: expected "path=value"'),
        (("dump", "-d", "/no/such"), "spec.profile: unknown profile default; available: none"),
        (("list", "-d", "/no/such"), "folder /no/such/profiles does not exist"),
    ],
)
def test_profile_errors(words: tuple[str, ...], message: str) -> None:
    assert run_command("profile", *words, stdin="") == (1, "", f"Error: {message}\n")


# -- manifests -------------------------------------------------------------------------------------------------------------


def test_only_selected_components_are_generated() -> None:
    command = (
        "manifest",
        "generate",
        "-s",
        "profile=empty",
        "-s",
        "components.cni.enabled=true",
        "-s",
        "components.pilot.enabled=true",
    )
    status, printed, stderr = run_command(*command, "--component", "Cni", "-r", "r1")
    assert (status, stderr, printed.endswith("\n\n")) == (0, "", False)
    objects = list(yaml.safe_load_all(printed))
    assert {o["metadata"]["labels"]["operator.istio.io/component"] for o in objects} == {"Cni"}
    assert {o["metadata"]["labels"]["istio.io/rev"] for o in objects} == {"r1"}
    assert run_command(*command, "--component", "Cni", "-r", "r1") == (0, printed, "")


def test_force_turns_setting_errors_into_warnings() -> None:
    words = ("manifest", "generate", "-s", "profile=empty", "-s", "values.foo=1")
    assert run_command(*words) == (1, "", "Error: spec.values.foo: unknown field foo\n")
    assert run_command(*words, "--force") == (0, "\n", "! spec.values.foo: unknown field foo\n")


def test_manifest_diff(tmp_path: pathlib.Path) -> None:
    first, broken = tmp_path / "one.yaml", tmp_path / "broken.yaml"
    first.write_text(
        "kind: Pod\nmetadata: {name: p, namespace: n}\nspec: {a: 1}\n---\n- no object\n---\nname: of no kind\n"
    )
    broken.write_text("kind: Pod\n---\na: [1\n")
    assert run_command("manifest", "diff", str(first), str(first)) == (0, "The files contain the same objects.\n", "")
    assert run_command("manifest", "diff", "-", str(first), stdin="kind: Job\n") == (
        1,
        "only in the first: Job \nonly in the second: Pod n/p\n",
        "",
    )
    assert run_command(
        "manifest", "diff", str(first), "-", stdin="kind: Pod\nmetadata: {name: p, namespace: n}\nspec: {a: 2, b: 1}\n"
    ) == (
        1,
        (
            '--- Pod n/p\n+++ Pod n/p\n@@ -3,4 +3,5 @@\n   name: p\n   namespace: "n"\n spec:\n-  a: 1\n+  a: 2\n+  b: 1\n'
        ),
        "",
    )
    status, printed, stderr = run_command("manifest", "diff", str(first), str(broken))
    assert (status, printed, stderr.startswith(f"Error: {broken}:4: ")) == (1, "", True), stderr


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


# -- installation outcome ----------------------------------------------------------------------------------------------

SERVICE = ResourceKey(VersionedKind("v1", "Service"), "istio-system", "old")


@pytest.mark.parametrize(
    ("dry_run", "printed"),
    [
        (False, "- deleted Service istio-system/old, which is no longer part of the installation\n✔ Installed.\n"),
        (
            True,
            "- would delete Service istio-system/old, which is no longer part of the installation\nNothing was changed. The API server accepts all objects.\n",
        ),
    ],
)
def test_outcome_lists_pruned_objects_and_warnings(
    capsys: pytest.CaptureFixture[str], dry_run: bool, printed: str
) -> None:
    install._print_outcome(InstallOutcome((), (SERVICE,), ("the tag default is not set: why",)), dry_run)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (printed, "! the tag default is not set: why\n")


def test_outcome_lists_failed_components_with_causes(capsys: pytest.CaptureFixture[str]) -> None:
    failures = (
        StepFailure("Pilot", "not ready after 5 s", ("Pod a: no image", "Pod b: no node")),
        StepFailure("Cni", "refused", ()),
    )
    with pytest.raises(
        CommandError, match="the installation is incomplete; fix the cause and run the same command again"
    ):
        install._print_outcome(InstallOutcome(failures, (SERVICE,), ("never shown",)), False)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "✘ Pilot: not ready after 5 s\n    Pod a: no image\n    Pod b: no node\n✘ Cni: refused\n",
    )


def test_invalid_timeout_is_rejected_first() -> None:
    status, _, stderr = run_command("install", "-y", "--readiness-timeout", "soon")
    assert (status, stderr.startswith("Error: --readiness-timeout soon: ")) == (1, True)
    assert install._seconds("1m30s") == 90.0


# -- cluster selection -------------------------------------------------------------------------------------------------


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
