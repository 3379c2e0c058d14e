"""The debug application over HTTP, with a mesh in memory: the process and access."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest
import yarl
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug import answer_slots, reuse
from pilot.debug import application as application_module
from pilot.debug.application import application
from pilot.debug.page import Page, Query
from pilot.debug.pages.index import render_index
from pilot.debug.sources import Sources
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


async def test_client_that_disconnects_before_the_response_writes_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    started, gone = asyncio.Event(), asyncio.Event()

    async def slow(sources: Sources, query: Query) -> Any:
        started.set()
        await gone.wait()
        return ["x" * 100]

    page = Page("/debug/slow", "A slow page", slow)
    app = web.Application()
    app.router.add_get(page.path, application_module._page(sources(build_mesh()), page))
    runner = web.AppRunner(app)  # unlike a TestServer, it does not cancel the page
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _, writer = await asyncio.open_connection(*runner.addresses[0])
    writer.write(b"GET /debug/slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await started.wait()
    writer.transport.abort()
    await asyncio.sleep(0.05)
    gone.set()
    await asyncio.sleep(0.05)
    await runner.cleanup()
    assert [record.message for record in caplog.records if record.exc_info] == []


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


async def test_requests_at_the_same_time_share_the_index(
    client: TestClient[web.Request, web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = list[str]()

    def render(*args: Any) -> str:
        rendered.append(render_index(*args))
        return rendered[-1]

    monkeypatch.setattr(application_module, "render_index", render)
    monkeypatch.setattr(reuse, "REUSE", 1e9)
    monkeypatch.setattr(reuse, "MAX_REUSE", 1e9)
    answers = await asyncio.gather(*(refusal(client, "/debug") for _ in range(20)))
    assert answers == [(200, rendered[0])] * 20
    assert len(rendered) == 1


async def test_requests_of_a_tenant_beyond_the_limit_are_rejected_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def identify(*_: object) -> list[str]:
        return ["spiffe://cluster.local/ns/shop/sa/tea"]

    monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
    monkeypatch.setattr(answer_slots, "MAX_WAITING", 0)
    limited = sources(build_mesh(), identify=identify)
    async with TestClient(TestServer(application(limited))) as client:
        text = "more than 0 requests of the namespace wait for debug pages\n"
        assert await refusal(client, "/debug/ndsz") == (429, text)
        assert 'pilot_caller_limits_exceeded{limit="debug_answers"} 1\n' in limited.metrics.exposition().decode()


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


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "path", ["/", "/debug", "/debug/adsz?push=true", "/debug/dashboard/mesh", "/metrics", "/version"]
)
async def test_foreign_host_name_is_rejected_on_loopback(
    client: TestClient[web.Request, web.Application], method: str, path: str
) -> None:
    """A page of attacker.example can send such requests once its name resolves to 127.0.0.1."""
    async with client.request(method, path, headers={"Host": "attacker.example:15014"}) as response:
        assert (response.status, await response.text()) == (
            403,
            "forbidden Host: use an IP address, localhost or this machine's host name\n",
        )


@pytest.mark.parametrize("host", ["localhost:15014", "127.0.0.1", "[::1]:15014", "10.0.0.1:15014"])
async def test_own_host_name_is_accepted_on_loopback(
    client: TestClient[web.Request, web.Application], host: str
) -> None:
    async with client.get("/debug/syncz", headers={"Host": host}) as response:
        assert response.status == 200


async def test_remote_clients_may_use_the_name_of_the_service(
    client: TestClient[web.Request, web.Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
    async with client.get("/metrics", headers={"Host": "istiod.istio-system.svc:15014"}) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/debug/adsz?push=true", {}, 200),
        ("/debug/adsz?push=true", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("/debug/adsz?push=true", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/debug/adsz?push=true", {"Sec-Fetch-Site": "same-site"}, 403),
        ("/debug/cachez?clear=true", {"Origin": "http://attacker.example"}, 403),
        ("/debug/cachez?clear=true", {"Origin": "null"}, 403),
        ("/debug/adsz", {"Sec-Fetch-Site": "cross-site"}, 200),
    ],
)
async def test_pages_of_other_sites_change_nothing(
    client: TestClient[web.Request, web.Application], path: str, headers: dict[str, str], status: int
) -> None:
    async with client.get(path, headers=headers) as response:
        assert response.status == status


async def test_form_of_another_site_is_rejected(client: TestClient[web.Request, web.Application]) -> None:
    async with client.post("/debug/adsz", headers={"Origin": "http://attacker.example"}) as response:
        assert (response.status, await response.text()) == (403, "pages of other sites may not send this request\n")
