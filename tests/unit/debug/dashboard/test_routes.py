"""Files of the dashboard, and access to them."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug import application as debug_application
from pilot.debug.application import application
from pilot.debug.dashboard import routes
from testing.mesh.debug_server import sources
from testing.mesh.objects import world


async def test_page_loads_no_external_resources() -> None:
    async with TestClient(TestServer(application(sources(world().mesh)))) as client:
        for path in (routes.PATH, *(f"{routes.PATH}/{name}" for name in routes._FILES[1:])):
            async with client.get(path) as response:
                text = await response.text()
                assert response.status == 200
                assert "default-src 'self'" in response.headers["Content-Security-Policy"]
                assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
        async with client.get(f"{routes.PATH}/mesh") as response:
            assert await response.json() == {"namespaces": [], "gateways": [], "links": [], "services": 0}
        async with client.get("/") as response:
            assert routes.PATH in await response.text()


@pytest.mark.parametrize("path", ["", "/mesh", "/events", "/page.js"])
async def test_remote_access_requires_authentication(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(debug_application, "is_loopback", lambda request: False)
    async with (
        TestClient(TestServer(application(sources(world().mesh)))) as client,
        client.get(routes.PATH + path) as response,
    ):
        assert response.status == 401
