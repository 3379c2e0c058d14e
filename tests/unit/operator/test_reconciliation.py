"""Reconciliation and deletion of IstioOperators: metrics, errors, retries and finalizers."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pilot.operator.istio_operator_resource import FINALIZER
from testing.apiserver.request_info import RequestInfo
from testing.control_planes.running_operator import OperatorCluster
from testing.kube.installations import SYSTEM
from testing.kube.kube_access import until


def gateways_spec(*names: str, namespace: str = "shop") -> dict[str, Any]:
    gateways = [{"name": name, "namespace": namespace} for name in names]
    return {"profile": "empty", "components": {"ingressGateways": gateways}}


async def metrics(cluster: OperatorCluster) -> dict[str, float]:
    """Return the metrics of the operator by name, reason and result."""
    assert cluster.operator is not None
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{cluster.operator.port}/metrics") as response,
    ):
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        samples = [s for family in text_string_to_metric_families(await response.text()) for s in family.samples]
    stripped = ((s.name.removeprefix("istio_install_operator_"), s) for s in samples if not s.name.endswith("_created"))
    return {
        " ".join((name, *(s.labels[label] for label in ("reason", "result") if label in s.labels))): s.value
        for name, s in stripped
    }


async def until_metric(cluster: OperatorCluster, name: str, value: float) -> None:
    """Wait until the metrics whose names start with this one add up to the value."""
    for _ in range(500):
        current = await metrics(cluster)
        if sum(count for key, count in current.items() if key.startswith(name)) == value:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{name} is not {value}: {current}")


async def test_operator_metrics(caplog: pytest.LogCaptureFixture) -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        await cluster.write(SYSTEM, "mesh", gateways_spec("edge"))
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        await until_metric(cluster, "reconcile_request_total install", 1.0)
        await until_metric(cluster, "custom_resources", 1.0)
        previous = await metrics(cluster)
        await cluster.delete(cluster.installed()["ServiceAccount/shop/edge-service-account"])
        await until_metric(cluster, "corrected_resource_total", previous["corrected_resource_total"] + 1)
        await cluster.remove(SYSTEM, "mesh")
        await until_metric(cluster, "custom_resources", 0.0)
        await until_metric(cluster, "reconcile_request_total install", 1.0)
        await until_metric(cluster, "reconcile_request_total delete", 1.0)
        assert (await metrics(cluster))["reconcile_request_total delete done"] == 1.0
    assert "cannot be looked after" not in caplog.text


async def test_label_change_causes_no_reconciliation() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        await cluster.write(SYSTEM, "mesh", gateways_spec("edge"))
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        await cluster.write(SYSTEM, "mesh", gateways_spec("edge"), labels={"a": "b"})
        await cluster.write(SYSTEM, "mesh", gateways_spec("edge", "other"))
        await until(lambda: "Deployment/shop/other" in cluster.installed())
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        await until_metric(cluster, "reconcile_request_total install", 2.0)


async def test_change_during_an_installation_takes_effect() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        cluster.controllers.ready = lambda plain: plain["metadata"]["name"] != "stuck"
        await cluster.write(SYSTEM, "mesh", gateways_spec("stuck"))
        await until(lambda: "Deployment/shop/stuck" in cluster.installed())
        await cluster.write(SYSTEM, "mesh", gateways_spec("edge"))
        await until(lambda: cluster.status(SYSTEM, "mesh").get("status") == "HEALTHY", 60)
        assert "Deployment/shop/stuck" not in cluster.installed()


async def test_deletion_interrupts_an_installation() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        cluster.controllers.ready = lambda _: False
        await cluster.write(SYSTEM, "mesh", gateways_spec("stuck"))
        await until(lambda: "Deployment/shop/stuck" in cluster.installed())
        await cluster.remove(SYSTEM, "mesh")
        await until(lambda: cluster.resource(SYSTEM, "mesh") is None, 60)
        assert cluster.installed() == {}


async def test_deletion_of_another_revision_is_ignored() -> None:
    async with OperatorCluster("", SYSTEM, "shop", revision="r1") as cluster:
        await cluster.write(SYSTEM, "other", {"profile": "empty", "revision": "r2"}, finalizers=[FINALIZER])
        await cluster.write(SYSTEM, "own", {**gateways_spec("edge"), "revision": "r1"})
        await cluster.wait_until_healthy(SYSTEM, "own")
        await cluster.remove(SYSTEM, "other")
        await cluster.remove(SYSTEM, "own")
        await until(lambda: cluster.resource(SYSTEM, "own") is None, 60)
        assert (cluster.resource(SYSTEM, "other") or {})["metadata"]["finalizers"] == [FINALIZER]


def is_istio_operator_patch(request: RequestInfo) -> bool:
    return request.verb == "patch" and request.resource.plural == "istiooperators" and not request.subresource


async def test_finalizer_error_is_reported_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        cluster.server.faults.refuse(403, times=3, matching=is_istio_operator_patch)
        statuses: list[Any] = []
        cluster.server.store.on_change.append(
            lambda _, event: statuses.append((event.after and event.after.plain.get("status")) or {})
        )
        await cluster.write(SYSTEM, "mesh", gateways_spec("edge"))
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        errors = [status for status in statuses if status.get("status") == "ERROR"]
        assert {(status["message"], *status["componentStatus"]) for status in errors} == {
            ("403 Forbidden: refused by a fault (403)",)
        }
        await until_metric(cluster, "reconcile_request_total install", 4.0)
    assert "IstioOperator istio-system/mesh: 403 Forbidden: refused by a fault (403)" in caplog.text


async def test_pruning_is_retried_after_a_restart() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        await cluster.write(SYSTEM, "mesh", gateways_spec("one", "two"))
        await cluster.wait_until_healthy(SYSTEM, "mesh")
        await cluster.stop()
        await cluster.write(SYSTEM, "mesh", gateways_spec("one"))
        cluster.server.faults.refuse(403, matching=lambda request: request.verb == "delete")
        await cluster.start()
        message = "cannot prune obsolete objects: 403 Forbidden: refused by a fault (403)"
        await until(lambda: cluster.status(SYSTEM, "mesh").get("message") == message, 60)
        await until(
            lambda: (
                (cluster.status(SYSTEM, "mesh")["status"], cluster.status(SYSTEM, "mesh")["message"]) == ("HEALTHY", "")
            ),
            60,
        )
        assert not [name for name in cluster.installed() if "two" in name]
        assert "Deployment/shop/one" in cluster.installed()


async def test_shared_objects_are_transferred_on_deletion() -> None:
    async with OperatorCluster("", SYSTEM, "shop") as cluster:
        await cluster.write(SYSTEM, "first", gateways_spec("edge"))
        await cluster.wait_until_healthy(SYSTEM, "first")
        await cluster.write(SYSTEM, "second", gateways_spec("edge", "more"))
        await cluster.wait_until_healthy(SYSTEM, "second")
        await cluster.remove(SYSTEM, "second")
        await until(lambda: cluster.resource(SYSTEM, "second") is None, 60)
        owner = "install.operator.istio.io/owning-resource"
        await until(
            lambda: {plain["metadata"]["labels"].get(owner) for plain in cluster.installed().values()} == {"first"}, 60
        )
        assert "Deployment/shop/edge" in cluster.installed()
        assert "Deployment/shop/more" not in cluster.installed()
