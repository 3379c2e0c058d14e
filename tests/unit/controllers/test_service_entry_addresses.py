"""Automatic addresses of ServiceEntries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.object import ObjectKey
from pilot.controllers.service_entry_addresses import AutoAddressController
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.tables.database import Mesh
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import QUICK_WATCH, client_of, server_with_crds, until
from testing.mesh.world import rows_of


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


def entry(name: str, day: int, hosts: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": f"2025-01-{day:02}T00:00:00Z"}
    spec = {
        "hosts": hosts.split(","),
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "resolution": "DNS",
        **more,
    }
    return {"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": metadata, "spec": spec}


class Addresses:
    """The address controller, with tables that mirror the server."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.mesh, self.client = server, Mesh(), client_of(server)
        config, _ = decode_mesh_config([])
        self.mesh.commit([(self.mesh.mesh, "mesh", config)])
        self.load()
        self.writer = AutoAddressController(self.client, self.mesh, self._path, QUICK_WATCH.backoff, random.Random(1))

    def _path(self, key: ObjectKey) -> str:
        return f"/apis/networking.istio.io/v1/namespaces/{key.namespace}/serviceentries/{key.name}"

    def load(self) -> None:
        objects = self.server.store.collection(("networking.istio.io", "serviceentries")).objects
        rows = rows_of([stored.plain for stored in objects.values()])
        deleted = [
            key for key, _ in SERVICE_ENTRY.table(self.mesh).rows() if (SERVICE_ENTRY.table_name, key) not in rows
        ]
        changes = {key: row for (_, key), row in rows.items()} | dict.fromkeys(deleted)
        self.mesh.commit([(SERVICE_ENTRY.table(self.mesh), key, row) for key, row in changes.items()])

    def addresses(self) -> dict[str, list[str]]:
        objects = self.server.store.collection(("networking.istio.io", "serviceentries")).objects
        return {
            name: [f"{a['host']}={a['value']}" for a in s.plain.get("status", {}).get("addresses") or []]
            for (_, name), s in objects.items()
        }


async def test_addresses_are_assigned_by_age_and_released(server: ApiServer) -> None:
    server.put(entry("young", 2, "b.com,c.com"))
    server.put(entry("old", 1, "a.com"))
    server.put(entry("own", 3, "d.com", addresses=["240.240.0.2"]))
    harness = Addresses(server)
    task = asyncio.create_task(harness.writer.run())
    expected = {
        "old": ["a.com=240.240.0.1", "a.com=2001:2::1"],
        "young": ["b.com=240.240.0.3", "b.com=2001:2::2", "c.com=240.240.0.4", "c.com=2001:2::3"],
        "own": [],
    }
    await until(lambda: harness.addresses() == expected)
    writes = len([request for request in server.requests if request.verb == "patch"])
    harness.load()
    harness.writer.resync()
    server.put(entry("older", 1, "0.com"))
    harness.load()
    harness.writer.resync()
    await until(lambda: harness.addresses()["older"] == ["0.com=240.240.0.5", "0.com=2001:2::4"])
    assert len([request for request in server.requests if request.verb == "patch"]) == writes + 1, (
        "entries with addresses are not rewritten"
    )
    plain = server.get("networking.istio.io", "serviceentries", "shop", "young")
    assert plain is not None
    server.put({**plain, "spec": {**plain["spec"], "resolution": "NONE"}})
    harness.load()
    harness.writer.resync()
    await until(lambda: harness.addresses()["young"] == [])
    await cancel_tasks(task)
    await harness.client.close()


async def test_older_entry_keeps_a_duplicate_address(server: ApiServer) -> None:
    status = {"addresses": [{"host": "a.com", "value": "240.240.0.1"}]}
    server.put({**entry("old", 1, "a.com"), "status": status})
    server.put({**entry("young", 2, "b.com"), "status": {"addresses": [{"host": "b.com", "value": "240.240.0.1"}]}})
    harness = Addresses(server)
    task = asyncio.create_task(harness.writer.run())
    await until(lambda: harness.addresses()["young"] == ["b.com=240.240.0.2", "b.com=2001:2::1"])
    assert harness.addresses()["old"] == ["a.com=240.240.0.1"]
    await cancel_tasks(task)
    await harness.client.close()
