"""Requests to an API server: headers, credentials, errors and delays."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import pathlib
import random
import socket
import types
import weakref
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pilot.kube import api_access
from pilot.kube import api_client as client_module
from pilot.kube.access import Access, TlsFiles
from pilot.kube.api_access import InCluster, Kubeconfig, KubeconfigFile
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
from pilot.kube.plain_credentials import read_access
from pilot.lib.backoff import Backoff, RetryDelays
from testing.security.certificates import root

Plain = dict[str, Any]

HTML = "404: the response is an HTML page, so it is not from a Kubernetes API server"


class MaxRandom(random.Random):
    """Random numbers that are always the maximum."""

    def uniform(self, _: float, maximum: float) -> float:
        return maximum


# -- delays ------------------------------------------------------------------------------------------------------------


def test_retry_delays_double_up_to_the_maximum_and_reset() -> None:
    attempts = RetryDelays(Backoff(), MaxRandom())
    assert [round(attempts.next_delay(), 1) for _ in range(9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert attempts.next_delay(31.0) == 31.0
    attempts.failures = 5000
    assert attempts.next_delay(29.0) == 30.0
    attempts.reset()
    assert (attempts.next_delay(), attempts.failures) == (0.2, 1)
    delays = [RetryDelays(Backoff(2.0, 30.0), random.Random(n)).next_delay() for n in range(100)]
    assert 1.0 <= min(delays) < 1.1 < 1.9 < max(delays) <= 2.0


@pytest.mark.parametrize(
    ("rate", "burst", "times", "expected"),
    [
        (0.0, 1, [0.0, 0.0], []),
        (2.0, 1, [0.0, 0.0, 0.0], [0.5, 0.5]),
        (2.0, 3, [0.0] * 5, [0.5, 0.5]),
        (2.0, 0, [0.0, 0.0], [0.5]),
        (2.0, 2, [0.0, 0.0, 10.0, 10.0, 10.0], [0.5]),
        (1.0, 1, [0.0, 0.25, 1.5, 4.0], [0.75, 0.5]),
    ],
)
async def test_throttle_delays(
    rate: float, burst: int, times: list[float], expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    now = 1000.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        delays.append(seconds)
        now += seconds

    loop = types.SimpleNamespace(time=lambda: now)
    double = types.SimpleNamespace(get_running_loop=lambda: loop, sleep=sleep, Lock=asyncio.Lock)
    monkeypatch.setattr(client_module, "asyncio", double)
    limit = Throttle(rate, burst)
    for offset in times:
        now = max(now, 1000.0 + offset)
        await limit.acquire()
    assert delays == pytest.approx(expected)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "body", "header", "kind", "text", "delay"),
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
        (502, b"\xff" + b"x" * 600, "", ApiError, f"502: \ufffd{'x' * 499}", 0.0),
        (502, b"\n<html>", "3", ApiError, HTML.replace("404", "502"), 3.0),
        (404, b"<!DOCTYPE HTML>", "", ApiError, HTML, 0.0),
        (404, b"404 page not found\n", "", NotFound, "404: 404 page not found", 0.0),
        (500, b"", "", ApiError, "500", 0.0),
    ],
)
def test_error_from_response(
    code: int, body: bytes, header: str, kind: type[ApiError], text: str, delay: float
) -> None:
    error = error_from_response(code, body, header)
    assert (type(error), str(error), error.code, error.retry_after) == (kind, text, code, delay)


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
def test_is_newer_compares_resource_versions(version: str, than: str, newer: bool) -> None:
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
async def test_kubeconfig_access(cluster: Plain, user: Plain, access: Access) -> None:
    assert await Kubeconfig(config(cluster, user)).load() == access


CERTIFICATES = {"client-certificate": "web.pem", "client-key-data": base64.b64encode(b"key").decode()}


async def test_files_of_a_kubeconfig_are_relative_to_it_and_data_are_in_files(tmp_path: pathlib.Path) -> None:
    for name in ("root.pem", "web.pem", "token"):
        (tmp_path / name).write_text(f"{name}\n")
    cluster = {"server": "https://a", "certificate-authority": "root.pem"}
    (tmp_path / "config").write_text(json.dumps(config(cluster, {**CERTIFICATES, "tokenFile": "token"})))
    access = await KubeconfigFile(f"{tmp_path}/config").load()
    assert access.tls is not None
    assert (access.authorization, access.tls.roots) == ("Bearer token", f"{tmp_path}/root.pem")
    assert access.tls.certificate == f"{tmp_path}/web.pem"
    assert access.tls.key is not None
    assert pathlib.Path(access.tls.key).read_bytes() == b"key"


CREDENTIALS = [
    ({"token": "t"}, False),
    (CERTIFICATES | {"client-certificate": __file__}, False),
    ({"username": "me", "password": "p"}, True),
    ({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}}, True),
    ({"client-certificate": "/none"}, True),
    ({"token": "t", "as": "other"}, True),
]


@pytest.mark.parametrize(("user", "is_needed"), CREDENTIALS)
def test_only_other_credentials_than_certificates_and_tokens_need_the_package(user: Plain, is_needed: bool) -> None:
    assert (read_access(config({"server": "https://a"}, user)) is None) == is_needed


async def test_a_pod_uses_its_service_account(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_access, "SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationError, match=r"^cannot use the service account of this Pod: .*No such file"):
        await InCluster().load()
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_text("root")
    assert await InCluster().load() == Access("https://[fd00::1]:443", "Bearer t", TlsFiles(f"{tmp_path}/ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "")
    with pytest.raises(ConfigurationError, match=r"KUBERNETES_SERVICE_PORT is not set$"):
        await InCluster().load()


async def test_invalid_kubeconfig_is_reported(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^the server of the kubeconfig is 'ftp://a'; it must begin with https:// or http://$"
    ):
        await Kubeconfig(config({"server": "ftp://a"}, {})).load()
    with pytest.raises(
        ConfigurationError,
        match=rf"^kubeconfig {tmp_path}/none: no such file; set --kubeconfig or KUBECONFIG to a file$",
    ):
        await KubeconfigFile(f"{tmp_path}/none").load()
    with pytest.raises(ConfigurationError, match=r"^cannot use the certificates in the kubeconfig: "):
        TlsFiles(roots=f"{tmp_path}/none").context()
    (tmp_path / "cert").write_bytes(root(1).roots_pem)
    (tmp_path / "key").write_text("")
    with pytest.raises(
        ConfigurationError, match=rf": client-key {tmp_path}/key is empty: it must contain a private key"
    ):
        TlsFiles(certificate=f"{tmp_path}/cert", key=f"{tmp_path}/key").context()


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        (b"hello", "", "not a kubeconfig: expected a mapping with a list of contexts"),
        (b"contexts: 1", "", "not a kubeconfig: expected a mapping with a list of contexts"),
        (b"\xff\x00", "", "not a text file in UTF-8"),
        (b"a: [\n", "", "not valid YAML, line 2: expected the node content, but found '<stream end>'"),
        (b"", "", "expected lists of clusters, contexts and users, and a current-context"),
        (b"contexts: [{name: dev}, {name: test}]", "prod", "no context 'prod'; contexts are: dev, test"),
        (
            b"{current-context: a, contexts: [{name: a, context: {cluster: b}}], clusters: [{name: a, cluster: {}}], users: []}",
            "",
            "the context 'a' names the cluster 'b', which is not in the list clusters; known: a",
        ),
        (b"contexts: []", "prod", "no context 'prod'; contexts are: none"),
        (
            b"{current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: 1}",
            "",
            "the context 'a' names the cluster 'a', and there is no list clusters",
        ),
    ],
)
async def test_invalid_kubeconfig_file_is_reported(
    content: bytes, context: str, message: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as raised:
        await KubeconfigFile(str(file), context).load()
    assert str(raised.value).replace(str(file), "FILE") == f"kubeconfig FILE: {message}"


@pytest.mark.parametrize("verify", [True, False])
def test_tls_verification_can_be_disabled(verify: bool) -> None:
    context = TlsFiles(verify=verify).context()
    assert (context.check_hostname, context.verify_mode != 0) == (verify, verify)


# -- requests ----------------------------------------------------------------------------------------------------------


class RotatingCredentials:
    """Credentials with a new token on every load."""

    def __init__(self, url: str, seconds: float = 1e9) -> None:
        self.loads, self._url, self.ttl = 0, url, seconds

    async def load(self) -> Access:
        self.loads += 1
        return Access(self._url, f"Bearer t{self.loads}")


class ScriptedServer:
    """A server that returns these responses in turn and repeats the last. `requests` has the headers of each request."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self._answers, self.requests, self.url = list(answers), list[dict[str, str]](), ""

    async def answer(self, request: web.Request) -> web.Response:
        headers = ("Accept", "Content-Type", "Authorization", "Accept-Encoding")
        self.requests.append(
            {
                "": f"{request.method} {request.path_qs}",
                **{name: request.headers[name] for name in headers if name in request.headers},
            }
        )
        assert request.headers["User-Agent"].startswith("pyistiod/")
        code, body = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return web.Response(status=code, body=body, headers={"Retry-After": "7"} if code == 429 else {})


