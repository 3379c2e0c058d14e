"""Requests to an API server: what is sent, what its refusals mean, and how long is waited."""

from __future__ import annotations

import contextlib
import pathlib
import random
import socket
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from pilot.kube import api_client as client_module
from pilot.kube.api_access import Access, Kubeconfig, KubeconfigFile, TlsFiles
from pilot.kube.api_client import ApiClient, RequestTimeouts, Throttle, _network_errors
from pilot.kube.api_errors import (
    ApiError,
    ConfigurationError,
    Conflict,
    Expired,
    NotFound,
    Unreachable,
    error_from_response,
)
from pilot.kube.list_watch import is_newer
from pilot.lib.backoff import Backoff, RetryDelays

Plain = dict[str, Any]


class Longest(random.Random):
    def uniform(self, _: float, most: float) -> float:
        return most


# -- waits -------------------------------------------------------------------------------------------------------------


def test_waits_double_up_to_the_longest_and_begin_anew() -> None:
    attempts = RetryDelays(Backoff(), Longest())
    assert [round(attempts.next_delay(), 1) for _ in range(9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert attempts.next_delay(31.0) == 31.0
    attempts.failures = 5000
    assert attempts.next_delay(29.0) == 30.0
    attempts.reset()
    assert (attempts.next_delay(), attempts.failures) == (0.2, 1)
    waits = [RetryDelays(Backoff(2.0, 30.0), random.Random(n)).next_delay() for n in range(100)]
    assert 1.0 <= min(waits) < 1.1 < 1.9 < max(waits) <= 2.0


@pytest.mark.parametrize(
    ("rate", "burst", "at", "waits"),
    [
        (0.0, 1, [0.0, 0.0], []),
        (2.0, 1, [0.0, 0.0, 0.0], [0.5, 0.5]),
        (2.0, 3, [0.0] * 5, [0.5, 0.5]),
        (2.0, 0, [0.0, 0.0], [0.5]),
        (2.0, 2, [0.0, 0.0, 10.0, 10.0, 10.0], [0.5]),
        (1.0, 1, [0.0, 0.25, 1.5, 4.0], [0.75, 0.5]),
    ],
)
async def test_a_limit_of_requests(
    rate: float, burst: int, at: list[float], waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    now = 1000.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    loop = types.SimpleNamespace(time=lambda: now)
    monkeypatch.setattr(client_module, "asyncio", types.SimpleNamespace(get_running_loop=lambda: loop, sleep=sleep))
    limit = Throttle(rate, burst)
    for when in at:
        now = max(now, 1000.0 + when)
        await limit.acquire()
    assert slept == pytest.approx(waits)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "body", "header", "kind", "text", "wait"),
    [
        (
            404,
            b'{"kind": "Status", "code": 0, "reason": "NotFound", "message": "no pods"}',
            "",
            NotFound,
            "404 NotFound: no pods",
            0.0,
        ),
        (409, b'{"reason": "AlreadyExists"}', "", Conflict, "409 AlreadyExists", 0.0),
        (410, b'{"code": 500, "reason": "Gone", "message": "too old"}', "", Expired, "410 Gone: too old", 0.0),
        (429, b'{"reason": "TooMany", "details": {"retryAfterSeconds": 3}}', "2", ApiError, "429 TooMany", 3.0),
        (429, b'{"reason": "TooMany", "details": {"retryAfterSeconds": 1}}', "2", ApiError, "429 TooMany", 2.0),
        (429, b'{"reason": "TooMany", "details": {}}', "Wed, 21 Oct 2015 07:28:00 GMT", ApiError, "429 TooMany", 0.0),
        (502, b"<html>\xff" + b"x" * 600, "", ApiError, f"502 : <html>\ufffd{'x' * 493}", 0.0),
        (500, b"", "", ApiError, "500 ", 0.0),
    ],
)
def test_what_an_answer_refuses(
    code: int, body: bytes, header: str, kind: type[ApiError], text: str, wait: float
) -> None:
    error = error_from_response(code, body, header)
    assert (type(error), str(error), error.code, error.retry_after) == (kind, text, code, wait)


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("9", "9", False),
        ("9", "", True),
        ("", "9", True),
        ("b", "a", True),
        ("a", "b", True),
        ("a", "a", False),
        ("10", "a", True),
        ("a", "10", True),
    ],
)
def test_which_version_is_newer(version: str, than: str, newer: bool) -> None:
    assert is_newer(version, than) is newer


