"""Requests to every debug page for every golden mesh."""

from __future__ import annotations

import json
import pathlib

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug.application import application
from pilot.debug.page_routes import sections
from pilot.settings.process import DebugSettings
from testing.mesh.debug_server import FakeConnection, sources, with_health
from tests.golden.test_resources import CASES, connect

SETTINGS = DebugSettings(unsafe_admin=True, profiles=False)
PAGES = [page for pages in sections(SETTINGS).values() for page in pages if page.path != "/debug/rollout"]
"""All pages except the one of an object's rollout, which tests/protocol/test_rollout.py requests."""


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
async def test_all_pages_respond(case: pathlib.Path) -> None:
    world, node_ids = connect(case)
    resources = {node_id: world.resources(node_id) for node_id in node_ids}
    proxies = {node_id: world.mesh.proxies.peek(node_id) for node_id in node_ids}
    connections = [
        FakeConnection(id=f"{node_id.split('~')[2]}-1", proxy_key=node_id, proxy=proxy)
        for node_id, proxy in proxies.items()
        if proxy is not None
    ]
    debug_sources = await with_health(sources(world.mesh, *connections, settings=SETTINGS))
    async with TestClient(TestServer(application(debug_sources))) as client:
        for page in PAGES:
            of_proxy = page.of_proxy or page.path == "/debug/force_disconnect"
            for connection in connections if of_proxy else connections[:1]:
                query = {"proxyID": connection.id} if of_proxy else {}
                if page.path == "/debug/explain":
                    query["resource"] = next(name for rows in resources[connection.proxy_key].values() for name in rows)
                async with client.get(page.path, params=query) as response:
                    body = await response.read()
                    assert response.status == 200, (page.path, connection.id, body)
                    if response.content_type == "application/json":
                        json.loads(body)
                    else:
                        assert page.path in ("/debug/force_disconnect",), response.content_type
        async with client.get("/debug") as response:
            assert response.status == 200
    assert not world.failures