@contextlib.asynccontextmanager
async def scripted_server(
    *answers: tuple[int, bytes], seconds: float = 1e9
) -> AsyncIterator[tuple[ScriptedServer, ApiClient, RotatingCredentials]]:
    server, app = ScriptedServer(*answers), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    credentials = RotatingCredentials(f"http://127.0.0.1:{runner.addresses[0][1]}", seconds)
    client = ApiClient(credentials, timeouts=RequestTimeouts(1.0, 1.0, 1.0))
    try:
        yield server, client, credentials
    finally:
        await client.close()
        await runner.cleanup()


async def test_request_headers_and_bodies() -> None:
    async with scripted_server((200, b"ok")) as (server, client, _):
        assert await client.call("GET", "/a", {"b": "c"}) == b"ok"
        assert await client.call("POST", "/a", body=b"{}") == b"ok"
        assert await client.call("PATCH", "/a", body=b"", content_type="x/y", accept="z/w") == b"ok"
    common = {"Accept": "application/json", "Authorization": "Bearer t1"}
    assert server.requests == [
        {"": "GET /a?b=c", **common},
        {"": "POST /a", **common, "Content-Type": "application/json"},
        {"": "PATCH /a", **common, "Accept": "z/w", "Content-Type": "x/y"},
    ]


