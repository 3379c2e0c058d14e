"""The token of a virtual machine of Google Compute Engine, from a metadata server."""

from __future__ import annotations

import asyncio
import pathlib
import stat
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.certificates.platform_token import CHECK_SECONDS, PlatformToken, platform_token
from pilot.settings.parse import load_sections
from testing.security.tokens import token

PATH = "/computeMetadata/v1/instance/service-accounts/default/identity"


class MetadataServer:
    """A metadata server. `body` is its response, with `headers`. `requests` are the query strings that it received."""

    def __init__(self) -> None:
        self.body, self.headers, self.requests = "", {"Metadata-Flavor": "Google"}, list[str]()
        self.host = ""

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google" or request.path != PATH:
            return web.Response(status=403)
        self.requests.append(request.query_string)
        return web.Response(text=self.body, headers=self.headers)


@pytest.fixture
async def server() -> AsyncIterator[MetadataServer]:
    server = MetadataServer()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.host = f"127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


def machine_token(server: MetadataServer, path: pathlib.Path) -> PlatformToken:
    environ = {
        "CREDENTIAL_FETCHER_TYPE": "GoogleComputeEngine",
        "GCE_METADATA_HOST": server.host,
        "TRUST_DOMAIN": "example.com",
        "ISTIO_TOKEN_FILE": str(path),
    }
    result = platform_token(load_sections(AgentSettings(), [], environ).settings)
    assert result is not None
    return result


async def test_token_of_the_machine_is_written_to_the_token_file(
    server: MetadataServer, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "tokens" / "istio-token"
    server.body = token(exp=2000)
    await machine_token(server, path).refresh()
    assert path.read_text() == server.body
    assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0
    assert server.requests == ["audience=example.com&format=full"]


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        ("hello", {"Metadata-Flavor": "Google"}, "the response is not a token"),
        ("", {}, "the response is not from a metadata server: status 200"),
    ],
)
async def test_other_responses_leave_the_file_as_it_is(
    server: MetadataServer,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    body: str,
    headers: dict[str, str],
    reason: str,
) -> None:
    path = tmp_path / "istio-token"
    path.write_text("old")
    server.body, server.headers = body, headers
    await machine_token(server, path).refresh()
    assert path.read_text() == "old"
    assert reason in caplog.text


async def test_token_is_replaced_before_it_expires(server: MetadataServer, tmp_path: pathlib.Path) -> None:
    path, now, checks = tmp_path / "istio-token", [10_000.0], list[str]()
    path.write_text(token(exp=12_000))
    server.body = token(exp=20_000)

    async def sleep(seconds: float) -> None:
        checks.append("new" if path.read_text() == server.body else "old")
        if now[0] > 12_000:
            raise asyncio.CancelledError
        now[0] += seconds

    with pytest.raises(asyncio.CancelledError):
        await machine_token(server, path).keep_fresh(lambda: now[0], sleep)
    assert CHECK_SECONDS == 300
    assert checks == ["old", "old", *["new"] * 6]  # 1500 s before it expires
    assert len(server.requests) == 1


def test_only_known_sources_are_accepted() -> None:
    def source(text: str) -> PlatformToken | None:
        return platform_token(load_sections(AgentSettings(), [], {"CREDENTIAL_FETCHER_TYPE": text}).settings)

    assert source("JWT") is None
    with pytest.raises(ValueError, match="variable CREDENTIAL_FETCHER_TYPE: 'Azure' is neither JWT nor"):
        source("Azure")
