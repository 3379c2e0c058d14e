"""How the operator looks after an IstioOperator, step by step: what it counts, what it says when something fails, and when it looks again."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pilot.operator.deletion import add_finalizer, is_operator_removed, remove_all_finalizers, remove_finalizer
from pilot.operator.istio_operator_resource import FINALIZER, istio_operator_of
from testing.apiserver.request_info import RequestInfo
from testing.control_planes.running_operator import OPERATOR_NAMESPACE, OperatorCluster
from testing.kube.installations import SYSTEM
from testing.kube.kube_access import until


def edges(*names: str, namespace: str = "shop") -> dict[str, Any]:
    gateways = [{"name": name, "namespace": namespace} for name in names]
    return {"profile": "empty", "components": {"ingressGateways": gateways}}


async def counted(o: OperatorCluster) -> dict[str, float]:
    """Returns what the operator's page of metrics says."""
    assert o.operator is not None
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{o.operator.port}/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        samples = [s for family in text_string_to_metric_families(await answer.text()) for s in family.samples]
    short = ((s.name.removeprefix("istio_install_operator_"), s) for s in samples if not s.name.endswith("_created"))
    return {
        " ".join((name, *(s.labels[label] for label in ("reason", "result") if label in s.labels))): s.value
        for name, s in short
    }


async def until_counted(o: OperatorCluster, name: str, value: float) -> None:
    """Waits until what begins with the name was counted so often, whatever came of it."""
    for _ in range(500):
        found = await counted(o)
        if sum(count for counted, count in found.items() if counted.startswith(name)) == value:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{name} is not {value}: {found}")


async def test_what_the_operator_counts(caplog: pytest.LogCaptureFixture) -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        await o.write(SYSTEM, "mesh", edges("edge"))
        await o.wait_until_healthy(SYSTEM, "mesh")
        await until_counted(o, "reconcile_request_total install", 1.0)
        await until_counted(o, "custom_resources", 1.0)
        before = await counted(o)
        await o.delete(o.installed()["ServiceAccount/shop/edge-service-account"])
        await until_counted(o, "corrected_resource_total", before["corrected_resource_total"] + 1)
        await o.remove(SYSTEM, "mesh")
        await until_counted(o, "custom_resources", 0.0)
        await until_counted(o, "reconcile_request_total install", 1.0)
        await until_counted(o, "reconcile_request_total delete", 1.0)
        assert (await counted(o))["reconcile_request_total delete done"] == 1.0
    assert "cannot be looked after" not in caplog.text


async def test_what_a_change_of_nothing_but_labels_does_not_have_installed_again() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        await o.write(SYSTEM, "mesh", edges("edge"))
        await o.wait_until_healthy(SYSTEM, "mesh")
        await o.write(SYSTEM, "mesh", edges("edge"), labels={"a": "b"})
        await o.write(SYSTEM, "mesh", edges("edge", "other"))
        await until(lambda: "Deployment/shop/other" in o.installed())
        await o.wait_until_healthy(SYSTEM, "mesh")
        await until_counted(o, "reconcile_request_total install", 2.0)


async def test_one_that_is_changed_while_its_component_comes_up_is_installed_as_it_is_now() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        o.controllers.ready = lambda plain: plain["metadata"]["name"] != "stuck"
        await o.write(SYSTEM, "mesh", edges("stuck"))
        await until(lambda: "Deployment/shop/stuck" in o.installed())
        await o.write(SYSTEM, "mesh", edges("edge"))
        await until(lambda: o.status(SYSTEM, "mesh").get("status") == "HEALTHY", 60)
        assert "Deployment/shop/stuck" not in o.installed()


async def test_one_that_is_deleted_while_its_component_comes_up_goes_at_once() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        o.controllers.ready = lambda _: False
        await o.write(SYSTEM, "mesh", edges("stuck"))
        await until(lambda: "Deployment/shop/stuck" in o.installed())
        await o.remove(SYSTEM, "mesh")
        await until(lambda: o.resource(SYSTEM, "mesh") is None, 60)
        assert o.installed() == {}


async def test_one_of_another_revision_is_left_to_its_own_operator_when_it_goes() -> None:
    async with OperatorCluster("", SYSTEM, "shop", revision="r1") as o:
        await o.write(SYSTEM, "other", {"profile": "empty", "revision": "r2"}, finalizers=[FINALIZER])
        await o.write(SYSTEM, "own", {**edges("edge"), "revision": "r1"})
        await o.wait_until_healthy(SYSTEM, "own")
        await o.remove(SYSTEM, "other")
        await o.remove(SYSTEM, "own")
        await until(lambda: o.resource(SYSTEM, "own") is None, 60)
        assert (o.resource(SYSTEM, "other") or {})["metadata"]["finalizers"] == [FINALIZER]


