"""pilotctl install, upgrade, uninstall, verify-install and tag, with an API server."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from importlib import import_module

import pytest
import yaml
from click.testing import CliRunner, Result

from pilot.cli.ctl.client import CommandError
from pilot.cli.pilotctl import pilotctl
from pilot.install.installer import InstallOutcome, StepFailure
from pilot.kube.object_client import ResourceKey, VersionedKind
from testing.apiserver.discovery import VERSION
from testing.apiserver.server import ApiServer
from testing.kube.controllers import Controllers
from testing.kube.installations import SYSTEM, excluded_crds, state_of
from testing.kube.kube_access import write_kubeconfig
from tests.unit.cli.ctl.commands.test_manifest import run_command

pytestmark = pytest.mark.slow

LIGHT = [
    word
    for i, name in enumerate(excluded_crds().split(","))
    for word in ("--set", f"values.base.excludedCRDs[{i}]={name}")
]
MINIMAL = ["--set", "profile=minimal", *LIGHT]


class Shell:
    """Runs commands with the kubeconfig of a server."""

    def __init__(self, server: ApiServer, folder: pathlib.Path, namespace: str = "") -> None:
        self.server = server
        self._config = str(write_kubeconfig(server, folder / "kubeconfig", namespace=namespace))

    async def __call__(self, *words: str, stdin: str | None = None) -> Result:
        """Return the result of a command. `stdin` answers its prompts."""
        return await asyncio.to_thread(
            CliRunner().invoke, pilotctl, [*words, "--kubeconfig", self._config], input=stdin
        )


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    Controllers(server)
    await server.start()
    yield Shell(server, tmp_path)
    await server.stop()


async def test_install_prompts_reports_components_and_verifies(shell: Shell) -> None:
    declined = await shell("install", *MINIMAL, stdin="n\n")
    assert (declined.exit_code, state_of(shell.server)) == (1, {})
    assert "install profile minimal" in declined.stderr
    without_input = await shell("install", *MINIMAL)
    assert (without_input.exit_code, "--skip-confirmation (-y)" in without_input.stderr) == (1, True)
    result = await shell("install", *MINIMAL, "--verify", stdin="y\n")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.partition(",")[0] for line in lines if line.startswith("✔")][:3] == [
        "✔ Base",
        "✔ Pilot",
        "✔ Installed.",
    ]
    assert lines[-1].endswith("objects verified.")
    assert f"Deployment/{SYSTEM}/istiod" in state_of(shell.server)


async def test_dry_run_changes_nothing(shell: Shell) -> None:
    result = await shell("install", *MINIMAL, "--dry-run")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "Nothing was changed. The API server accepts all objects.",
    )
    assert state_of(shell.server) == {}


async def test_dry_run_lists_what_would_be_created_and_changed(shell: Shell) -> None:
    assert (await shell("install", *MINIMAL, "-y")).exit_code == 0
    same = await shell("install", *MINIMAL, "--dry-run")
    assert "It would create 0 objects and change 0." in same.stdout
    changed = await shell("install", *MINIMAL, "--dry-run", "--set", "values.pilot.env.PILOT_HTTP10=true")
    (row,) = (line.split() for line in changed.stdout.splitlines() if line.startswith("Deployment"))
    assert row[1] == f"{SYSTEM}/istiod"
    assert row[2].startswith("spec.template.spec.containers[0].env")
    other = await shell("install", *MINIMAL, "--dry-run", "--set", "revision=canary")
    assert ["Deployment", f"{SYSTEM}/istiod-canary", "created"] in map(str.split, other.stdout.splitlines())


async def test_failed_component_is_reported_with_its_cause(shell: Shell) -> None:
    shell.server.store.on_change.pop()
    Controllers(shell.server, lambda _: False)
    result = await shell("install", *MINIMAL, "-y", "--readiness-timeout", "100ms")
    assert result.exit_code == 1
    assert "✘ Pilot: not ready after 0.1 s: Deployment istio-system/istiod: 0 of 1 pods ready" in result.stderr
    assert (
        "no pods have been created; for details, run kubectl describe -n istio-system deployment istiod"
        in result.stderr
    )


async def test_upgrade_needs_an_installation(shell: Shell) -> None:
    result = await shell("upgrade", *MINIMAL, "-y")
    assert (result.exit_code, "there is no control plane with revision default to upgrade" in result.stderr) == (
        1,
        True,
    )
    await shell("install", *MINIMAL, "-y")
    result = await shell("upgrade", *MINIMAL, "-y", "--set", "values.pilot.tag=9.9.9")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Installed version: ")
    image = state_of(shell.server)[f"Deployment/{SYSTEM}/istiod"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image.endswith(":9.9.9")


async def test_tags_move_to_a_new_revision_before_uninstall(shell: Shell) -> None:
    for revision in ("r1", "r2"):
        assert (await shell("install", *MINIMAL, "-y", "--revision", revision)).exit_code == 0
    created = await shell("tag", "set", "prod", "--revision", "r1")
    assert (created.exit_code, created.stdout.splitlines()) == (
        0,
        [
            "✔ The tag prod points to revision r1.",
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-",
        ],
    )
    shell.server.put(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"istio.io/rev": "prod"}}}
    )
    repeated = await shell("tag", "set", "prod", "--revision", "r2")
    assert (repeated.exit_code, "use --overwrite to change it" in repeated.stderr) == (1, True)
    generated = await shell("tag", "generate", "prod", "--revision", "r2", "--overwrite", "--webhook-name", "mine")
    names = [plain["metadata"]["name"] for plain in yaml.safe_load_all(generated.stdout)]
    assert sorted(names) == ["istiod-revision-tag-prod", "mine"]
    everywhere = await shell(
        "tag", "generate", "default", "--revision", "r2", "--overwrite", "--auto-inject-namespaces"
    )
    labelled = await shell("tag", "generate", "default", "--revision", "r2", "--overwrite")
    injectors = [
        next(
            plain["webhooks"]
            for plain in yaml.safe_load_all(generated.stdout)
            if plain["kind"] == "MutatingWebhookConfiguration"
        )
        for generated in (everywhere, labelled)
    ]
    assert len(injectors[0]) > len(injectors[1])
    assert (await shell("tag", "set", "prod", "--revision", "r2", "--overwrite")).exit_code == 0
    overwritten = await shell("tag", "set", "default", "--revision", "r2", "--overwrite")
    assert (overwritten.exit_code, overwritten.stdout) == (0, "✔ The tag default points to revision r2.\n")
    tags = json.loads((await shell("tag", "list", "-o", "json")).stdout)
    assert tags == [
        {"tag": "default", "revision": "r2", "namespaces": []},
        {"tag": "prod", "revision": "r2", "namespaces": ["shop"]},
    ]
    table = [line.split() for line in (await shell("tag", "list")).stdout.splitlines()]
    assert table == [["TAG", "REVISION", "NAMESPACES"], ["default", "r2"], ["prod", "r2", "shop"]]
    uninstalled = await shell("uninstall", "--revision", "r1", "-y")
    assert (uninstalled.exit_code, "tags" in uninstalled.stderr) == (0, False)
    assert f"Deployment/{SYSTEM}/istiod-r1" not in state_of(shell.server)
    declined = await shell("tag", "remove", "prod", stdin="n\n")
    assert (declined.exit_code, "will no longer be injected: shop" in declined.stderr) == (1, True)
    assert (await shell("tag", "remove", "prod", "-y")).exit_code == 0
    assert (await shell("tag", "remove", "prod", "-y")).exit_code == 1


async def test_uninstall_reports_connected_proxies(shell: Shell) -> None:
    assert "--revision NAME, -f FILE, or --purge" in (await shell("uninstall")).stderr
    missing = await shell("uninstall", "--revision", "r7", "-y")
    assert (missing.exit_code, "revision r7 is not installed; installed revisions: none" in missing.stderr) == (1, True)
    assert (await shell("install", *MINIMAL, "-y")).exit_code == 0
    annotations = {"sidecar.istio.io/status": "{}", "istio.io/rev": "default"}
    shell.server.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "app", "namespace": "shop", "annotations": annotations},
        }
    )
    declined = await shell("uninstall", "--revision", "default", stdin="n\n")
    assert (declined.exit_code, "proxies still connected to revision default: 1 (shop/app)" in declined.stderr) == (
        1,
        True,
    )
    dry_run = await shell("uninstall", "--purge", "--dry-run")
    assert f"would delete Deployment {SYSTEM}/istiod" in dry_run.stdout
    purged = await shell("uninstall", "--purge", "-y")
    assert (purged.exit_code, purged.stdout.splitlines()[-1]) == (0, "✔ Uninstalled.")
    assert (await shell("uninstall", "--purge", "-y")).stdout == "Nothing to uninstall.\n"
    assert set(state_of(shell.server)) == {f"Namespace/{SYSTEM}", "Pod/shop/app"}


async def test_uninstall_by_file_removes_its_objects(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "edge.yaml"
    gateways = [{"name": "edge", "namespace": "edge"}]
    spec = {"profile": "empty", "components": {"ingressGateways": gateways}}
    file.write_text(yaml.safe_dump({"metadata": {"name": "edge"}, "spec": spec}))
    assert (await shell("install", *MINIMAL, "-y")).exit_code == 0
    before = set(state_of(shell.server))
    assert (await shell("install", "-f", str(file), "-y")).exit_code == 0
    assert "Deployment/edge/edge" in state_of(shell.server)
    assert (await shell("uninstall", "-f", str(file), "-y")).exit_code == 0
    assert set(state_of(shell.server)) == before | {"Namespace/edge"}


async def test_verify_install_reports_missing_objects(shell: Shell) -> None:
    assert "revision default is not installed" in (await shell("verify-install")).stderr
    assert (await shell("install", *MINIMAL, "-y")).exit_code == 0
    assert (await shell("verify-install")).exit_code == 0
    assert (await shell("verify-install", *MINIMAL)).exit_code == 0
    shell.server.delete({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "istiod", "namespace": SYSTEM}})
    result = await shell("verify-install", *MINIMAL)
    assert (result.exit_code, "Service istio-system/istiod   not found" in result.stdout) == (1, True)


async def test_cluster_specific_detects_the_platform(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSION, "gitVersion", "v1.34.0-gke.100")
    words = ["manifest", "generate", "--set", "profile=ambient", "--component", "Cni"]
    plain, specific = (await shell(*words)).stdout, (await shell(*words, "--cluster-specific")).stdout
    namespaces = [
        {o["metadata"]["namespace"] for o in yaml.safe_load_all(text) if o["kind"] == "DaemonSet"}
        for text in (plain, specific)
    ]
    assert namespaces == [{SYSTEM}, {"kube-system"}]


async def test_missing_kubeconfig_is_reported(tmp_path: pathlib.Path) -> None:
    result = await asyncio.to_thread(
        CliRunner().invoke, pilotctl, ["tag", "list", "--kubeconfig", str(tmp_path / "none")]
    )
    assert (result.exit_code, "no such file" in result.stderr) == (1, True), result.stderr


install = import_module("pilot.cli.ctl.commands.install")  # shadowed by the command of the same name


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
    assert (status, "Invalid value for '--readiness-timeout': invalid duration 'soon'" in stderr) == (2, True)
