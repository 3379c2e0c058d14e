"""Debug pages over HTTP, with a mesh in memory: the process, access and the fleet."""

from __future__ import annotations

import gzip

import pytest
import yarl
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug import application as application_module
from pilot.debug.application import application
from pilot.debug.page_routes import sections
from pilot.debug.pages import index
from pilot.debug.sources import Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.settings.process import DebugSettings
from testing.mesh.debug_pages import Ask, build_mesh, connection, refusal
from testing.mesh.debug_server import FakeFleet, sources

# -- the process -----------------------------------------------------------------------------------------------------------


async def test_version(ask: Ask) -> None:
    assert await ask("/version") == "1.2.3-abc-Clean"


async def test_metrics(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/metrics", headers={"Accept-Encoding": "identity"}) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "pilot_info{" in await response.text()


async def test_metrics_are_compressed_on_request(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/metrics", headers={"Accept-Encoding": "deflate, gzip"}, auto_decompress=False) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"pilot_info{" in gzip.decompress(await response.read())


async def test_index_notes_omitted_proxies(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<p>The first" not in await ask("/debug")
    monkeypatch.setattr(index, "_SHOWN_PROXIES", 1)
    assert "<p>The first 1 of 2.</p>" in await ask("/debug")


async def test_index_lists_pages_and_proxies(ask: Ask) -> None:
    text = await ask("/debug")
    for page in (page for section in sections(DebugSettings()).values() for page in section):
        assert f'{"formaction" if page.of_proxy else "href"}="{page.path}"' in text
    assert "tea-1.shop-3" in text
    assert "/debug/config_dump?proxyID=tea-1.shop-3&amp;pretty=" in text
    assert '<option value="tea-1.shop-3">' in text


async def test_list(ask: Ask) -> None:
    names = await ask("/debug/list")
    assert names == sorted(names)
    assert {"adsz", "adsz?push=true", "syncz", "config_dump", "configz", "registryz", "endpointz", "mesh"} <= set(names)
    assert "list" not in names
    assert [name for name in names if "pprof" in name] == []


async def test_pretty_indents_by_four_spaces(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/debug/resourcesz?pretty") as response:
        text = await response.text()
    assert text.startswith('[\n    {\n        "group": "",')
    async with client.get("/debug/resourcesz") as response:
        assert "\n" not in await response.text()


async def test_unknown_paths(client: TestClient[web.Request, web.Application]) -> None:
    assert await refusal(client, "/debug/nonsense") == (404, "404 page not found\n")
    assert await refusal(client, "/nonsense") == (404, "404 page not found\n")


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("//version", "/version"),
        ("/debug/./syncz", "/debug/syncz"),
        ("//example.com//a/../?b=c", "/example.com/?b=c"),
    ],
)
async def test_paths_are_normalized(client: TestClient[web.Request, web.Application], path: str, location: str) -> None:
    async with client.session.get(
        yarl.URL(f"{client.make_url('/')}".rstrip("/") + path, encoded=True), allow_redirects=False
    ) as response:
        assert (response.status, response.headers["Location"]) == (307, location)


# -- access ------------------------------------------------------------------------------------------------------------


class FakeRequest:
    def __init__(self, remote: str | None) -> None:
        self.remote = remote


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fd00::1", False),
        (None, False),
    ],
)
def test_is_loopback(peer: str | None, expected: bool) -> None:
    assert application_module.is_loopback(FakeRequest(peer)) is expected  # type: ignore[arg-type]


async def test_remote_clients_see_metrics_and_the_bare_index(
    client: TestClient[web.Request, web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
    assert await refusal(client, "/debug/adsz") == (401, "")
    status, text = await refusal(client, "/debug")
    assert status == 200
    assert "/debug/adsz" in text
    assert "tea-1.shop" not in text
    assert (await refusal(client, "/metrics"))[0] == 200


async def test_metrics_can_be_limited_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = sources(build_mesh(), settings=DebugSettings(metrics_loopback_only=True))
    async with TestClient(TestServer(application(closed))) as client:
        assert (await refusal(client, "/metrics"))[0] == 200
        monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
        assert await refusal(client, "/metrics") == (403, "Only requests from localhost are allowed\n")


async def test_debug_pages_can_be_disabled() -> None:
    async with TestClient(
        TestServer(application(sources(build_mesh(), settings=DebugSettings(pages=False))))
    ) as client:
        assert (await refusal(client, "/debug"))[0] == 404
        assert (await refusal(client, "/debug/adsz"))[0] == 404
        assert (await refusal(client, "/version"))[0] == 200


async def test_force_disconnect_is_disabled_by_default(client: TestClient[web.Request, web.Application]) -> None:
    assert (await refusal(client, "/debug/force_disconnect?proxyID=tea"))[0] == 404
    unsafe = sources(build_mesh(), connection(), settings=DebugSettings(unsafe_admin=True))
    async with TestClient(TestServer(application(unsafe))) as other:
        assert await refusal(other, "/debug/force_disconnect?proxyID=tea") == (200, "OK")
        assert "force_disconnect" in (await refusal(other, "/debug/list"))[1]
    assert isinstance(unsafe.fleet, FakeFleet)
    assert unsafe.fleet.disconnected == ["tea-1.shop-3"]


# -- the fleet -------------------------------------------------------------------------------------------------------------


async def test_adsz(ask: Ask) -> None:
    response = await ask("/debug/adsz")
    assert response["totalClients"] == 2
    assert [client["connectionId"] for client in response["clients"]] == ["cup-1.mugs-4", "tea-1.shop-3"]
    tea = response["clients"][1]
    assert tea["connectedAt"] == "2023-11-14T22:13:20.000000Z"
    assert tea["address"] == "10.0.0.9:4444"
    assert tea["labels"] == {"app": "tea", "topology.istio.io/cluster": "Kubernetes"}
    assert tea["metadata"]["NAMESPACE"] == "shop"
    assert tea["watches"][BY_SHORT_NAME["cds"]] == []  # wildcard subscription


async def test_adsz_lists_wildcard_resources_of_delta_streams(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["cds"]].wildcard_names = ["b", "a"]  # type: ignore[misc]
    assert (await ask("/debug/adsz"))["clients"][1]["watches"][BY_SHORT_NAME["cds"]] == ["a", "b"]


async def test_adsz_of_one_proxy(ask: Ask) -> None:
    response = await ask("/debug/adsz?proxyID=cup-1")
    assert [client["connectionId"] for client in response["clients"]] == ["cup-1.mugs-4"]


async def test_push(ask: Ask, pages: Sources) -> None:
    assert await ask("/debug/adsz?push=true") == "Pushed to 2 servers\n"
    assert isinstance(pages.fleet, FakeFleet)
    assert pages.fleet.pushes == 1


async def test_connections(ask: Ask) -> None:
    response = await ask("/debug/connections")
    assert [sorted(client) for client in response["clients"]] == [["address", "connectedAt", "connectionId"]] * 2


async def test_connections_without_proxies(pages: Sources) -> None:
    async with (
        TestClient(TestServer(application(sources(pages.db)))) as client,
        client.get("/debug/connections") as response,
    ):
        assert await response.json() == {"totalClients": 0}


async def test_syncz(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["lds"]].last_error = "bad listener"  # type: ignore[misc]
    statuses = await ask("/debug/syncz")
    assert [entry["proxy"] for entry in statuses] == ["cup-1.mugs", "tea-1.shop"]
    tea = statuses[1]
    assert (tea["cluster_id"], tea["proxy_type"], tea["istio_version"]) == ("Kubernetes", "sidecar", "1.32.0")
    assert (tea["cluster_sent"], tea["cluster_acked"], tea["endpoint_acked"]) == ("n1", "n1", "n1")
    assert tea["resources"][BY_SHORT_NAME["lds"]] == {
        "sent": "n1",
        "acked": "n1",
        "sentTime": "2023-11-14T22:13:20.000000Z",
        "lastError": "bad listener",
    }
    assert [entry["proxy"] for entry in await ask("/debug/syncz?namespace=mugs")] == ["cup-1.mugs"]
