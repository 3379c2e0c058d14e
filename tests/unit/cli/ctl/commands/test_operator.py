"""pilotctl operator init, dump and remove."""

from __future__ import annotations

import pathlib
import re
from collections.abc import AsyncIterator
from importlib import import_module

import pytest
import yaml
from click.testing import CliRunner

from deploy.operator_roles import IN_CLUSTER, IN_NAMESPACE, IN_OWN_NAMESPACE
from pilot.cli.pilotctl import pilotctl
from pilot.install.installer import WaitOptions
from pilot.kube.object_client import ObjectClient, ResourceKey
from pilot.operator.istio_operator_resource import FINALIZER
from testing.apiserver.server import ApiServer
from testing.control_planes.running_operator import OPERATOR_NAMESPACE, OperatorCluster, with_few_crds
from testing.kube.controllers import Controllers
from testing.kube.installations import SYSTEM, state_of
from testing.kube.kube_access import until
from tests.unit.cli.ctl.commands.test_install import Shell

operator = import_module("pilot.cli.ctl.commands.operator")  # shadowed by the command of the same name


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    Controllers(server)
    await server.start()
    yield Shell(server, tmp_path)
    await server.stop()


@pytest.mark.parametrize(("arguments", "warns"), [((), True), (("--image", "example.com/mesh:1"), False)])
def test_dump_names_the_image_that_no_registry_has(arguments: tuple[str, ...], warns: bool) -> None:
    result = CliRunner().invoke(pilotctl, ["operator", "dump", *arguments])
    assert result.exit_code == 0, result.output
    assert ("--image: the default image, localhost/pyistiod:" in result.stderr) == warns


async def test_init_creates_watched_namespaces_and_remove_keeps_resources(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "mesh", "namespace": "two"}, "spec": {"profile": "empty"}}))
    result = await shell(
        "operator", "init", "--watchedNamespaces", "one,two", "-f", str(file), "--hub", "example.com", "--tag", "1"
    )
    assert result.exit_code == 0, result.output
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
    resource = {
        **state["IstioOperator/two/mesh"],
        "metadata": {**state["IstioOperator/two/mesh"]["metadata"], "finalizers": [FINALIZER]},
    }
    shell.server.put(resource)
    declined = await shell("operator", "remove", stdin="n\n")
    assert (declined.exit_code, "these IstioOperators will no longer be reconciled: two/mesh" in declined.stderr) == (
        1,
        True,
    )
    removed = await shell("operator", "remove", "-y")
    assert removed.exit_code == 0, removed.output
    remaining = state_of(shell.server)
    assert remaining["IstioOperator/two/mesh"]["metadata"].get("finalizers") in (None, [])
    assert {name for name in remaining if "istio-operator" in name} == {f"Namespace/{OPERATOR_NAMESPACE}"}
    assert (await shell("operator", "remove", "-y")).exit_code == 1


def deleted_keys(revision: str, *watched: str) -> list[str]:
    """Return the objects of an operator in deletion order."""
    name = f"istio-operator-{revision}" if revision else "istio-operator"
    local_name, roles = (
        f"{OPERATOR_NAMESPACE}/{name}",
        [f"{OPERATOR_NAMESPACE}/{name}-own", *(f"{namespace}/{name}" for namespace in watched)],
    )
    namespaced = [
        f"Deployment {local_name}",
        f"Service {local_name}",
        *(f"{kind} {role}" for kind in ("RoleBinding", "Role") for role in roles),
    ]
    return [*namespaced, f"ClusterRoleBinding {name}", f"ClusterRole {name}", f"ServiceAccount {local_name}"]


async def test_revisions_install_and_remove_independently(shell: Shell, tmp_path: pathlib.Path) -> None:
    async def lines(*words: str, stdin: str | None = None) -> list[str]:
        result = await shell("operator", *words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return [re.sub(r", [0-9.]+ s$", "", line) for line in result.stdout.splitlines()]

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
    dry_run_lines = [f"would delete {key}" for key in deleted_keys("", "one", "two")]
    of_revision = [f"would delete {key}" for key in deleted_keys("r1")]
    assert await lines("remove", "--dry-run") == dry_run_lines
    assert await lines("remove", "--dry-run", "-r", "r1") == of_revision
    assert sorted(await lines("remove", "--dry-run", "--purge")) == sorted(dry_run_lines + of_revision)
    assert await lines("remove", stdin="y\n") == [
        *(f"deleted {key}" for key in deleted_keys("", "one", "two")),
        "✔ Removed.",
    ]
    refused = await shell("operator", "remove")
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"Error: there is no operator in namespace {OPERATOR_NAMESPACE}\n",
    )
    resource = {**state["IstioOperator/one/istiocontrolplane"]}
    resource["metadata"] = {**resource["metadata"], "finalizers": [FINALIZER]}
    shell.server.put(resource)
    result = await shell("operator", "remove", "--purge", "--force")
    released = "removed the finalizer of IstioOperator one/istiocontrolplane"
    assert (result.stdout.splitlines(), result.stderr) == (
        [*(f"deleted {key}" for key in deleted_keys("r1")), released, "✔ Removed."],
        "",
    )
    refused = await shell("operator", "remove", "-r", "r1", "--operatorNamespace", "mine")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "Error: there is no operator with revision r1 in namespace mine\n",
    )


