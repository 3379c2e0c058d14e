"""pilotctl install, upgrade, uninstall, verify-install and tag, at an API server."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator

import pytest
import yaml
from click.testing import CliRunner, Result

from pilot.cli.pilotctl import pilotctl
from testing.apiserver.discovery import VERSION
from testing.apiserver.server import ApiServer
from testing.kube.controllers import Controllers
from testing.kube.installations import SYSTEM, few_definitions, state_of
from testing.kube.kube_access import write_kubeconfig

LIGHT = [
    word
    for i, name in enumerate(few_definitions().split(","))
    for word in ("--set", f"values.base.excludedCRDs[{i}]={name}")
]
MINIMAL = ["--set", "profile=minimal", *LIGHT]


class Shell:
    """A server, and commands that are given its kubeconfig."""

    def __init__(self, server: ApiServer, folder: pathlib.Path) -> None:
        self.server = server
        self._config = str(write_kubeconfig(server, folder / "kubeconfig"))

    async def __call__(self, *words: str, answer: str | None = None) -> Result:
        """The result of a command; `answer` is typed where it asks."""
        return await asyncio.to_thread(
            CliRunner().invoke, pilotctl, [*words, "--kubeconfig", self._config], input=answer
        )


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    Controllers(server)
    await server.start()
    yield Shell(server, tmp_path)
    await server.stop()


async def test_install_asks_shows_each_component_and_verifies(shell: Shell) -> None:
    refused = await shell("install", *MINIMAL, answer="n\n")
    assert (refused.exit_code, state_of(shell.server)) == (1, {})
    assert "install profile minimal" in refused.stderr
    nobody = await shell("install", *MINIMAL)
    assert (nobody.exit_code, "--skip-confirmation (-y)" in nobody.stderr) == (1, True)
    done = await shell("install", *MINIMAL, "--verify", answer="y\n")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.partition(",")[0] for line in lines if line.startswith("✔")][:3] == [
        "✔ Base",
        "✔ Pilot",
        "✔ Installed.",
    ]
    assert lines[-1].endswith("objects verified.")
    assert f"Deployment/{SYSTEM}/istiod" in state_of(shell.server)


async def test_a_dry_run_says_so_and_changes_nothing(shell: Shell) -> None:
    done = await shell("install", *MINIMAL, "--dry-run")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        0,
        "Nothing was changed. The API server accepts all objects.",
    )
    assert state_of(shell.server) == {}


async def test_what_does_not_come_up_ends_with_the_cause(shell: Shell) -> None:
    shell.server.store.on_change.pop()
    Controllers(shell.server, lambda _: False)
    done = await shell("install", *MINIMAL, "-y", "--readiness-timeout", "100ms")
    assert done.exit_code == 1
    assert "✘ Pilot: not ready after 0.1 s: Deployment istio-system/istiod: 0 of 1 pods ready" in done.stderr
    assert (
        "no pods have been created; for details, run kubectl describe -n istio-system deployment istiod" in done.stderr
    )


async def test_upgrade_needs_what_it_upgrades(shell: Shell) -> None:
    done = await shell("upgrade", *MINIMAL, "-y")
    assert (done.exit_code, "there is no control plane of revision default to upgrade" in done.stderr) == (1, True)
    await shell("install", *MINIMAL, "-y")
    done = await shell("upgrade", *MINIMAL, "-y", "--set", "tag=9.9.9")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Installed version: ")
    image = state_of(shell.server)[f"Deployment/{SYSTEM}/istiod"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image.endswith(":9.9.9")


async def test_a_revision_is_taken_over_by_tag_and_the_old_one_goes(shell: Shell) -> None:
    for revision in ("r1", "r2"):
        assert (await shell("install", *MINIMAL, "-y", "--revision", revision)).exit_code == 0
    made = await shell("tag", "set", "prod", "--revision", "r1")
    assert (made.exit_code, made.stdout.splitlines()) == (
        0,
        [
            "✔ The tag prod points to revision r1.",
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-",
        ],
    )
    shell.server.put(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"istio.io/rev": "prod"}}}
    )
    again = await shell("tag", "set", "prod", "--revision", "r2")
    assert (again.exit_code, "use --overwrite to change it" in again.stderr) == (1, True)
    printed = await shell("tag", "generate", "prod", "--revision", "r2", "--overwrite", "--webhook-name", "mine")
    assert yaml.safe_load(printed.stdout)["metadata"]["name"] == "mine"
    everywhere = await shell(
        "tag", "generate", "default", "--revision", "r2", "--overwrite", "--auto-inject-namespaces"
    )
    labelled = await shell("tag", "generate", "default", "--revision", "r2", "--overwrite")
    injectors = [next(yaml.safe_load_all(printed.stdout))["webhooks"] for printed in (everywhere, labelled)]
    assert len(injectors[0]) > len(injectors[1])
    assert (await shell("tag", "set", "prod", "--revision", "r2", "--overwrite")).exit_code == 0
    moved = await shell("tag", "set", "default", "--revision", "r2", "--overwrite")
    assert (moved.exit_code, moved.stdout) == (0, "✔ The tag default points to revision r2.\n")
    listed = json.loads((await shell("tag", "list", "-o", "json")).stdout)
    assert listed == [
        {"tag": "default", "revision": "r2", "namespaces": []},
        {"tag": "prod", "revision": "r2", "namespaces": ["shop"]},
    ]
    table = [line.split() for line in (await shell("tag", "list")).stdout.splitlines()]
    assert table == [["TAG", "REVISION", "NAMESPACES"], ["default", "r2"], ["prod", "r2", "shop"]]
    gone = await shell("uninstall", "--revision", "r1", "-y")
    assert (gone.exit_code, "tags" in gone.stderr) == (0, False)
    assert f"Deployment/{SYSTEM}/istiod-r1" not in state_of(shell.server)
    asked = await shell("tag", "remove", "prod", answer="n\n")
    assert (asked.exit_code, "will no longer be injected: shop" in asked.stderr) == (1, True)
    assert (await shell("tag", "remove", "prod", "-y")).exit_code == 0
    assert (await shell("tag", "remove", "prod", "-y")).exit_code == 1


async def test_uninstall_says_what_it_needs_and_what_depends_on_it(shell: Shell) -> None:
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
    asked = await shell("uninstall", "--revision", "default", answer="n\n")
    assert (asked.exit_code, "proxies still connected to revision default: 1 (shop/app)" in asked.stderr) == (1, True)
    trial = await shell("uninstall", "--purge", "--dry-run")
    assert f"would delete Deployment {SYSTEM}/istiod" in trial.stdout
    purged = await shell("uninstall", "--purge", "-y")
    assert (purged.exit_code, purged.stdout.splitlines()[-1]) == (0, "✔ Uninstalled.")
    assert (await shell("uninstall", "--purge", "-y")).stdout == "Nothing to uninstall.\n"
    assert set(state_of(shell.server)) == {f"Namespace/{SYSTEM}", "Pod/shop/app"}


async def test_uninstall_by_file_takes_what_the_file_has_installed(shell: Shell, tmp_path: pathlib.Path) -> None:
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


async def test_verify_install_finds_what_is_wrong(shell: Shell) -> None:
    assert "revision default is not installed" in (await shell("verify-install")).stderr
    assert (await shell("install", *MINIMAL, "-y")).exit_code == 0
    assert (await shell("verify-install")).exit_code == 0
    assert (await shell("verify-install", *MINIMAL)).exit_code == 0
    shell.server.delete({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "istiod", "namespace": SYSTEM}})
    wrong = await shell("verify-install", *MINIMAL)
    assert (wrong.exit_code, "Service istio-system/istiod   not found" in wrong.stdout) == (1, True)


async def test_a_platform_is_seen_where_that_is_asked_for(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSION, "gitVersion", "v1.34.0-gke.100")
    words = ["manifest", "generate", "--set", "profile=ambient", "--component", "Cni"]
    plain, specific = (await shell(*words)).stdout, (await shell(*words, "--cluster-specific")).stdout
    places = [
        {o["metadata"]["namespace"] for o in yaml.safe_load_all(text) if o["kind"] == "DaemonSet"}
        for text in (plain, specific)
    ]
    assert places == [{SYSTEM}, {"kube-system"}]


async def test_a_cluster_that_cannot_be_asked_is_said_so(tmp_path: pathlib.Path) -> None:
    done = await asyncio.to_thread(
        CliRunner().invoke, pilotctl, ["tag", "list", "--kubeconfig", str(tmp_path / "none")]
    )
    assert (done.exit_code, "no such file" in done.stderr) == (1, True), done.stderr
