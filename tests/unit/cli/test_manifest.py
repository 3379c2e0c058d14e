"""What pilotctl profile, manifest, translate and the end of install print, word for word."""

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

install = import_module("pilot.cli.ctl.install")  # the module has a command of that name
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


def said(*words: str, typed: str | None = None) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of a command."""
    done = CliRunner().invoke(pilotctl, words, input=typed)
    return done.exit_code, done.stdout, done.stderr


# -- profiles --------------------------------------------------------------------------------------------------------------


def test_profiles_are_listed_and_compared() -> None:
    assert said("profile", "list") == (0, "".join(f"{name}\n" for name in PROFILES), "")
    assert said("profile", "diff", "minimal", "minimal") == (0, "The profiles are identical.\n", "")
    assert said("profile", "diff", "minimal", "default") == (
        1,
        (
            "--- minimal default\n+++ minimal default\n@@ -10,7 +10,7 @@\n     - enabled: false\n       name: istio-egressgateway\n"
            "     ingressGateways:\n-    - enabled: false\n+    - enabled: true\n       name: istio-ingressgateway\n     pilot:\n       enabled: true\n"
        ),
        "",
    )
    unknown = f"Error: spec.profile: unknown profile tea; available: {', '.join(PROFILES)}\n"
    for words in (("diff", "tea", "default"), ("diff", "default", "tea"), ("dump", "tea")):
        assert said("profile", *words) == (1, "", unknown)


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
        (("-p", "revision", "-f", "-"), "typed\n"),
    ],
)
def test_what_a_profile_says_at_a_path(words: tuple[str, ...], printed: str) -> None:
    assert said("profile", "dump", *words, typed="spec: {revision: typed}\n") == (0, printed, "")


def test_a_whole_profile_is_an_istiooperator() -> None:
    status, printed, wrong = said("profile", "dump", "minimal")
    assert (status, wrong, printed.endswith("\n\n")) == (0, "", False)
    found = yaml.safe_load(printed)
    assert (found["kind"], found["spec"]["profile"]) == ("IstioOperator", "minimal")
    assert "revision" not in found["spec"]


@pytest.mark.parametrize(
    ("words", "why"),
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
def test_what_is_wrong_with_the_question_for_a_profile(words: tuple[str, ...], why: str) -> None:
    assert said("profile", *words, typed="") == (1, "", f"Error: {why}\n")


# -- manifests -------------------------------------------------------------------------------------------------------------


def test_only_the_chosen_components_are_generated() -> None:
    switched = (
        "manifest",
        "generate",
        "-s",
        "profile=empty",
        "-s",
        "components.cni.enabled=true",
        "-s",
        "components.pilot.enabled=true",
    )
    status, printed, wrong = said(*switched, "--component", "Cni", "-r", "r1")
    assert (status, wrong, printed.endswith("\n\n")) == (0, "", False)
    found = list(yaml.safe_load_all(printed))
    assert {o["metadata"]["labels"]["operator.istio.io/component"] for o in found} == {"Cni"}
    assert {o["metadata"]["labels"]["istio.io/rev"] for o in found} == {"r1"}
    assert said(*switched, "--component", "Cni", "-r", "r1") == (0, printed, "")


def test_a_wrong_setting_stops_and_force_says_it() -> None:
    words = ("manifest", "generate", "-s", "profile=empty", "-s", "values.foo=1")
    assert said(*words) == (1, "", "Error: spec.values.foo: unknown field foo\n")
    assert said(*words, "--force") == (0, "\n", "! spec.values.foo: unknown field foo\n")


def test_files_of_objects_are_compared(tmp_path: pathlib.Path) -> None:
    one, broken = tmp_path / "one.yaml", tmp_path / "broken.yaml"
    one.write_text(
        "kind: Pod\nmetadata: {name: p, namespace: n}\nspec: {a: 1}\n---\n- no object\n---\nname: of no kind\n"
    )
    broken.write_text("kind: Pod\n---\na: [1\n")
    assert said("manifest", "diff", str(one), str(one)) == (0, "The files contain the same objects.\n", "")
    assert said("manifest", "diff", "-", str(one), typed="kind: Job\n") == (
        1,
        "only in the first: Job \nonly in the second: Pod n/p\n",
        "",
    )
    assert said(
        "manifest", "diff", str(one), "-", typed="kind: Pod\nmetadata: {name: p, namespace: n}\nspec: {a: 2, b: 1}\n"
    ) == (
        1,
        (
            '--- Pod n/p\n+++ Pod n/p\n@@ -3,4 +3,5 @@\n   name: p\n   namespace: "n"\n spec:\n-  a: 1\n+  a: 2\n+  b: 1\n'
        ),
        "",
    )
    status, printed, wrong = said("manifest", "diff", str(one), str(broken))
    assert (status, printed, wrong.startswith(f"Error: {broken}:4: ")) == (1, "", True), wrong


def test_values_for_helm_are_printed_or_written(tmp_path: pathlib.Path) -> None:
    patched = (
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
    assert said(*patched, "-o", str(folder)) == (0, f"{command}{folder}/istiod-values.yaml\n", warning)
    values = (folder / "istiod-values.yaml").read_text()
    assert said(*patched) == (0, f"{command}istiod-values.yaml\n---\n{values}\n", warning)
    assert said("translate", "-s", "values.pilot.cpu=1") == (
        1,
        "",
        "Error: spec.values.pilot.cpu: expected a mapping, got 1\n",
    )


# -- the end of an installation ----------------------------------------------------------------------------------------------

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
def test_what_was_pruned_and_could_not_be_done_is_told(
    capsys: pytest.CaptureFixture[str], dry_run: bool, printed: str
) -> None:
    install._print_outcome(InstallOutcome((), (SERVICE,), ("the tag default is not set: why",)), dry_run)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (printed, "! the tag default is not set: why\n")


def test_every_component_that_failed_is_told_with_its_causes(capsys: pytest.CaptureFixture[str]) -> None:
    failures = (
        StepFailure("Pilot", "not ready after 5 s", ("Pod a: no image", "Pod b: no node")),
        StepFailure("Cni", "refused", ()),
    )
    with pytest.raises(
        CommandError, match="the installation is incomplete; fix the cause and run the same command again"
    ):
        install._print_outcome(InstallOutcome(failures, (SERVICE,), ("never shown",)), False)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        "",
        "✘ Pilot: not ready after 5 s\n    Pod a: no image\n    Pod b: no node\n✘ Cni: refused\n",
    )


def test_a_time_that_is_none_is_refused_before_anything_is_asked() -> None:
    status, _, wrong = said("install", "-y", "--readiness-timeout", "soon")
    assert (status, wrong.startswith("Error: --readiness-timeout soon: ")) == (1, True)
    assert install._seconds("1m30s") == 90.0


# -- which cluster is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "environ", "is_there", "expected"),
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
def test_the_flag_comes_before_the_variable_and_a_pod_uses_its_own_account(
    flag: str,
    environ: dict[str, str],
    is_there: bool,
    expected: str | None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), **environ})
    if is_there:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").touch()
    found = cluster._credentials(flag, "west")
    assert isinstance(found, InCluster) if expected is None else isinstance(found, KubeconfigFile)
    assert expected is None or vars(found) == vars(KubeconfigFile(expected, "west"))


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_dry_run_cannot_change_anything(dry_run: bool) -> None:
    async def work(objects: ObjectClient, trial: ObjectClient) -> list[Any]:
        return [objects.dry_run, trial.dry_run, objects is trial, objects.field_manager, trial.field_manager]

    assert Cluster(InCluster()).run(work, dry_run) == [dry_run, True, dry_run, MANAGER, MANAGER]
    assert Cluster(InCluster()).run(work)[0] is False


@pytest.mark.parametrize(
    ("typed", "skip", "wrong"),
    [
        ("y\n", False, None),
        ("n\n", False, "aborted, nothing was changed"),
        ("", True, None),
        ("", False, "cannot prompt for confirmation: use --skip-confirmation (-y)"),
    ],
)
def test_a_question_is_asked_unless_that_is_skipped(typed: str, skip: bool, wrong: str | None) -> None:
    @click.command()
    def asking() -> None:
        confirm("Continue?", skip)

    done = CliRunner().invoke(asking, input=typed)
    assert (done.exit_code, done.stdout) == (1 if wrong else 0, "")
    assert ("Continue? [y/N]" in done.stderr, wrong is None or wrong in done.stderr) == (not skip, True)
