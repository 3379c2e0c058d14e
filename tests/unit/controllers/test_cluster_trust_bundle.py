"""Root certificates in a ClusterTrustBundle."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import pytest

from pilot.controllers.cluster_trust_bundle import NAME, PATH, TrustBundleController
from pilot.kube.api_errors import Conflict
from pilot.kube.informer import WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, server_with_crds, until, watch_options
from tests.unit.controllers.test_deployed_objects import ScriptedClient


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


async def test_trust_bundle_is_written_and_restored(server: ApiServer) -> None:
    def trust_bundle_spec() -> dict[str, str]:
        bundle = server.get("certificates.k8s.io", "clustertrustbundles", "", NAME)
        return bundle["spec"] if bundle is not None else {}

    roots, client = ["one"], client_of(server)
    writer = TrustBundleController(client, lambda: roots[0], watch_options(), random.Random(1))
    server.faults.refuse(503, times=3, matching=lambda request: request.verb == "create")
    task = asyncio.create_task(writer.run())
    await until(lambda: trust_bundle_spec() == {"signerName": "istio.io/istiod-ca", "trustBundle": "one"})
    assert server.faults.spent
    bundle = server.get("certificates.k8s.io", "clustertrustbundles", "", NAME) or {}
    server.put({**bundle, "spec": {**bundle["spec"], "trustBundle": "evil"}})
    await until(lambda: trust_bundle_spec().get("trustBundle") == "one")
    server.delete(bundle)
    await until(lambda: trust_bundle_spec().get("trustBundle") == "one")
    roots[0] = "two"
    writer.resync()
    await until(lambda: trust_bundle_spec().get("trustBundle") == "two")
    roots[0] = ""
    server.delete(bundle)
    server.faults.bookmark()
    roots[0] = "three"
    writer.resync()
    await until(lambda: trust_bundle_spec().get("trustBundle") == "three")
    await cancel_tasks(task)
    await client.close()


async def test_trust_bundle_requests() -> None:
    client, roots = ScriptedClient(POST=[{}], PUT=[{}, Conflict(409, "x", "")]), ""
    controller = TrustBundleController(client, lambda: roots, WatchOptions(), random.Random(1))  # type: ignore[arg-type]
    await controller._reconcile(NAME)
    assert client.requests == [], "no roots, no bundle"
    roots = "one"
    await controller._reconcile(NAME)
    spec = {"signerName": "istio.io/istiod-ca", "trustBundle": "one"}
    created = {
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    assert client.requests == [("POST", PATH, created)]
    stored = {**created, "metadata": {"name": NAME, "resourceVersion": "7"}}
    await controller._receive([ObjectChange(NamespacedName("", NAME), json.dumps(stored).encode())])
    await controller._reconcile(NAME)
    assert len(client.requests) == 1
    roots = "two"
    await controller._reconcile(NAME)
    await controller._reconcile(NAME)
    assert client.requests[1:] == [("PUT", f"{PATH}/{NAME}", {**stored, "spec": {**spec, "trustBundle": "two"}})] * 2
    await controller._receive([ObjectChange(NamespacedName("", NAME), None)])
    await controller._reconcile(NAME)
    assert client.requests[3:] == [("POST", PATH, {**created, "spec": {**spec, "trustBundle": "two"}})]
