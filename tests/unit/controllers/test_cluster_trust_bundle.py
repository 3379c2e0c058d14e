"""Root certificates in a ClusterTrustBundle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from pilot.controllers import cluster_trust_bundle as trust_bundle
from pilot.controllers.cluster_trust_bundle import TrustBundleController
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, server_with_crds, until, watch_options


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


async def test_trust_bundle_is_written_and_restored(server: ApiServer) -> None:
    def trust_bundle_spec() -> dict[str, str]:
        bundle = server.get("certificates.k8s.io", "clustertrustbundles", "", trust_bundle.NAME)
        return bundle["spec"] if bundle is not None else {}

    roots, client = ["one"], client_of(server)
    writer = TrustBundleController(client, lambda: roots[0], watch_options(), random.Random(1))
    server.faults.refuse(503, times=3, matching=lambda request: request.verb == "create")
    task = asyncio.create_task(writer.run())
    await until(lambda: trust_bundle_spec() == {"signerName": "istio.io/istiod-ca", "trustBundle": "one"})
    assert server.faults.spent
    bundle = server.get("certificates.k8s.io", "clustertrustbundles", "", trust_bundle.NAME) or {}
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
