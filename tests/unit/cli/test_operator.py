"""pilotctl operator init, dump and remove, and the operator's chart."""

from __future__ import annotations

import pathlib
import re
from collections.abc import AsyncIterator
from importlib import import_module

import pytest
import yaml
from click.testing import CliRunner

from deploy.generated import stale_files
from deploy.operator_roles import IN_CLUSTER, IN_NAMESPACE, IN_OWN_NAMESPACE
from pilot.cli.pilot_operator import main
from pilot.cli.pilotctl import pilotctl
from pilot.install.installer import WaitOptions
from pilot.kube.object_client import ObjectClient, ResourceKey
from pilot.operator.istio_operator_resource import FINALIZER
from testing.apiserver.server import ApiServer
from testing.control_planes.running_operator import OPERATOR_NAMESPACE, OperatorCluster, with_few_crds
from testing.kube.controllers import Controllers
from testing.kube.installations import SYSTEM, state_of
from testing.kube.kube_access import until
from tests.unit.cli.test_install import Shell

operator = import_module("pilot.cli.ctl.operator")  # the package has a command of that name


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    Controllers(server)
    await server.start()
    yield Shell(server, tmp_path)
    await server.stop()


async def test_init_makes_every_watched_namespace_and_remove_leaves_what_is_installed(
    shell: Shell, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "mesh", "namespace": "two"}, "spec": {"profile": "empty"}}))
    done = await shell(
        "operator", "init", "--watchedNamespaces", "one,two", "-f", str(file), "--hub", "example.com", "--tag", "1"
    )
    assert done.exit_code == 0, done.output
    state = state_of(shell.server)
    assert {
        "Namespace/one",
        "Namespace/two",
        f"Namespace/{OPERATOR_NAMESPACE}",
        "Role/one/istio-operator",
        "Role/two/istio-operator",
    } <= set(state)
    assert (
        state[f"Deployment/{OPERATOR_NAMESPACE}/istio-operator"]["spec"]["template"]["spec"]["containers"][0]["image"]
        == "example.com/operator:1"
    )
    assert state["IstioOperator/two/mesh"]["spec"] == {"profile": "empty"}
    held = {
        **state["IstioOperator/two/mesh"],
        "metadata": {**state["IstioOperator/two/mesh"]["metadata"], "finalizers": [FINALIZER]},
    }
    shell.server.put(held)
    asked = await shell("operator", "remove", answer="n\n")
    assert (asked.exit_code, "these IstioOperators will no longer be reconciled: two/mesh" in asked.stderr) == (1, True)
    gone = await shell("operator", "remove", "-y")
    assert gone.exit_code == 0, gone.output
    left = state_of(shell.server)
    assert left["IstioOperator/two/mesh"]["metadata"].get("finalizers") in (None, [])
    assert {name for name in left if "istio-operator" in name} == {f"Namespace/{OPERATOR_NAMESPACE}"}
    assert (await shell("operator", "remove", "-y")).exit_code == 1


def gone(revision: str, *watched: str) -> list[str]:
    """The objects of an operator, in the order in which they go."""
    name = f"istio-operator-{revision}" if revision else "istio-operator"
    own, roles = (
        f"{OPERATOR_NAMESPACE}/{name}",
        [f"{OPERATOR_NAMESPACE}/{name}-own", *(f"{namespace}/{name}" for namespace in watched)],
    )
    named = [
        f"Deployment {own}",
        f"Service {own}",
        *(f"{kind} {role}" for kind in ("RoleBinding", "Role") for role in roles),
    ]
    return [*named, f"ClusterRoleBinding {name}", f"ClusterRole {name}", f"ServiceAccount {own}"]


async def test_operators_of_revisions_come_and_go_on_their_own(shell: Shell, tmp_path: pathlib.Path) -> None:
    async def lines(*words: str, answer: str | None = None) -> list[str]:
        done = await shell("operator", *words, answer=answer)
        assert done.exit_code == 0, done.output
        return [re.sub(r", [0-9.]+ s$", "", line) for line in done.stdout.splitlines()]

    file = tmp_path / "mesh.yaml"
    file.write_text("spec: {profile: empty}\n")
    assert (await lines("init", "--dry-run", "-f", str(file)))[1:] == [
        "✔ Operator",
        "Nothing was changed. The API server accepts all objects.",
    ]
    assert state_of(shell.server) == {}
    shell.server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two", "labels": {"keep": "me"}}})
    assert await lines("init", "--watchedNamespaces", "one,two", "-f", str(file)) == [
        "- Operator: 12 objects",
        "✔ Operator",
        "✔ The operator watches one, two.",
    ]
    state = state_of(shell.server)
    assert state["IstioOperator/one/istiocontrolplane"]["spec"] == {"profile": "empty"}
    assert state["Namespace/two"]["metadata"]["labels"] == {"keep": "me"}
    options = ("--imagePullSecrets", "key", "--image", "example.com/mine:2", "--watchedNamespaces", "")
    assert (await lines("init", "-r", "r1", *options))[-1] == "✔ The operator watches all namespaces."
    of_r1 = state_of(shell.server)
    (container,) = of_r1[f"Deployment/{OPERATOR_NAMESPACE}/istio-operator-r1"]["spec"]["template"]["spec"]["containers"]
    assert (container["image"], {"name": "REVISION", "value": "r1"} in container["env"]) == ("example.com/mine:2", True)
    assert of_r1[f"ServiceAccount/{OPERATOR_NAMESPACE}/istio-operator-r1"]["imagePullSecrets"] == [{"name": "key"}]
    would = [f"would delete {key}" for key in gone("", "one", "two")]
    of_revision = [f"would delete {key}" for key in gone("r1")]
    assert await lines("remove", "--dry-run") == would
    assert await lines("remove", "--dry-run", "-r", "r1") == of_revision
    assert sorted(await lines("remove", "--dry-run", "--purge")) == sorted(would + of_revision)
    assert await lines("remove", answer="y\n") == [*(f"deleted {key}" for key in gone("", "one", "two")), "✔ Removed."]
    asked = await shell("operator", "remove")
    assert (asked.exit_code, asked.stderr) == (1, f"Error: there is no operator in namespace {OPERATOR_NAMESPACE}\n")
    held = {**state["IstioOperator/one/istiocontrolplane"]}
    held["metadata"] = {**held["metadata"], "finalizers": [FINALIZER]}
    shell.server.put(held)
    done = await shell("operator", "remove", "--purge", "--force")
    released = "removed the finalizer of IstioOperator one/istiocontrolplane"
    assert (done.stdout.splitlines(), done.stderr) == (
        [*(f"deleted {key}" for key in gone("r1")), released, "✔ Removed."],
        "",
    )
    asked = await shell("operator", "remove", "-r", "r1", "--operatorNamespace", "mine")
    assert (asked.exit_code, asked.stderr) == (1, "Error: there is no operator of revision r1 in namespace mine\n")


