"""The operator with the rights of its chart: installation, drift correction and deletion of IstioOperators."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import aiohttp
import pytest

from pilot.lib.start_error import StartError
from pilot.operator import installation_reconciler as reconciler_module
from pilot.operator.istio_operator_resource import FINALIZER
from pilot.operator.operator_process import parse_namespaces, run
from pilot.operator.operator_settings import OperatorSettings
from testing.control_planes.running_operator import OPERATOR_NAMESPACE, OperatorCluster, expected, with_few_crds
from testing.kube.installations import SYSTEM, state_of
from testing.kube.kube_access import until

pytestmark = pytest.mark.slow

MINIMAL = with_few_crds({"profile": "minimal"})
EDGE: dict[str, Any] = {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": "shop"}]}}
UNKNOWN = {"profile": "minimal", "nonsense": True}


def test_watched_namespaces_are_required() -> None:
    with pytest.raises(StartError, match="WATCH_NAMESPACE must be set"):
        run(OperatorSettings(), {})
    assert parse_namespaces("") is None
    assert parse_namespaces("a, b,,a") == ["a", "b"]


async def test_installation_is_reported_healthy() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        actual, desired = cluster.installed(), expected(SYSTEM, "mesh", MINIMAL)
        assert set(actual) == set(desired)
        assert actual[f"Deployment/{SYSTEM}/istiod"] == desired[f"Deployment/{SYSTEM}/istiod"]
        status = cluster.status(SYSTEM, "mesh")
        assert {name: component["status"] for name, component in status["componentStatus"].items()} == {
            "Base": "HEALTHY",
            "Pilot": "HEALTHY",
        }
        assert (cluster.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == [FINALIZER]


async def test_changed_and_deleted_objects_are_restored() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        before = cluster.installed()
        await cluster.patch(
            before[f"Deployment/{SYSTEM}/istiod"], {"spec": {"template": {"spec": {"serviceAccountName": "other"}}}}
        )
        await cluster.patch(before[f"ConfigMap/{SYSTEM}/istio"], {"data": {"mesh": "changed"}})
        await cluster.patch(
            before[f"Service/{SYSTEM}/istiod"], {"metadata": {"labels": {"operator.istio.io/managed": None}}}
        )
        await cluster.delete(before[f"ServiceAccount/{SYSTEM}/istiod"])
        await cluster.delete(before["ClusterRole/istiod-clusterrole-istio-system"])
        await until(lambda: cluster.installed() == before)


async def test_obsolete_objects_are_pruned() -> None:
    async with OperatorCluster(f"{SYSTEM},shop", SYSTEM, "shop") as cluster:
        gateways = [{"name": "one"}, {"name": "two", "namespace": "shop"}]
        await cluster.write(SYSTEM, "edges", {"profile": "empty", "components": {"ingressGateways": gateways}})
        await cluster.wait_until_healthy(SYSTEM, "edges")
        assert {"Deployment/istio-system/one", "Deployment/shop/two"} <= set(cluster.installed())
        anonymous = {"metadata": {"labels": {"install.operator.istio.io/owning-resource": None}}}
        await cluster.patch(cluster.installed()["Service/shop/two"], anonymous)
        await cluster.write(SYSTEM, "edges", {"profile": "empty", "components": {"ingressGateways": [{"name": "one"}]}})
        await until(lambda: not any("/shop/" in name for name in cluster.installed()))
        assert "Deployment/istio-system/one" in cluster.installed()


async def test_deletion_removes_all_but_shared_objects() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.write("shop", "second", with_few_crds({"profile": "minimal", "revision": "r2"}))
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        await cluster.wait_until_healthy("shop", "second")
        await cluster.remove("shop", "second")
        await until(lambda: cluster.resource("shop", "second") is None)
        names = set(cluster.installed())
        assert not [name for name in names if "istiod-r2" in name]
        assert set(expected(SYSTEM, "mesh", MINIMAL)) <= names
        await cluster.remove(SYSTEM, "mesh")
        await until(lambda: cluster.resource(SYSTEM, "mesh") is None)
        assert {name.split("/")[0] for name in cluster.installed()} == {"CustomResourceDefinition"}
        assert "MutatingWebhookConfiguration/istio-revision-tag-default" not in state_of(cluster.server)


async def test_revision_with_proxies_is_not_deleted() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        await cluster.write(SYSTEM, "second", with_few_crds({"profile": "minimal", "revision": "r2"}))
        await cluster.wait_until_healthy(SYSTEM, "second")
        metadata = {
            "name": "app",
            "namespace": "shop",
            "annotations": {"sidecar.istio.io/status": "{}", "istio.io/rev": "r2"},
        }
        cluster.server.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        await cluster.remove(SYSTEM, "second")
        await cluster.wait_for_status(SYSTEM, "second", "ACTION_REQUIRED")
        assert "shop/app" in cluster.status(SYSTEM, "second")["message"]
        cluster.server.delete({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        await until(lambda: cluster.resource(SYSTEM, "second") is None)


async def test_other_revisions_and_ignored_resources_are_skipped() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM, revision="r1") as cluster:
        await cluster.write(SYSTEM, "other", with_few_crds({"profile": "minimal", "revision": "r2"}))
        await cluster.write(
            SYSTEM, "ignored", EDGE | {"revision": "r1"}, annotations={"install.istio.io/ignoreReconcile": "true"}
        )
        await cluster.write(SYSTEM, "own", with_few_crds({"profile": "minimal", "revision": "r1"}))
        await cluster.wait_until_healthy(SYSTEM, "own")
        assert (cluster.status(SYSTEM, "other"), cluster.status(SYSTEM, "ignored")) == ({}, {})
        assert not [name for name in cluster.installed() if "r2" in name or "edge" in name]


async def test_unready_component_is_reported_with_its_cause() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        cluster.controllers.ready = lambda plain: plain["metadata"]["name"] != "istiod"
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await until(lambda: f"Deployment/{SYSTEM}/istiod" in cluster.installed())
        await cluster.wait_for_status(SYSTEM, "mesh", "RECONCILING")
        cluster.controllers.ready = lambda _: True
        cluster.controllers.recheck()
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        cluster.controllers.ready = lambda _: False
        cluster.controllers.recheck()
        await cluster.wait_for_status(SYSTEM, "mesh", "RECONCILING")
        assert (
            cluster.status(SYSTEM, "mesh")["componentStatus"]["Pilot"]["error"]
            == f"Deployment {SYSTEM}/istiod: 0 of 1 pods ready"
        )


async def test_overlay_without_effect_is_reported() -> None:
    overlays = [{"kind": "Deployment", "name": "missing", "patches": [{"path": "spec.replicas", "value": 2}]}]
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", {**MINIMAL, "components": {"pilot": {"k8s": {"overlays": overlays}}}})
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        assert "component Pilot has no Deployment missing; it has istiod" in cluster.status(SYSTEM, "mesh")["message"]


async def test_leader_election() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.stop()
        await cluster.start(lease=OPERATOR_NAMESPACE)
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        lease = cluster.server.get("coordination.k8s.io", "leases", OPERATOR_NAMESPACE, "istio-operator-lock")
        assert lease is not None
        assert lease["spec"]["holderIdentity"]
        await cluster.stop()
        released_lease = cluster.server.get("coordination.k8s.io", "leases", OPERATOR_NAMESPACE, "istio-operator-lock")
        assert released_lease is not None
        assert not released_lease["spec"].get("holderIdentity")
        await cluster.start(lease=OPERATOR_NAMESPACE)
        await cluster.write(SYSTEM, "mesh", {**MINIMAL, "values": {"pilot": {"tag": "9.9"}}})
        await until(lambda: ":9.9" in str(cluster.installed()[f"Deployment/{SYSTEM}/istiod"]))


async def test_http_pages() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", EDGE | {"components": {}})
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        assert cluster.operator is not None
        async with aiohttp.ClientSession() as session:
            for path, text in (
                ("metrics", "istio_install_operator_reconcile_request_total"),
                ("healthz", "ok"),
                ("readyz", "ok"),
            ):
                async with session.get(f"http://127.0.0.1:{cluster.operator.port}/{path}") as response:
                    assert text in await response.text()


# -- regressions by Istio issue number --------------------------------------------------------------------------------


async def test_25208_every_listed_namespace_is_watched() -> None:
    async with OperatorCluster("first,second,third", "first", "second", "third") as cluster:
        for name in ("first", "second", "third"):
            await cluster.write(
                name,
                "edge",
                {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": name}]}},
            )
        for name in ("first", "second", "third"):
            await cluster.wait_until_healthy(name, "edge")
            assert f"Deployment/{name}/edge" in cluster.installed()


async def test_26317_and_24682_writes_are_limited_to_watched_namespaces() -> None:
    async with OperatorCluster("first,second", "first", "second", "third") as cluster:
        for name in ("second", "third"):
            await cluster.write(
                "first",
                name,
                {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": name}]}},
            )
        await cluster.wait_until_healthy("first", "second")
        await cluster.wait_for_status("first", "third", "ERROR")
        error = cluster.status("first", "third")["componentStatus"]["IngressGateways"]["error"]
        assert 'in the namespace "third"' in error
        assert not [name for name in state_of(cluster.server) if "/third/" in name]


async def test_23773_unwatched_namespaces_are_not_read() -> None:
    async with OperatorCluster("first", "first", "second") as cluster:
        await cluster.write(
            "second",
            "edge",
            {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": "second"}]}},
        )
        await cluster.write(
            "first",
            "edge",
            {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": "first"}]}},
        )
        await cluster.wait_until_healthy("first", "edge")
        assert cluster.status("second", "edge") == {}
        assert not [name for name in cluster.installed() if "/second/" in name]


async def test_40429_unknown_field_is_reported_and_blocks_no_others() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM, "shop") as cluster:
        await cluster.write(SYSTEM, "bad", UNKNOWN)
        await cluster.write(SYSTEM, "none", "text")
        await cluster.write(SYSTEM, "good", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "good")
        await cluster.wait_for_status(SYSTEM, "bad", "ERROR")
        assert cluster.status(SYSTEM, "bad")["message"] == "spec.nonsense: unknown field nonsense"
        await cluster.wait_for_status(SYSTEM, "none", "ERROR")
        await cluster.write(SYSTEM, "bad", {"profile": "empty"})
        await cluster.wait_until_healthy(SYSTEM, "bad")


async def test_40429_installation_is_maintained_despite_invalid_settings() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        before = cluster.installed()
        await cluster.write(SYSTEM, "mesh", {**MINIMAL, "nonsense": True})
        await cluster.wait_for_status(SYSTEM, "mesh", "ERROR")
        await cluster.delete(before[f"ConfigMap/{SYSTEM}/istio"])
        await until(lambda: cluster.installed() == before)
        cluster.controllers.ready = lambda _: False
        cluster.controllers.recheck()
        await until(lambda: cluster.status(SYSTEM, "mesh")["componentStatus"]["Pilot"]["status"] == "RECONCILING")
        assert (cluster.status(SYSTEM, "mesh")["status"], cluster.status(SYSTEM, "mesh")["message"]) == (
            "ERROR",
            "spec.nonsense: unknown field nonsense",
        )


@pytest.mark.parametrize(
    ("number", "path", "value", "is_applied"),
    [
        (
            "25329",
            "spec.template.spec.containers.[name:discovery].args.[-1]",
            "--appended=yes",
            lambda d: "--appended=yes" in _container(d)["args"],
        ),
        (
            "21863",
            "spec.template.spec.containers.[name:discovery].ports.[containerPort:8080]",
            None,
            lambda d: 8080 not in _ports(d),
        ),
        ("32787", "spec.template.spec.volumes[-1]", {"name": "mine", "emptyDir": {}}, lambda d: "mine" in _volumes(d)),
        (
            "21201",
            "spec.template.spec.containers.[name:discovery].env.[name:REVISION].value",
            "x",
            lambda d: _variables(d)["REVISION"] == "x",
        ),
        (
            "18495",
            "spec.template.metadata.annotations.example\\.com/a",
            "b",
            lambda d: _annotations(d)["example.com/a"] == "b",
        ),
    ],
)
async def test_overlays_on_lists(number: str, path: str, value: Any, is_applied: Any) -> None:
    """Upstream issues 25329, 21863, 32787, 21201 and 18495: appended, deleted and selected items, and dots in keys."""
    overlays = [{"kind": "Deployment", "name": "istiod", "patches": [{"path": path, "value": value}]}]
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", {**MINIMAL, "components": {"pilot": {"k8s": {"overlays": overlays}}}})
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        assert cluster.status(SYSTEM, "mesh")["message"] == "", number
        assert is_applied(cluster.installed()[f"Deployment/{SYSTEM}/istiod"]), number


def _container(deployment: Any) -> Any:
    return deployment["spec"]["template"]["spec"]["containers"][0]


def _ports(deployment: Any) -> list[int]:
    return [port["containerPort"] for port in _container(deployment)["ports"]]


def _volumes(deployment: Any) -> list[str]:
    return [volume["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"]]


def _variables(deployment: Any) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in _container(deployment)["env"]}


def _annotations(deployment: Any) -> dict[str, str]:
    return dict(deployment["spec"]["template"]["metadata"]["annotations"])


@pytest.mark.parametrize("cause", ["deleted", "being deleted", "no replicas", "namespace being deleted"])
async def test_finalizer_is_removed_with_the_operator(cause: str) -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        deployment = copy.deepcopy(cluster.server.get("apps", "deployments", OPERATOR_NAMESPACE, "istio-operator"))
        assert deployment is not None
        if cause == "deleted":
            cluster.server.delete(deployment)
        elif cause == "being deleted":
            cluster.server.put(
                {**deployment, "metadata": {**deployment["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
            )
        elif cause == "no replicas":
            cluster.server.put({**deployment, "spec": {**deployment["spec"], "replicas": 0}})
        else:
            cluster.server.put(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": OPERATOR_NAMESPACE, "deletionTimestamp": "2026-01-01T00:00:00Z"},
                }
            )
        installed = cluster.installed()
        await cluster.stop()
        assert (cluster.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == []
        assert cluster.installed() == installed


async def test_finalizer_stays_during_a_restart_of_the_operator() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        await cluster.stop()
        await cluster.remove(SYSTEM, "mesh")
        assert cluster.resource(SYSTEM, "mesh") is not None
        await cluster.start()
        await until(lambda: cluster.resource(SYSTEM, "mesh") is None)
        assert {name.split("/")[0] for name in cluster.installed()} == {"CustomResourceDefinition"}


async def test_status_writes_are_retried() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        cluster.server.faults.refuse(500, times=12, matching=lambda request: request.subresource == "status")
        cluster.server.faults.refuse(409, times=3, matching=lambda request: request.subresource == "status")
        await cluster.write(SYSTEM, "bad", UNKNOWN)
        await cluster.wait_for_status(SYSTEM, "bad", "ERROR")
        assert cluster.server.faults.spent


async def test_waiting_reconciliation_does_not_block_others() -> None:
    async with OperatorCluster(f"{SYSTEM},shop", SYSTEM, "shop") as cluster:
        cluster.controllers.ready = lambda plain: plain["metadata"]["name"] != "istiod"
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_for_status(SYSTEM, "mesh", "RECONCILING")
        await cluster.write("shop", "edge", EDGE)
        await cluster.wait_until_healthy("shop", "edge")
        assert cluster.status(SYSTEM, "mesh")["status"] == "RECONCILING"


@pytest.mark.parametrize("function_name", ["build_install_plan", "build_status"])
async def test_internal_error_is_retried(function_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, failures = getattr(reconciler_module, function_name), []

    def fail_twice(*arguments: Any, **more: Any) -> Any:
        if len(failures) < 2:
            failures.append(function_name)
            raise RuntimeError("a bug")
        return original(*arguments, **more)

    monkeypatch.setattr(reconciler_module, function_name, fail_twice)
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        assert len(failures) == 2


async def test_recreated_resource_with_an_equal_generation_is_reconciled() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        resource = cluster.resource(SYSTEM, "mesh")
        assert resource is not None
        assert resource["metadata"]["generation"] == 1
        cluster.server.delete(resource)
        metadata = {"name": "mesh", "namespace": SYSTEM, "generation": 1}
        cluster.server.put({**resource, "metadata": metadata, "spec": with_few_crds({"profile": "empty"})})
        cluster.server.store.compact()  # watches miss both events
        await until(lambda: f"Deployment/{SYSTEM}/istiod" not in cluster.installed())
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        assert (cluster.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == [FINALIZER]


async def test_repeated_changes_are_corrected_eventually() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as cluster:
        await cluster.write(SYSTEM, "mesh", MINIMAL)
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        before = cluster.installed()
        for _ in range(20):
            await cluster.patch(before[f"ConfigMap/{SYSTEM}/istio"], {"data": {"mesh": "changed"}})
            await asyncio.sleep(0.002)
        await until(lambda: cluster.installed() == before)