# -- access ------------------------------------------------------------------------------------------------------------


def config(cluster: Plain, user: Plain) -> Plain:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }


@pytest.mark.parametrize(
    ("cluster", "user", "access"),
    [
        ({"server": "http://a:80/"}, {}, Access("http://a:80")),
        (
            {"server": "http://a", "proxy-url": "http://p:1"},
            {"token": "t"},
            Access("http://a", "Bearer t", proxy="http://p:1"),
        ),
        ({"server": "https://a"}, {"token": "t"}, Access("https://a", "Bearer t", TlsFiles())),
        (
            {"server": "https://a", "insecure-skip-tls-verify": True, "tls-server-name": "n"},
            {},
            Access("https://a", "", TlsFiles(server_name="n", verify=False)),
        ),
        (
            {"server": "https://a"},
            {"username": "me", "password": "p"},
            Access("https://a", "Basic bWU6cA==", TlsFiles()),
        ),
    ],
)
async def test_what_a_kubeconfig_says(cluster: Plain, user: Plain, access: Access) -> None:
    assert await Kubeconfig(config(cluster, user)).load() == access


async def test_what_a_kubeconfig_does_not_say(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^kubeconfig: 'ftp://a' is not the URL of a server$"):
        await Kubeconfig(config({"server": "ftp://a"}, {})).load()
    with pytest.raises(ConfigurationError, match=rf"^kubeconfig {tmp_path}/none: no such file$"):
        await KubeconfigFile(f"{tmp_path}/none").load()
    (tmp_path / "bad").write_text("contexts: 1")
    with pytest.raises(ConfigurationError, match=rf"^kubeconfig {tmp_path}/bad: "):
        await KubeconfigFile(f"{tmp_path}/bad").load()
    with pytest.raises(ConfigurationError, match=r"^cannot use the certificates of the kubeconfig: "):
        TlsFiles(roots=f"{tmp_path}/none").context()


@pytest.mark.parametrize("verify", [True, False])
def test_whether_a_servers_certificate_is_verified(verify: bool) -> None:
    context = TlsFiles(verify=verify).context()
    assert (context.check_hostname, context.verify_mode != 0) == (verify, verify)


# -- requests ----------------------------------------------------------------------------------------------------------


class Renewed:
    """Credentials whose token is another one each time."""

    def __init__(self, url: str, seconds: float = 1e9) -> None:
        self.loads, self._url, self.ttl = 0, url, seconds

    async def load(self) -> Access:
        self.loads += 1
        return Access(self._url, f"Bearer t{self.loads}")


class Answering:
    """A server that gives these answers in turn, the last of them again and again. `asked` has the heads of the requests."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self._answers, self.asked, self.url = list(answers), list[dict[str, str]](), ""

    async def answer(self, request: web.Request) -> web.Response:
        wanted = ("Accept", "Content-Type", "Authorization", "Accept-Encoding")
        self.asked.append(
            {
                "": f"{request.method} {request.path_qs}",
                **{name: request.headers[name] for name in wanted if name in request.headers},
            }
        )
        assert request.headers["User-Agent"].startswith("pyistiod/")
        code, body = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return web.Response(status=code, body=body, headers={"Retry-After": "7"} if code == 429 else {})


@contextlib.asynccontextmanager
async def answering(
    *answers: tuple[int, bytes], seconds: float = 1e9
) -> AsyncIterator[tuple[Answering, ApiClient, Renewed]]:
    server, app = Answering(*answers), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    credentials = Renewed(f"http://127.0.0.1:{runner.addresses[0][1]}", seconds)
    client = ApiClient(credentials, timeouts=RequestTimeouts(1.0, 1.0, 1.0))
    try:
        yield server, client, credentials
    finally:
        await client.close()
        await runner.cleanup()


async def test_what_is_sent() -> None:
    async with answering((200, b"ok")) as (server, client, _):
        assert await client.call("GET", "/a", {"b": "c"}) == b"ok"
        assert await client.call("POST", "/a", body=b"{}") == b"ok"
        assert await client.call("PATCH", "/a", body=b"", content_type="x/y", accept="z/w") == b"ok"
    same = {"Accept": "application/json", "Authorization": "Bearer t1"}
    assert server.asked == [
        {"": "GET /a?b=c", **same},
        {"": "POST /a", **same, "Content-Type": "application/json"},
        {"": "PATCH /a", **same, "Accept": "z/w", "Content-Type": "x/y"},
    ]


async def test_who_is_not_known_any_more_reads_credentials_again_once() -> None:
    async with answering((200, b"one"), (401, b""), (200, b"two"), (401, b"")) as (server, client, credentials):
        assert await client.call("GET", "/a") == b"one"
        assert await client.call("GET", "/a") == b"two"
        with pytest.raises(ApiError) as refused:
            await client.call("GET", "/a")
        assert (refused.value.code, credentials.loads, len(server.asked)) == (401, 3, 5)
    assert [one["Authorization"] for one in server.asked] == [
        "Bearer t1",
        "Bearer t1",
        "Bearer t2",
        "Bearer t2",
        "Bearer t3",
    ]


@pytest.mark.parametrize("code", [300, 403, 429, 500])
async def test_another_refusal_is_told_at_once(code: int) -> None:
    async with answering((code, b'{"reason": "No"}')) as (server, client, credentials):
        with pytest.raises(ApiError) as refused:
            await client.call("GET", "/a")
        assert (refused.value.code, refused.value.retry_after) == (code, 7.0 if code == 429 else 0.0)
        assert (credentials.loads, len(server.asked)) == (1, 1)


async def test_credentials_are_read_again_when_they_are_old_and_when_there_are_others() -> None:
    async with answering((200, b""), seconds=-1.0) as (_, client, credentials):
        await client.call("GET", "/a")
        await client.call("GET", "/a")
        assert credentials.loads == 2
        credentials.ttl = 1e9
        await client.call("GET", "/a")
        assert credentials.loads == 2
        await client.use_credentials(credentials)
        await client.call("GET", "/a")
        assert credentials.loads == 3


async def test_lines_come_whole() -> None:
    async with answering((200, b"a\nb\n\n")) as (_, client, _):
        assert [line async for lines in client.lines("/w", {}) for line in lines] == [b"a", b"b", b""]
    async with answering((200, b"a\nb")) as (_, client, _):
        with pytest.raises(Unreachable, match=r"^/w: the response ended within a line$"):
            [lines async for lines in client.lines("/w", {})]


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = ApiClient(Renewed(f"http://127.0.0.1:{port}"))
    with pytest.raises(Unreachable, match=f"^/a: Cannot connect to host 127.0.0.1:{port} "):
        await client.call("GET", "/a")
    await client.close()


def test_connections_notice_when_their_peer_is_gone() -> None:
    with client_module._create_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))) as made:
        tcp = [
            made.getsockopt(socket.IPPROTO_TCP, o)
            for o in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert (made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), tcp, made.getblocking()) == (
            1,
            [30, 10, 3],
            False,
        )


@pytest.mark.parametrize(
    ("error", "told"), [(TimeoutError(), "/api: TimeoutError"), (OSError("no route"), "/api: no route")]
)
def test_what_the_network_does_is_told_also_where_it_has_no_words(error: Exception, told: str) -> None:
    with pytest.raises(Unreachable) as caught, _network_errors("/api"):
        raise error
    assert str(caught.value) == told
    gone = Unreachable("as it is")
    with pytest.raises(Unreachable) as caught, _network_errors("/api"):
        raise gone
    assert caught.value is gone