async def test_remove_waits_until_the_operator_has_gone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await shell("operator", "init")).exit_code == 0
    looked = list[object]()

    async def still_there(objects: ObjectClient, key: ResourceKey) -> object:
        looked.append(key)
        return {} if len(looked) < 3 else None

    monkeypatch.setattr(ObjectClient, "get", still_there)
    monkeypatch.setattr(operator, "_POLL_INTERVAL", 0.001)
    assert (await shell("operator", "remove", "-y")).exit_code == 0
    assert [str(key) for key in looked] == [f"Deployment {OPERATOR_NAMESPACE}/istio-operator"] * 3


async def test_what_is_wrong_with_the_operator_s_inputs_is_said(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("spec: [1\n")
    wrong = await shell("operator", "init", "-f", str(file))
    assert (wrong.exit_code, str(file) in wrong.stderr, wrong.stderr.count("\n")) == (1, True, 1)
    wrong = await shell("operator", "init", "-d", str(tmp_path))
    assert (
        wrong.exit_code,
        wrong.stderr.startswith(f"Error: cannot read the chart {tmp_path}/charts/istio-operator: "),
    ) == (1, True)
    assert state_of(shell.server) == {}


async def test_an_operator_that_does_not_come_up_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.server.store.on_change.pop()
    Controllers(shell.server, lambda _: False)
    monkeypatch.setattr(operator, "WaitOptions", lambda: WaitOptions(timeout=0.05, interval=0.01))
    done = await shell("operator", "init")
    said = done.stderr.partition("; ")[0]
    assert (done.exit_code, said) == (
        1,
        f"Error: not ready after 0.05 s: Deployment {OPERATOR_NAMESPACE}/istio-operator: 0 of 1 pods ready",
    )
    assert "✔" not in done.stdout


async def test_an_istiooperator_that_nobody_would_see_is_refused(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "mesh", "namespace": "three"}, "spec": {}}))
    done = await shell("operator", "init", "--watchedNamespaces", "one,two", "-f", str(file))
    assert (done.exit_code, "three is not a watched namespace (watched: one, two)" in done.stderr) == (1, True)
    assert state_of(shell.server) == {}


def test_dump_prints_roles_for_the_watched_namespaces_alone() -> None:
    def kinds(watched: str) -> list[tuple[str, str]]:
        printed = CliRunner().invoke(pilotctl, ["operator", "dump", "--watchedNamespaces", watched]).stdout
        found = list(yaml.safe_load_all(printed))
        rules = sum(len(o["rules"]) for o in found if o["kind"] == "ClusterRole")
        return [
            *((o["kind"], o["metadata"].get("namespace", "")) for o in found if o["kind"] == "Role"),
            ("rules", str(rules)),
        ]

    some, everywhere = kinds("a, b,"), kinds("")
    assert some[:-1] == [("Role", "a"), ("Role", "b"), ("Role", OPERATOR_NAMESPACE)]
    assert everywhere[:-1] == [("Role", OPERATOR_NAMESPACE)]
    assert int(some[-1][1]) < int(everywhere[-1][1])


async def test_the_operator_uses_no_other_rights_than_its_roles_and_each_of_them() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.stop()
        o.server.requests.clear()
        await o.start(lease=OPERATOR_NAMESPACE)
        await o.write(SYSTEM, "mesh", with_few_crds({"profile": "ambient", "revision": "r1"}))
        await o.wait_until_healthy(SYSTEM, "mesh")
        await o.remove(SYSTEM, "mesh")
        await until(lambda: o.resource(SYSTEM, "mesh") is None)
        await o.stop()
        asked = {
            (a.resource.group, a.resource.plural + (f"/{a.subresource}" if a.subresource else ""))
            for a in o.server.requests
        }
    granted = {(r.group, r.resource) for r in (*IN_CLUSTER, *IN_NAMESPACE, *IN_OWN_NAMESPACE)}
    assert asked <= granted
    assert granted - asked <= {
        ("", "events"),
        ("k8s.cni.cncf.io", "network-attachment-definitions"),
        ("networking.istio.io", "envoyfilters"),
    }


def test_generated_files_are_current() -> None:
    assert stale_files() == []


def test_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCH_NAMESPACE", raising=False)
    assert main(["server"]) == 1
    assert (
        "WATCH_NAMESPACE must be set to comma-separated namespaces, or to an empty value for all"
        in capsys.readouterr().err
    )
    assert main(["server", "--help"]) == 0
    assert "WATCH_NAMESPACE" in capsys.readouterr().out
    assert main(["collateral"]) == 0