async def test_unauthorized_response_reloads_credentials_once() -> None:
    async with scripted_server((200, b"one"), (401, b""), (200, b"two"), (401, b"")) as (server, client, credentials):
        assert await client.call("GET", "/a") == b"one"
        assert await client.call("GET", "/a") == b"two"
        with pytest.raises(ApiError) as error:
            await client.call("GET", "/a")
        assert (error.value.code, credentials.loads, len(server.requests)) == (401, 3, 5)
    assert [request["Authorization"] for request in server.requests] == [
        "Bearer t1",
        "Bearer t1",
        "Bearer t2",
        "Bearer t2",
        "Bearer t3",
    ]


@pytest.mark.parametrize("code", [300, 403, 429, 500])
async def test_other_errors_are_raised_immediately(code: int) -> None:
    async with scripted_server((code, b'{"reason": "No"}')) as (server, client, credentials):
        with pytest.raises(ApiError) as error:
            await client.call("GET", "/a")
        assert (error.value.code, error.value.retry_after) == (code, 7.0 if code == 429 else 0.0)
        assert (credentials.loads, len(server.requests)) == (1, 1)


async def test_expired_or_replaced_credentials_are_reloaded() -> None:
    async with scripted_server((200, b""), seconds=-1.0) as (_, client, credentials):
        await client.call("GET", "/a")
        await client.call("GET", "/a")
        assert credentials.loads == 2
        credentials.ttl = 1e9
        await client.call("GET", "/a")
        assert credentials.loads == 2
        await client.use_credentials(credentials)
        await client.call("GET", "/a")
        assert credentials.loads == 3


async def test_watch_lines_are_complete() -> None:
    async with scripted_server((200, b"a\nb\n\n")) as (_, client, _):
        assert [line async for lines in client.lines("/w", {}) for line in lines] == [b"a", b"b", b""]
    async with scripted_server((200, b"a\nb")) as (_, client, _):
        with pytest.raises(Unreachable, match=r"^/w: the response ended in the middle of a line$"):
            [lines async for lines in client.lines("/w", {})]


async def test_watch_that_is_cut_leaves_no_garbage_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[weakref.ref[aiohttp.ClientResponse]] = []
    start = aiohttp.ClientResponse.start

    async def record(response: aiohttp.ClientResponse, *arguments: Any) -> aiohttp.ClientResponse:
        responses.append(weakref.ref(response))
        return await start(response, *arguments)

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)  # the first line is read
        writer.transport.abort()

    monkeypatch.setattr(aiohttp.ClientResponse, "start", record)
    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    client = ApiClient(RotatingCredentials(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    gc.disable()
    try:
        with contextlib.suppress(Unreachable):
            async for _ in client.lines("/w", {}):
                pass
        await asyncio.sleep(0)
        assert [response() for response in responses] == [None]
    finally:
        gc.enable()
        await client.close()
        server.close()


async def test_unreachable_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = ApiClient(RotatingCredentials(f"http://127.0.0.1:{port}"))
    with pytest.raises(Unreachable, match=f"^cannot connect to the API server 127.0.0.1:{port}: Connection refused$"):
        await client.call("GET", "/a")
    await client.close()


async def test_port_forwarding_over_spdy_names_the_command_to_run() -> None:
    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(upgrade, "127.0.0.1", 0)
    client = ApiClient(RotatingCredentials(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    with pytest.raises(Unreachable, match="run kubectl port-forward, and pass the local address with --address"):
        async with client.websocket("/portforward", {}, "v4.channel.k8s.io"):
            pass
    await client.close()
    server.close()


def test_connections_use_tcp_keepalive() -> None:
    with client_module._create_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))) as connection:
        tcp = [
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert (connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), tcp, connection.getblocking()) == (
            1,
            [30, 10, 3],
            False,
        )


@pytest.mark.parametrize(
    ("error", "message"), [(TimeoutError(), "/api: no response in time"), (OSError("no route"), "/api: no route")]
)
def test_network_errors_have_a_message(error: Exception, message: str) -> None:
    with pytest.raises(Unreachable) as caught, _network_errors("/api"):
        raise error
    assert str(caught.value) == message
    original = Unreachable("as it is")
    with pytest.raises(Unreachable) as caught, _network_errors("/api"):
        raise original
    assert caught.value is original
