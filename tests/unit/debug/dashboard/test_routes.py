"""Files and answers of the dashboard, and access to them."""

from __future__ import annotations

import importlib.resources

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug import application as debug_application
from pilot.debug.application import application
from pilot.debug.dashboard import routes
from testing.mesh.debug_server import FakeWatch, sources
from testing.mesh.objects import make, world
from tests.unit.debug.dashboard.test_fleet import connection
from tests.unit.debug.dashboard.test_graph import SLICE, WEB, WEB_POD

RULE = make("DestinationRule", "r", "{host: web}", "a")


async def test_page_loads_no_external_resources() -> None:
    async with TestClient(TestServer(application(sources(world().mesh)))) as client:
        for path in (routes.PATH, *(f"{routes.PATH}/{name}" for name in routes.FILES)):
            async with client.get(path) as response:
                text = await response.text()
                assert response.status == 200
                assert "default-src 'self'" in response.headers["Content-Security-Policy"]
                assert "innerHTML" not in text
                for address in ("http://www.w3.org/2000/svg", "http://prometheus.istio-system:9090", "spiffe://"):
                    text = text.replace(address, "")
                assert "://" not in text, path
        async with client.get("/") as response:
            assert routes.PATH in await response.text()


async def test_page_has_an_address_with_and_without_a_slash_at_the_end() -> None:
    async with TestClient(TestServer(application(sources(world().mesh)))) as client:
        pages = []
        for path in (routes.PATH, f"{routes.PATH}/"):
            async with client.get(path) as response:
                pages.append((response.status, await response.text()))
    assert pages[0] == pages[1]
    assert pages[0][0] == 200


def test_every_static_file_is_served() -> None:
    files = importlib.resources.files("pilot.debug.dashboard").joinpath("static").iterdir()
    assert {file.name for file in files} == {routes.PAGE, *routes.FILES}


@pytest.mark.parametrize("path", ["", "/", "/mesh", "/events", "/page.js", "/object", "/search", "/resource"])
async def test_remote_access_requires_authentication(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(debug_application, "is_loopback", lambda request: False)
    async with (
        TestClient(TestServer(application(sources(world().mesh)))) as client,
        client.get(routes.PATH + path) as response,
    ):
        assert response.status == 401


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("mesh?namespace=a", "namespaces"),
        ("traffic", "enabled"),
        ("search?text=web", "services"),
        ("service?namespace=a&host=web.a.svc.cluster.local", "endpoints"),
        ("service?namespace=a&host=web.a.svc.cluster.local", "slices"),
        ("object?group=networking.istio.io&kind=DestinationRule&namespace=a&name=r", "object"),
        ("proxies?state=synced", "proxies"),
        ("proxy?id=web-0.a-1", "types"),
        ("resources?id=web-0.a-1&type=cds", "names"),
    ],
)
async def test_answers(path: str, key: str) -> None:
    mesh_world = world(WEB, WEB_POD, SLICE, RULE)
    proxy = connection("web-0.a", cds=FakeWatch())
    proxy.proxy_key = mesh_world.connect(proxy.proxy)
    async with (
        TestClient(TestServer(application(sources(mesh_world.mesh, proxy)))) as client,
        client.get(f"{routes.PATH}/{path}") as response,
    ):
        assert response.status == 200
        assert key in await response.json()


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("service?namespace=a&host=none.example", 404, "service none.example does not exist in namespace a\n"),
        ("object?kind=Nosuch&name=x", 404, "Nosuch x does not exist\n"),
        (
            "proxy?id=nobody",
            404,
            "Proxy not connected to this Pilot instance. It may be connected to another instance.\n",
        ),
        ("resource?id=web-0.a-1&type=cds&name=none", 404, "the proxy has no resource 'none'\n"),
    ],
)
async def test_unknown_things(path: str, status: int, text: str) -> None:
    mesh_world = world(WEB)
    proxy = connection("web-0.a", cds=FakeWatch())
    proxy.proxy_key = mesh_world.connect(proxy.proxy)
    async with (
        TestClient(TestServer(application(sources(mesh_world.mesh, proxy)))) as client,
        client.get(f"{routes.PATH}/{path}") as response,
    ):
        assert (response.status, await response.text()) == (status, text)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("service a wbe.a.svc.cluster.local", [["service", "a", "web.a.svc.cluster.local"]]),
        ("service b web.b.svc.cluster.local", [["service", "a", "web.a.svc.cluster.local"]]),
        ("service a nothing.like.it", []),
        ("proxy web-1.a", [["proxy", "web-0.a-1"]]),
        (
            "object networking.istio.io destinationrule a r",
            [["object", "networking.istio.io", "DestinationRule", "a", "r"]],
        ),
        ("object x Nosuch a r", []),
        ("namespace aa", [["namespace", "a"]]),
        ("problemz", []),
        ("", []),
    ],
)
async def test_similar_names_for_addresses_that_lead_nowhere(address: str, expected: list[list[str]]) -> None:
    mesh_world = world(WEB, WEB_POD, SLICE, RULE)
    async with (
        TestClient(TestServer(application(sources(mesh_world.mesh, connection("web-0.a", cds=FakeWatch()))))) as client,
        client.get(f"{routes.PATH}/nearest", params={"address": address.replace(" ", "\n")}) as response,
    ):
        assert [one["address"] for one in await response.json()] == expected
