"""Fetching of JWT key sets, and addresses that are never contacted."""

from __future__ import annotations

import asyncio
import json
import pathlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from pilot.config.security.request_authentication import JwksKey
from pilot.ingest.jwks.client import DISCOVERY, JwksClient, KeySetError, make_tls
from pilot.lib.address_rules import AddressRules, BlockedAddress
from testing.security.credentials import Authority
from testing.servers.key_servers import KeyServer, key_server

KEYS = json.dumps({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]})
TIMEOUT = 10.0


@pytest.fixture
async def server() -> AsyncIterator[KeyServer]:
    async with key_server() as key_server_instance:
        key_server_instance.answers["/keys"] = KEYS
        yield key_server_instance


async def fetch(
    key: JwksKey, allowed: tuple[str, ...] = ("127.0.0.1/32",), blocked: tuple[str, ...] = (), largest: int = 10_000
) -> str:
    client = JwksClient(AddressRules(allowed, blocked), ssl.create_default_context(), largest)
    try:
        return await client.fetch(key, TIMEOUT)
    finally:
        await client.close()


async def fetch_error(key: JwksKey, **options: Any) -> str:
    """Return the reason of a failed fetch."""
    with pytest.raises(KeySetError) as caught:
        await fetch(key, **options)
    return str(caught.value)


def jwks_key(uri: str) -> JwksKey:
    return JwksKey("", uri)


async def test_key_set_is_fetched_verbatim(server: KeyServer) -> None:
    assert await fetch(jwks_key(server.url("/keys"))) == KEYS