async def test_remove_waits_for_the_deployment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await shell("operator", "init")).exit_code == 0
    keys = list[object]()

    async def get_deployment(objects: ObjectClient, key: ResourceKey) -> object:
        keys.append(key)
        return {} if len(keys) < 3 else None

    monkeypatch.setattr(ObjectClient, "get", get_deployment)
    monkeypatch.setattr(operator, "_POLL_INTERVAL", 0.001)
    assert (await shell("operator", "remove", "-y")).exit_code == 0
    assert [str(key) for key in keys] == [f"Deployment {OPERATOR_NAMESPACE}/istio-operator"] * 3


async def test_invalid_input_files_are_reported(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("spec: [1\n")
    result = await shell("operator", "init", "-f", str(file), "--image", "example.com/mesh:1")
    assert (result.exit_code, str(file) in result.stderr, result.stderr.count("\n")) == (1, True, 1)
    result = await shell("operator", "init", "-d", str(tmp_path))
    assert (
        result.exit_code,
        result.stderr.startswith(f"Error: cannot read the chart {tmp_path}/charts/istio-operator: "),
    ) == (1, True)
    assert state_of(shell.server) == {}


async def test_unready_operator_is_reported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.server.store.on_change.pop()
    Controllers(shell.server, lambda _: False)
    monkeypatch.setattr(operator, "WaitOptions", lambda: WaitOptions(timeout=0.05, interval=0.01))
    result = await shell("operator", "init", "--image", "example.com/mesh:1")
    error = result.stderr.partition("; ")[0]
    assert (result.exit_code, error) == (
        1,
        f"Error: not ready after 0.05 s: Deployment {OPERATOR_NAMESPACE}/istio-operator: 0 of 1 pods ready",
    )
    assert "✔" not in result.stdout


async def test_resource_outside_watched_namespaces_is_rejected(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "mesh", "namespace": "three"}, "spec": {}}))
    result = await shell("operator", "init", "--watchedNamespaces", "one,two", "-f", str(file))
    assert (result.exit_code, "three is not a watched namespace (watched: one, two)" in result.stderr) == (1, True)
    assert state_of(shell.server) == {}


def test_dump_limits_roles_to_watched_namespaces() -> None:
    def kinds(watched: str) -> list[tuple[str, str]]:
        output = CliRunner().invoke(pilotctl, ["operator", "dump", "--watchedNamespaces", watched]).stdout
        objects = list(yaml.safe_load_all(output))
        rules = sum(len(o["rules"]) for o in objects if o["kind"] == "ClusterRole")
        return [
            *((o["kind"], o["metadata"].get("namespace", "")) for o in objects if o["kind"] == "Role"),
            ("rules", str(rules)),
        ]

    selected, everywhere = kinds("a, b,"), kinds("")
    assert selected[:-1] == [("Role", "a"), ("Role", "b"), ("Role", OPERATOR_NAMESPACE)]
    assert everywhere[:-1] == [("Role", OPERATOR_NAMESPACE)]
    assert int(selected[-1][1]) < int(everywhere[-1][1])


async def test_operator_roles_match_its_requests() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.stop()
        cluster.server.requests.clear()
        await cluster.start(lease=OPERATOR_NAMESPACE)
        await cluster.write(SYSTEM, "mesh", with_few_crds({"profile": "ambient", "revision": "r1"}))
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        await cluster.remove(SYSTEM, "mesh")
        await until(lambda: cluster.resource(SYSTEM, "mesh") is None)
        await cluster.stop()
        requested = {
            (
                request.resource.group,
                request.resource.plural + (f"/{request.subresource}" if request.subresource else ""),
            )
            for request in cluster.server.requests
        }
    granted = {(r.group, r.resource) for r in (*IN_CLUSTER, *IN_NAMESPACE, *IN_OWN_NAMESPACE)}
    assert requested <= granted
    assert granted - requested <= {
        ("", "events"),
        ("k8s.cni.cncf.io", "network-attachment-definitions"),
        ("networking.istio.io", "envoyfilters"),
    }
