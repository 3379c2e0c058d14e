"""ServiceExports that are created for Services, and requests that the API server rejects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.controllers.service_exports import ServiceExportController
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.request_info import RequestInfo
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, make_rng, server_with_crds, until, watch_options
from testing.mesh.objects import make

EXPORTS = ("multicluster.x-k8s.io", "serviceexports")
SERVICES = ("", "services")
SPEC = "{clusterIP: 10.96.0.1, ports: [{port: 80}]}"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as server:
        server.put(make("Namespace", "shop"))
        yield server


@contextlib.asynccontextmanager
async def run_controller(server: ApiServer) -> AsyncIterator[None]:
    """Run a controller that exports all Services but shop/cups."""
    client = client_of(server)
    controller = ServiceExportController(
        client, "multicluster.x-k8s.io/v1alpha1", lambda *name: name == ("shop", "cups"), watch_options(), make_rng(1)
    )
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        await cancel_tasks(task)
        await client.close()


def put_service(server: ApiServer, name: str) -> None:
    server.put(make("Service", name, SPEC, "shop"))


def exports(server: ApiServer) -> dict[str, Any]:
    return {name: stored.plain for (_, name), stored in server.store.collection(EXPORTS).objects.items()}


def is_creation(request: RequestInfo) -> bool:
    return request.verb == "create" and request.resource.plural == "serviceexports"


def creations(server: ApiServer) -> int:
    return sum(map(is_creation, server.requests))


async def settle(server: ApiServer) -> None:
    """Return when the controller has handled all earlier changes: it handles them in order."""
    put_service(server, f"last-{server.store.revision}")
    name = next(reversed(server.store.collection(SERVICES).objects))[1]
    await until(lambda: name in exports(server))


async def test_service_is_exported_once_with_an_owner_reference(server: ApiServer) -> None:
    async with run_controller(server):
        put_service(server, "tea")
        await until(lambda: "tea" in exports(server))
        tea = server.store.collection(SERVICES).objects["shop", "tea"].plain
        server.put({**tea, "spec": {**tea["spec"], "ports": [{"port": 81}]}})
        await settle(server)
    uid = tea["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Service", "name": "tea", "uid": uid}
    assert exports(server)["tea"]["metadata"]["ownerReferences"] == [owner]
    assert creations(server) == 2, "one for each Service"


async def test_recreated_service_is_exported_again(server: ApiServer) -> None:
    async with run_controller(server):
        for _ in range(2):
            put_service(server, "tea")
            await until(lambda: "tea" in exports(server))
            for resource in (SERVICES, EXPORTS):
                server.store.delete(resource, ("shop", "tea"))
        await settle(server)
    assert creations(server) == 3


async def test_cluster_local_service_is_not_exported(server: ApiServer) -> None:
    async with run_controller(server):
        put_service(server, "cups")
        await settle(server)
    assert "cups" not in exports(server)
    assert creations(server) == 1


@pytest.mark.parametrize(
    ("code", "reason", "attempts"),
    [(409, "AlreadyExists", 1), (404, "NotFound", 1), (403, "Forbidden", 1), (500, "InternalError", 2)],
)
async def test_only_unexpected_errors_are_retried(server: ApiServer, code: int, reason: str, attempts: int) -> None:
    server.faults.refuse(code, matching=is_creation, reason=reason)
    async with run_controller(server):
        put_service(server, "tea")
        await until(lambda: creations(server) == attempts)
        await settle(server)
    assert ("tea" in exports(server)) == (attempts == 2)
    assert creations(server) == attempts + 1