async def test_jwks_uri_is_discovered_from_the_issuer(server: KeyServer) -> None:
    server.answers[DISCOVERY] = json.dumps({"jwks_uri": server.url("/keys")})
    assert await fetch(JwksKey(server.url("/"), "")) == KEYS
    assert server.requested_paths == [DISCOVERY, "/keys"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_limited(server: KeyServer, status: int) -> None:
    server.answers["/moved"] = web.Response(status=status, headers={"Location": "/keys"})
    server.answers["/loop"] = web.Response(status=status, headers={"Location": "/loop"})
    assert await fetch(jwks_key(server.url("/moved"))) == KEYS
    assert "redirects" in await fetch_error(jwks_key(server.url("/loop")))
    assert len(server.requested_paths) < 10


ADDRESSES = [
    ("127.0.0.1", False),
    ("10.0.0.1", False),
    ("192.168.1.1", False),
    ("172.16.0.1", False),
    ("100.64.0.1", False),
    ("100.100.100.200", False),
    ("169.254.169.254", False),
    ("0.0.0.0", False),
    ("224.0.0.1", False),
    ("::1", False),
    ("fe80::1%eth0", False),
    ("fd00:ec2::254", False),
    ("::ffff:10.0.0.1", False),
    ("::ffff:169.254.169.254", False),
    ("64:ff9b::a00:1", False),
    ("2002:a00:1::", False),
    ("ff02::1", False),
    ("8.8.8.8", True),
    ("2606:4700::1111", True),
    ("::ffff:8.8.8.8", True),
]


@pytest.mark.parametrize(("address", "public"), ADDRESSES)
def test_cve_2026_41413_only_public_addresses_are_permitted(address: str, public: bool) -> None:
    if public:
        AddressRules().check(address)
        return
    with pytest.raises(BlockedAddress):
        AddressRules().check(address)


def test_cve_2026_41413_private_but_not_link_local_may_be_allowed() -> None:
    rules = AddressRules(("10.0.0.0/8", "169.254.0.0/16"), ("10.9.0.0/16", "8.8.0.0/16"))
    rules.check("10.1.0.1")
    rules.check("::ffff:10.1.0.1")
    for address in ("169.254.169.254", "10.9.1.1", "8.8.8.8", "192.168.0.1"):
        with pytest.raises(BlockedAddress):
            rules.check(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433"])
async def test_cve_2026_41413_every_form_of_a_private_address_is_blocked(server: KeyServer, host: str) -> None:
    """Release note jwks-ssrf-default-block."""
    await fetch_error(jwks_key(server.url("/keys", host)), allowed=())
    assert server.requested_paths == []


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://[::1]/", "http://127.0.0.2:{port}/keys"],
)
async def test_cve_2026_41413_redirect_to_a_private_address_is_blocked(server: KeyServer, target: str) -> None:
    async with key_server("127.0.0.2") as inner:
        inner.answers["/keys"] = KEYS
        server.answers["/moved"] = web.Response(status=302, headers={"Location": target.format(port=inner.port)})
        assert (
            "not a public address" in (reason := await fetch_error(jwks_key(server.url("/moved"))))
            or "link-local" in reason
        )
        assert inner.requested_paths == []


async def test_cve_2026_41413_dns_rebinding_is_blocked(server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection is checked by its address, not by an earlier resolution of the name."""
    answers = iter(["127.0.0.1", "127.0.0.2"])

    def resolve(host: str, port: int, *_: Any) -> list[Any]:
        return [(2, 1, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    client = JwksClient(AddressRules(("127.0.0.1/32",)), ssl.create_default_context(), 10_000)
    try:
        assert await client.fetch(jwks_key(server.url("/keys", "rebind.example.com")), TIMEOUT) == KEYS
        with pytest.raises(KeySetError, match=r"127\.0\.0\.2"):
            await client.fetch(jwks_key(server.url("/keys", "rebind.example.com")), TIMEOUT)
    finally:
        await client.close()


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "ftp://a.b/", "gopher://a", "http://", "keys"])
async def test_only_http_and_https_urls_are_fetched(uri: str) -> None:
    assert "not an http or https URL" in await fetch_error(jwks_key(uri))


DEEP = "[" * 9_000
BODIES = [DEEP, "", "{}", "[]", '{"keys": []}', '{"keys": [{"kty": "RSA"}]}', "secret=1", "\udcff"]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:12])
async def test_invalid_key_set_is_rejected_without_quoting_it(server: KeyServer, body: str) -> None:
    """Otherwise the content at any URL could be read from proxy configuration or from the problem."""
    server.answers["/bad"] = web.Response(body=body.encode(errors="surrogateescape"))
    reason = await fetch_error(jwks_key(server.url("/bad")))
    assert "secret" not in reason


async def test_istio_security_2026_006_large_response_is_rejected(server: KeyServer) -> None:
    server.answers["/large"] = KEYS + " " * 20_000
    assert "larger than 10000 bytes" in await fetch_error(jwks_key(server.url("/large")))


async def test_error_status_is_reported(server: KeyServer) -> None:
    assert await fetch_error(jwks_key(server.url("/nothing"))) == "the server returned status 404"


async def test_issuer_without_jwks_uri_is_reported(server: KeyServer) -> None:
    for body in ("[]", DEEP):
        server.answers[DISCOVERY] = body
        assert "has no jwks_uri" in await fetch_error(JwksKey(server.url(""), ""))


async def test_blocked_ranges_override_allowed_ones(server: KeyServer) -> None:
    assert "blocked" in await fetch_error(jwks_key(server.url("/keys")), blocked=("127.0.0.0/8",))


@pytest.mark.parametrize(
    ("trusted", "insecure", "accepted"), [(False, False, False), (True, False, True), (False, True, True)]
)
async def test_server_certificate_is_verified(
    tmp_path: pathlib.Path, trusted: bool, insecure: bool, accepted: bool
) -> None:
    authority = Authority()
    certificate = authority.issue("localhost")
    for name, data in (
        ("roots.pem", authority.pem),
        ("crt.pem", certificate.chain),
        ("key.pem", certificate.private_key),
    ):
        (tmp_path / name).write_bytes(data)
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(tmp_path / "crt.pem", tmp_path / "key.pem")
    client_tls = make_tls(str(tmp_path / "roots.pem") if trusted else "", insecure)
    async with key_server(tls=server_tls) as secure:
        secure.answers["/keys"] = KEYS
        client = JwksClient(AddressRules(("127.0.0.1/32",)), client_tls, 10_000)
        key = jwks_key(secure.url("/keys", "localhost").replace("http:", "https:"))
        try:
            if accepted:
                assert await client.fetch(key, TIMEOUT) == KEYS
            else:
                with pytest.raises(KeySetError, match="certificate"):
                    await client.fetch(key, TIMEOUT)
        finally:
            await client.close()
        assert secure.requested_paths == (["/keys"] if accepted else [])


async def test_redirect_from_https_to_http_is_blocked(tmp_path: pathlib.Path, server: KeyServer) -> None:
    certificate = Authority().issue("localhost")
    (tmp_path / "crt.pem").write_bytes(certificate.chain + certificate.private_key)
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(tmp_path / "crt.pem")
    async with key_server(tls=server_tls) as secure:
        secure.answers["/moved"] = web.Response(status=302, headers={"Location": server.url("/keys")})
        client = JwksClient(AddressRules(("127.0.0.1/32",)), make_tls("", True), 10_000)
        try:
            with pytest.raises(KeySetError, match="from https"):
                await client.fetch(jwks_key(secure.url("/moved").replace("http:", "https:")), TIMEOUT)
        finally:
            await client.close()
        assert server.requested_paths == []


def test_missing_roots_file_is_ignored() -> None:
    assert make_tls("/nowhere/extra.pem", False).verify_mode is ssl.CERT_REQUIRED
    assert make_tls("", True).verify_mode is ssl.CERT_NONE


async def test_silent_name_servers_do_not_occupy_the_threads_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    released, lookups = threading.Event(), list[str]()

    def resolve(host: str, *_: Any) -> list[Any]:
        lookups.append(host)
        released.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    client = JwksClient(AddressRules(()), ssl.create_default_context(), 10_000)
    fetches = [client.fetch(jwks_key(f"https://{n}.example.com/keys"), 0.5) for n in range(40)]
    try:
        results = await asyncio.gather(*fetches, return_exceptions=True)
        assert {str(result) for result in results} == {"no response within 0.5 s"}
        assert len(lookups) == 40
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        released.set()
        await client.close()
