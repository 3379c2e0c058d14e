"""The pages of the monitoring port, over HTTP, on a mesh in memory: the process, who may look, and the fleet."""

from __future__ import annotations

import gzip

import pytest
import yarl
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug import application as application_module
from pilot.debug import index
from pilot.debug.application import application
from pilot.debug.pages import sections
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


async def test_metrics_compressed(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/metrics", headers={"Accept-Encoding": "deflate, gzip"}, auto_decompress=False) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"pilot_info{" in gzip.decompress(await response.read())


async def test_the_index_says_where_it_shows_a_part_of_the_proxies(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<p>The first" not in await ask("/debug")
    monkeypatch.setattr(index, "_SHOWN_PROXIES", 1)
    assert "<p>The first 1 of 2.</p>" in await ask("/debug")


async def test_the_index_names_every_page_and_proxy(ask: Ask) -> None:
    text = await ask("/debug")
    for page in (page for shown in sections(DebugSettings()).values() for page in shown):
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


async def test_pretty_is_indented_by_four(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/debug/resourcesz?pretty") as response:
        text = await response.text()
    assert text.startswith('[\n    {\n        "group": "",')
    async with client.get("/debug/resourcesz") as response:
        assert "\n" not in await response.text()


async def test_unknown_paths(client: TestClient[web.Request, web.Application]) -> None:
    assert await refusal(client, "/debug/nonsense") == (404, "404 page not found\n")
    assert await refusal(client, "/nonsense") == (404, "404 page not found\n")


@pytest.mark.parametrize(
    ("asked", "clean"),
    [
        ("//version", "/version"),
        ("/debug/./syncz", "/debug/syncz"),
        ("//example.com//a/../?b=c", "/example.com/?b=c"),
    ],
)
async def test_empty_and_dotted_steps_of_a_path_are_left_out(
    client: TestClient[web.Request, web.Application], asked: str, clean: str
) -> None:
    async with client.session.get(
        yarl.URL(f"{client.make_url('/')}".rstrip("/") + asked, encoded=True), allow_redirects=False
    ) as answer:
        assert (answer.status, answer.headers["Location"]) == (307, clean)


# -- who may look ----------------------------------------------------------------------------------------------------------


class Asking:
    def __init__(self, remote: str | None) -> None:
        self.remote = remote


@pytest.mark.parametrize(
    ("peer", "here"),
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
def test_who_is_on_this_machine(peer: str | None, here: bool) -> None:
    assert application_module.is_loopback(Asking(peer)) is here  # type: ignore[arg-type]


async def test_others_see_metrics_and_the_bare_index(
    client: TestClient[web.Request, web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
    assert await refusal(client, "/debug/adsz") == (401, "")
    status, text = await refusal(client, "/debug")
    assert status == 200
    assert "/debug/adsz" in text
    assert "tea-1.shop" not in text
    assert (await refusal(client, "/metrics"))[0] == 200


async def test_metrics_for_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = sources(build_mesh(), settings=DebugSettings(metrics_loopback_only=True))
    async with TestClient(TestServer(application(closed))) as client:
        assert (await refusal(client, "/metrics"))[0] == 200
        monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
        assert await refusal(client, "/metrics") == (403, "Only requests from localhost are allowed\n")


async def test_debug_can_be_off() -> None:
    async with TestClient(
        TestServer(application(sources(build_mesh(), settings=DebugSettings(pages=False))))
    ) as client:
        assert (await refusal(client, "/debug"))[0] == 404
        assert (await refusal(client, "/debug/adsz"))[0] == 404
        assert (await refusal(client, "/version"))[0] == 200


async def test_disconnecting_is_off_unless_asked_for(client: TestClient[web.Request, web.Application]) -> None:
    assert (await refusal(client, "/debug/force_disconnect?proxyID=tea"))[0] == 404
    unsafe = sources(build_mesh(), connection(), settings=DebugSettings(unsafe_admin=True))
    async with TestClient(TestServer(application(unsafe))) as other:
        assert await refusal(other, "/debug/force_disconnect?proxyID=tea") == (200, "OK")
        assert "force_disconnect" in (await refusal(other, "/debug/list"))[1]
    assert isinstance(unsafe.fleet, FakeFleet)
    assert unsafe.fleet.disconnected == ["tea-1.shop-3"]


# -- the fleet -------------------------------------------------------------------------------------------------------------


async def test_adsz(ask: Ask) -> None:
    found = await ask("/debug/adsz")
    assert found["totalClients"] == 2
    assert [client["connectionId"] for client in found["clients"]] == ["cup-1.mugs-4", "tea-1.shop-3"]
    tea = found["clients"][1]
    assert tea["connectedAt"] == "2023-11-14T22:13:20.000000Z"
    assert tea["address"] == "10.0.0.9:4444"
    assert tea["labels"] == {"app": "tea", "topology.istio.io/cluster": "Kubernetes"}
    assert tea["metadata"]["NAMESPACE"] == "shop"
    assert tea["watches"][BY_SHORT_NAME["cds"]] == []  # all of them: it names none


async def test_adsz_names_what_a_proxy_has_of_everything_where_it_is_sent_changes(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["cds"]].wildcard_names = ["b", "a"]  # type: ignore[misc]
    assert (await ask("/debug/adsz"))["clients"][1]["watches"][BY_SHORT_NAME["cds"]] == ["a", "b"]


async def test_adsz_of_one(ask: Ask) -> None:
    found = await ask("/debug/adsz?proxyID=cup-1")
    assert [client["connectionId"] for client in found["clients"]] == ["cup-1.mugs-4"]


async def test_push(ask: Ask, pages: Sources) -> None:
    assert await ask("/debug/adsz?push=true") == "Pushed to 2 servers\n"
    assert isinstance(pages.fleet, FakeFleet)
    assert pages.fleet.pushes == 1


async def test_connections(ask: Ask) -> None:
    found = await ask("/debug/connections")
    assert [sorted(client) for client in found["clients"]] == [["address", "connectedAt", "connectionId"]] * 2


async def test_nobody_is_connected(pages: Sources) -> None:
    async with (
        TestClient(TestServer(application(sources(pages.db)))) as client,
        client.get("/debug/connections") as response,
    ):
        assert await response.json() == {"totalClients": 0}


async def test_syncz(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["lds"]].last_error = "bad listener"  # type: ignore[misc]
    found = await ask("/debug/syncz")
    assert [entry["proxy"] for entry in found] == ["cup-1.mugs", "tea-1.shop"]
    tea = found[1]
    assert (tea["cluster_id"], tea["proxy_type"], tea["istio_version"]) == ("Kubernetes", "sidecar", "1.32.0")
    assert (tea["cluster_sent"], tea["cluster_acked"], tea["endpoint_acked"]) == ("n1", "n1", "n1")
    assert tea["resources"][BY_SHORT_NAME["lds"]] == {
        "sent": "n1",
        "acked": "n1",
        "sentTime": "2023-11-14T22:13:20.000000Z",
        "lastError": "bad listener",
    }
    assert [entry["proxy"] for entry in await ask("/debug/syncz?namespace=mugs")] == ["cup-1.mugs"]