def changes_an_istio_operator(asked: RequestInfo) -> bool:
    return asked.verb == "patch" and asked.resource.plural == "istiooperators" and not asked.subresource


async def test_one_that_cannot_be_held_says_so_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        o.server.faults.refuse(403, times=3, matching=changes_an_istio_operator)
        told: list[Any] = []
        o.server.store.on_change.append(
            lambda _, event: told.append((event.after and event.after.plain.get("status")) or {})
        )
        await o.write(SYSTEM, "mesh", edges("edge"))
        await o.wait_until_healthy(SYSTEM, "mesh")
        errors = [status for status in told if status.get("status") == "ERROR"]
        assert {(status["message"], *status["componentStatus"]) for status in errors} == {
            ("403 Forbidden: refused by a fault (403)",)
        }
        await until_counted(o, "reconcile_request_total install", 4.0)
    assert "IstioOperator istio-system/mesh: 403 Forbidden: refused by a fault (403)" in caplog.text


async def test_what_was_left_over_before_it_started_and_cannot_be_pruned_at_first_is_pruned_later() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        await o.write(SYSTEM, "mesh", edges("one", "two"))
        await o.wait_until_healthy(SYSTEM, "mesh")
        await o.stop()
        await o.write(SYSTEM, "mesh", edges("one"))
        o.server.faults.refuse(403, matching=lambda asked: asked.verb == "delete")
        await o.start()
        left = "cannot prune obsolete objects: 403 Forbidden: refused by a fault (403)"
        await until(lambda: o.status(SYSTEM, "mesh").get("message") == left, 60)
        await until(
            lambda: (o.status(SYSTEM, "mesh")["status"], o.status(SYSTEM, "mesh")["message"]) == ("HEALTHY", ""), 60
        )
        assert not [name for name in o.installed() if "two" in name]
        assert "Deployment/shop/one" in o.installed()


async def test_who_applies_what_two_istio_operators_want_when_one_of_them_goes() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as o:
        await o.write(SYSTEM, "first", edges("edge"))
        await o.wait_until_healthy(SYSTEM, "first")
        await o.write(SYSTEM, "second", edges("edge", "more"))
        await o.wait_until_healthy(SYSTEM, "second")
        await o.remove(SYSTEM, "second")
        await until(lambda: o.resource(SYSTEM, "second") is None, 60)
        owner = "install.operator.istio.io/owning-resource"
        await until(
            lambda: {plain["metadata"]["labels"].get(owner) for plain in o.installed().values()} == {"first"}, 60
        )
        assert "Deployment/shop/edge" in o.installed()
        assert "Deployment/shop/more" not in o.installed()


async def test_the_finalizer_is_added_and_taken_away_once_whoever_changes_the_object_meanwhile() -> None:
    async with OperatorCluster("", SYSTEM) as o:
        assert o.operator is not None
        objects = o.operator.controller.objects
        ignored = {"install.istio.io/ignoreReconcile": "true"}
        await o.write(
            SYSTEM, "mesh", {"profile": "empty", "revision": "r1"}, finalizers=["somebody's/own"], annotations=ignored
        )
        custom = istio_operator_of(o.resource(SYSTEM, "mesh") or {})
        o.server.faults.refuse(409, times=2, matching=changes_an_istio_operator)
        await add_finalizer(objects, custom)
        await add_finalizer(objects, custom)
        assert (o.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == ["somebody's/own", FINALIZER]
        assert await remove_all_finalizers(objects, None, "r2") == []
        assert await remove_all_finalizers(objects, ["elsewhere"], "") == []
        o.server.faults.refuse(409, times=2, matching=changes_an_istio_operator)
        assert await remove_all_finalizers(objects, [SYSTEM], "r1") == [custom.key]
        assert (o.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == ["somebody's/own"]
        assert await remove_all_finalizers(objects, None, "") == []
        await remove_finalizer(objects, custom.key._replace(name="nobody"))


async def test_the_operator_ends_where_its_deployment_or_its_namespace_does() -> None:
    async with OperatorCluster("", SYSTEM) as o:
        assert o.operator is not None
        objects = o.operator.controller.objects
        found = [await is_operator_removed(objects, OPERATOR_NAMESPACE, name) for name in ("istio-operator", "another")]
        assert [*found, await is_operator_removed(objects, "elsewhere", "istio-operator")] == [False, True, True]
