"""The operator: what IstioOperators say is installed, stays so, and goes with them, with no more rights than its chart gives it."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from typing import Any

import aiohttp
import pytest

from pilot.lib.start_error import StartError
from pilot.operator import installation_reconciler as worker
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


def test_the_namespaces_to_watch_must_be_said() -> None:
    with pytest.raises(StartError, match="WATCH_NAMESPACE must be set"):
        run(OperatorSettings(), {})
    assert parse_namespaces("") is None
    assert parse_namespaces("a, b,,a") == ["a", "b"]


async def test_what_it_says_is_installed_and_said_to_be_so() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        there, wanted = o.installed(), expected(SYSTEM, "mesh", MINIMAL)
        assert set(there) == set(wanted)
        assert there[f"Deployment/{SYSTEM}/istiod"] == wanted[f"Deployment/{SYSTEM}/istiod"]
        status = o.status(SYSTEM, "mesh")
        assert {name: one["status"] for name, one in status["componentStatus"].items()} == {
            "Base": "HEALTHY",
            "Pilot": "HEALTHY",
        }
        assert (o.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == [FINALIZER]


async def test_what_others_change_or_delete_is_put_back() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        before = o.installed()
        await o.patch(
            before[f"Deployment/{SYSTEM}/istiod"], {"spec": {"template": {"spec": {"serviceAccountName": "somebody"}}}}
        )
        await o.patch(before[f"ConfigMap/{SYSTEM}/istio"], {"data": {"mesh": "changed"}})
        await o.patch(before[f"Service/{SYSTEM}/istiod"], {"metadata": {"labels": {"operator.istio.io/managed": None}}})
        await o.delete(before[f"ServiceAccount/{SYSTEM}/istiod"])
        await o.delete(before["ClusterRole/istiod-clusterrole-istio-system"])
        await until(lambda: o.installed() == before)


async def test_what_it_does_not_say_any_more_is_pruned() -> None:
    async with OperatorCluster(f"{SYSTEM},shop", SYSTEM, "shop") as o:
        both = [{"name": "one"}, {"name": "two", "namespace": "shop"}]
        await o.write(SYSTEM, "edges", {"profile": "empty", "components": {"ingressGateways": both}})
        await o.wait_until_healthy(SYSTEM, "edges")
        assert {"Deployment/istio-system/one", "Deployment/shop/two"} <= set(o.installed())
        anonymous = {"metadata": {"labels": {"install.operator.istio.io/owning-resource": None}}}
        await o.patch(o.installed()["Service/shop/two"], anonymous)
        await o.write(SYSTEM, "edges", {"profile": "empty", "components": {"ingressGateways": [{"name": "one"}]}})
        await until(lambda: not any("/shop/" in name for name in o.installed()))
        assert "Deployment/istio-system/one" in o.installed()


async def test_what_goes_takes_along_what_it_installed_but_not_what_others_want() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.write("shop", "second", with_few_crds({"profile": "minimal", "revision": "r2"}))
        await o.wait_until_healthy(SYSTEM, "mesh")
        await o.wait_until_healthy("shop", "second")
        await o.remove("shop", "second")
        await until(lambda: o.resource("shop", "second") is None)
        names = set(o.installed())
        assert not [name for name in names if "istiod-r2" in name]
        assert set(expected(SYSTEM, "mesh", MINIMAL)) <= names
        await o.remove(SYSTEM, "mesh")
        await until(lambda: o.resource(SYSTEM, "mesh") is None)
        assert {name.split("/")[0] for name in o.installed()} == {"CustomResourceDefinition"}
        assert "MutatingWebhookConfiguration/istio-revision-tag-default" not in state_of(o.server)


async def test_a_revision_with_proxies_does_not_go() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        await o.write(SYSTEM, "second", with_few_crds({"profile": "minimal", "revision": "r2"}))
        await o.wait_until_healthy(SYSTEM, "second")
        metadata = {
            "name": "app",
            "namespace": "shop",
            "annotations": {"sidecar.istio.io/status": "{}", "istio.io/rev": "r2"},
        }
        o.server.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        await o.remove(SYSTEM, "second")
        await o.wait_for_status(SYSTEM, "second", "ACTION_REQUIRED")
        assert "shop/app" in o.status(SYSTEM, "second")["message"]
        o.server.delete({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        await until(lambda: o.resource(SYSTEM, "second") is None)


async def test_what_is_of_another_revision_or_to_be_ignored_is_left_alone() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM, revision="r1") as o:
        await o.write(SYSTEM, "other", with_few_crds({"profile": "minimal", "revision": "r2"}))
        await o.write(
            SYSTEM, "ignored", EDGE | {"revision": "r1"}, annotations={"install.istio.io/ignoreReconcile": "true"}
        )
        await o.write(SYSTEM, "own", with_few_crds({"profile": "minimal", "revision": "r1"}))
        await o.wait_until_healthy(SYSTEM, "own")
        assert (o.status(SYSTEM, "other"), o.status(SYSTEM, "ignored")) == ({}, {})
        assert not [name for name in o.installed() if "r2" in name or "edge" in name]


async def test_a_component_that_does_not_come_up_is_said_with_the_cause() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        o.controllers.ready = lambda plain: plain["metadata"]["name"] != "istiod"
        await o.write(SYSTEM, "mesh", MINIMAL)
        await until(lambda: f"Deployment/{SYSTEM}/istiod" in o.installed())
        await o.wait_for_status(SYSTEM, "mesh", "RECONCILING")
        o.controllers.ready = lambda _: True
        o.controllers.recheck()
        await o.wait_until_healthy(SYSTEM, "mesh")
        o.controllers.ready = lambda _: False
        o.controllers.recheck()
        await o.wait_for_status(SYSTEM, "mesh", "RECONCILING")
        assert (
            o.status(SYSTEM, "mesh")["componentStatus"]["Pilot"]["error"]
            == f"Deployment {SYSTEM}/istiod: 0 of 1 pods ready"
        )


async def test_what_has_no_effect_is_said_in_the_status() -> None:
    overlays = [{"kind": "Deployment", "name": "nobody", "patches": [{"path": "spec.replicas", "value": 2}]}]
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", {**MINIMAL, "components": {"pilot": {"k8s": {"overlays": overlays}}}})
        await o.wait_until_healthy(SYSTEM, "mesh")
        assert "overlay of Deployment nobody" in o.status(SYSTEM, "mesh")["message"]


async def test_only_one_replica_works_and_another_one_goes_on() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.stop()
        await o.start(lease=OPERATOR_NAMESPACE)
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        lease = o.server.get("coordination.k8s.io", "leases", OPERATOR_NAMESPACE, "istio-operator-lock")
        assert lease is not None
        assert lease["spec"]["holderIdentity"]
        await o.stop()
        given_back = o.server.get("coordination.k8s.io", "leases", OPERATOR_NAMESPACE, "istio-operator-lock")
        assert given_back is not None
        assert not given_back["spec"].get("holderIdentity")
        await o.start(lease=OPERATOR_NAMESPACE)
        await o.write(SYSTEM, "mesh", {**MINIMAL, "tag": "9.9"})
        await until(lambda: ":9.9" in str(o.installed()[f"Deployment/{SYSTEM}/istiod"]))


async def test_the_pages_of_the_operator() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", EDGE | {"components": {}})
        await o.wait_until_healthy(SYSTEM, "mesh")
        assert o.operator is not None
        async with aiohttp.ClientSession() as session:
            for path, text in (
                ("metrics", "istio_install_operator_reconcile_request_total"),
                ("healthz", "ok"),
                ("readyz", "ok"),
            ):
                async with session.get(f"http://127.0.0.1:{o.operator.port}/{path}") as answer:
                    assert text in await answer.text()


# -- known bugs of Istio's operator, by the number of their issue ----------------------------------------------------------


async def test_25208_every_watched_namespace_is_watched_not_only_the_first() -> None:
    async with OperatorCluster("first,second,third", "first", "second", "third") as o:
        for name in ("first", "second", "third"):
            await o.write(
                name,
                "edge",
                {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": name}]}},
            )
        for name in ("first", "second", "third"):
            await o.wait_until_healthy(name, "edge")
            assert f"Deployment/{name}/edge" in o.installed()


async def test_26317_and_24682_it_may_write_in_every_watched_namespace_and_in_no_other() -> None:
    async with OperatorCluster("first,second", "first", "second", "third") as o:
        for name in ("second", "third"):
            await o.write(
                "first",
                name,
                {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": name}]}},
            )
        await o.wait_until_healthy("first", "second")
        await o.wait_for_status("first", "third", "ERROR")
        error = o.status("first", "third")["componentStatus"]["IngressGateways"]["error"]
        assert 'in the namespace "third"' in error
        assert not [name for name in state_of(o.server) if "/third/" in name]


async def test_23773_objects_of_a_namespace_that_is_not_watched_are_not_read() -> None:
    async with OperatorCluster("first", "first", "second") as o:
        await o.write(
            "second",
            "edge",
            {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": "second"}]}},
        )
        await o.write(
            "first",
            "edge",
            {"profile": "empty", "components": {"ingressGateways": [{"name": "edge", "namespace": "first"}]}},
        )
        await o.wait_until_healthy("first", "edge")
        assert o.status("second", "edge") == {}
        assert not [name for name in o.installed() if "/second/" in name]


async def test_40429_an_unknown_field_is_said_in_the_status_and_keeps_no_other_from_being_reconciled() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM, "shop") as o:
        await o.write(SYSTEM, "bad", UNKNOWN)
        await o.write(SYSTEM, "none", "text")
        await o.write(SYSTEM, "good", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "good")
        await o.wait_for_status(SYSTEM, "bad", "ERROR")
        assert o.status(SYSTEM, "bad")["message"] == "spec.nonsense: unknown field nonsense"
        await o.wait_for_status(SYSTEM, "none", "ERROR")
        await o.write(SYSTEM, "bad", {"profile": "empty"})
        await o.wait_until_healthy(SYSTEM, "bad")


async def test_40429_what_was_installed_before_a_mistake_is_looked_after_on() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        before = o.installed()
        await o.write(SYSTEM, "mesh", {**MINIMAL, "nonsense": True})
        await o.wait_for_status(SYSTEM, "mesh", "ERROR")
        await o.delete(before[f"ConfigMap/{SYSTEM}/istio"])
        await until(lambda: o.installed() == before)
        o.controllers.ready = lambda _: False
        o.controllers.recheck()
        await until(lambda: o.status(SYSTEM, "mesh")["componentStatus"]["Pilot"]["status"] == "RECONCILING")
        assert (o.status(SYSTEM, "mesh")["status"], o.status(SYSTEM, "mesh")["message"]) == (
            "ERROR",
            "spec.nonsense: unknown field nonsense",
        )


@pytest.mark.parametrize(
    ("number", "path", "value", "read"),
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
async def test_overlays_on_lists(number: str, path: str, value: Any, read: Any) -> None:
    """Upstream issues 25329, 21863, 32787, 21201, 18495: items that are appended, deleted or selected, and dots in keys."""
    overlays = [{"kind": "Deployment", "name": "istiod", "patches": [{"path": path, "value": value}]}]
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", {**MINIMAL, "components": {"pilot": {"k8s": {"overlays": overlays}}}})
        await o.wait_until_healthy(SYSTEM, "mesh")
        assert o.status(SYSTEM, "mesh")["message"] == "", number
        assert read(o.installed()[f"Deployment/{SYSTEM}/istiod"]), number


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


@pytest.mark.parametrize("how", ["deleted", "being deleted", "no replicas", "namespace being deleted"])
async def test_a_finalizer_does_not_outlive_the_operator(how: str) -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        deployment = copy.deepcopy(o.server.get("apps", "deployments", OPERATOR_NAMESPACE, "istio-operator"))
        assert deployment is not None
        if how == "deleted":
            o.server.delete(deployment)
        elif how == "being deleted":
            o.server.put(
                {**deployment, "metadata": {**deployment["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
            )
        elif how == "no replicas":
            o.server.put({**deployment, "spec": {**deployment["spec"], "replicas": 0}})
        else:
            o.server.put(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": OPERATOR_NAMESPACE, "deletionTimestamp": "2026-01-01T00:00:00Z"},
                }
            )
        installed = o.installed()
        await o.stop()
        assert (o.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == []
        assert o.installed() == installed


async def test_a_finalizer_stays_while_another_pod_of_the_operator_takes_over() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        await o.stop()
        await o.remove(SYSTEM, "mesh")
        assert o.resource(SYSTEM, "mesh") is not None
        await o.start()
        await until(lambda: o.resource(SYSTEM, "mesh") is None)
        assert {name.split("/")[0] for name in o.installed()} == {"CustomResourceDefinition"}


async def test_an_error_is_not_lost_where_the_status_cannot_be_written_at_first() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        o.server.faults.refuse(500, times=12, matching=lambda asked: asked.subresource == "status")
        o.server.faults.refuse(409, times=3, matching=lambda asked: asked.subresource == "status")
        await o.write(SYSTEM, "bad", UNKNOWN)
        await o.wait_for_status(SYSTEM, "bad", "ERROR")
        assert o.server.faults.spent


async def test_one_that_waits_keeps_no_other_from_being_reconciled() -> None:
    async with OperatorCluster(f"{SYSTEM},shop", SYSTEM, "shop") as o:
        o.controllers.ready = lambda plain: plain["metadata"]["name"] != "istiod"
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_for_status(SYSTEM, "mesh", "RECONCILING")
        await o.write("shop", "edge", EDGE)
        await o.wait_until_healthy("shop", "edge")
        assert o.status(SYSTEM, "mesh")["status"] == "RECONCILING"


@pytest.mark.parametrize("place", ["build_install_plan", "build_status"])
async def test_a_bug_is_said_and_does_not_end_looking_after_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    works, failed = getattr(worker, place), []

    def fails_twice(*arguments: Any, **more: Any) -> Any:
        if len(failed) < 2:
            failed.append(place)
            raise RuntimeError("a bug")
        return works(*arguments, **more)

    monkeypatch.setattr(worker, place, fails_twice)
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        assert len(failed) == 2


async def test_one_that_is_made_again_unseen_is_another_one_though_its_generation_is_the_same() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        there = o.resource(SYSTEM, "mesh")
        assert there is not None
        assert there["metadata"]["generation"] == 1
        o.server.delete(there)
        again = {"name": "mesh", "namespace": SYSTEM, "generation": 1}
        o.server.put({**there, "metadata": again, "spec": with_few_crds({"profile": "empty"})})
        o.server.store.compact()  # no watch is told of either
        await until(lambda: f"Deployment/{SYSTEM}/istiod" not in o.installed())
        await o.wait_until_healthy(SYSTEM, "mesh")
        assert (o.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == [FINALIZER]


async def test_somebody_who_changes_the_same_again_and_again_is_answered_in_the_end() -> None:
    async with OperatorCluster(SYSTEM, SYSTEM) as o:
        await o.write(SYSTEM, "mesh", MINIMAL)
        await o.wait_until_healthy(SYSTEM, "mesh")
        before = o.installed()
        for _ in range(20):
            await o.patch(before[f"ConfigMap/{SYSTEM}/istio"], {"data": {"mesh": "changed"}})
            await asyncio.sleep(0.002)
        await until(lambda: o.installed() == before)


def test_settings_are_those_of_the_reference() -> None:
    names = {
        f.metadata["env"]
        for section in (OperatorSettings().watch, OperatorSettings().replica)
        for f in dataclasses.fields(section)
    }
    wanted = {
        "WATCH_NAMESPACE",
        "LEADER_ELECTION_NAMESPACE",
        "RENEW_DEADLINE",
        "REVISION",
        "WAIT_FOR_RESOURCES_TIMEOUT",
        "POD_NAME",
        "OPERATOR_NAME",
    }
    assert wanted <= names
