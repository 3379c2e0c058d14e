"""The TLS port of a control plane: certificates for tokens, and configuration for either."""

from __future__ import annotations

import asyncio
import datetime
import json
import pathlib
from collections.abc import Callable

import grpc
import pytest

from testing.clients.ads import Client
from testing.clients.secure_client import WEB as NODE
from testing.clients.secure_client import (
    ClientCertificate,
    SecureClient,
    create_certificate,
    enroll,
    secure_channel,
    uris,
)
from testing.control_planes.secure_plane import WEB, Plain, Running, denial, issue, running, served_certificate
from testing.security.certificates import DAY, rsa_key
from testing.security.certificates import root as foreign_root
from testing.security.tokens import claims, jwk, other_key, sign, token
from testing.servers.key_servers import key_server

pytestmark = pytest.mark.slow

BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])


@BOTH_VARIANTS
async def test_certificate_for_a_token_and_configuration_for_the_certificate(
    tmp_path: pathlib.Path, variant: str
) -> None:
    async with running(tmp_path) as env:
        credentials = await enroll(env.port, env.root, token("shop", "web"))
        assert uris(credentials.chain.decode()) == [WEB]
        async with SecureClient(env.port, env.root, credentials, variant=variant, SERVICE_ACCOUNT="web") as client:
            await client.request("cds")
            assert (await client.receive()).resources
            [connection] = env.plane.discovery.connections()
            assert (connection.proxy.identity, connection.address.startswith("127.0.0.1:")) == (WEB, True)


async def test_configuration_for_a_token(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env, SecureClient(env.port, env.root, token=token("shop", "web")) as client:
        await client.request("cds")
        assert (await client.receive()).resources
        assert [connection.proxy.identity for connection in env.plane.discovery.connections()] == [WEB]


async def test_unauthenticated_caller_is_refused(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env:
        async with SecureClient(env.port, env.root) as client:
            assert await client.end_status() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
        async with secure_channel(env.port, env.root) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await create_certificate(channel)
        assert (caught.value.code(), caught.value.details()) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "request authenticate failure",
        )


async def test_certificate_of_another_workload_is_refused(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env:
        expected = (grpc.StatusCode.UNAUTHENTICATED, "request impersonation authentication failure")
        assert (
            await denial(env, token("shop", "web"), impersonate="spiffe://cluster.local/ns/shop/sa/other") == expected
        )


async def test_pending_handshake_is_closed_at_shutdown(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env:
        reader, writer = await asyncio.open_connection("127.0.0.1", env.port)
        await served_certificate(env.port)  # the first connection is accepted by now
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_cve_2022_39388_loopback_caller_needs_credentials(
    tmp_path: pathlib.Path,
) -> None:
    async with (
        running(tmp_path, {"XDS_AUTH_PLAINTEXT": "true"}) as env,
        Client(Plain(env.plane.ports["xDS"].number), node_id=NODE) as client,
    ):
        assert await client.end_status() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")


@pytest.mark.parametrize(
    "credential",
    [
        token(exp=1),
        token(aud=["other"]),
        sign(claims(), other_key()),
        sign(claims(), kid="two"),
        token(sub="system:node:a"),
        "nonsense",
        "a" * 7000,
    ],
    ids=["expired", "audience", "signature", "unknown key", "no account", "no token", "long"],
)
async def test_invalid_token_is_refused(tmp_path: pathlib.Path, credential: str) -> None:
    async with running(tmp_path) as env:
        async with SecureClient(env.port, env.root, token=credential) as client:
            assert await client.end_status() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
        assert await denial(env, credential) == (grpc.StatusCode.UNAUTHENTICATED, "request authenticate failure")
        assert not env.plane.discovery.connections()


@pytest.mark.parametrize(
    ("credential", "metadata"),
    [
        (token("other", "web"), {}),
        (token("shop", "web"), {"SERVICE_ACCOUNT": "boss"}),
        (token("shop", "web"), {"NAMESPACE": "other"}),
    ],
)
async def test_proxy_must_match_its_authenticated_identity(
    tmp_path: pathlib.Path, credential: str, metadata: dict[str, str]
) -> None:
    async with running(tmp_path) as env, SecureClient(env.port, env.root, token=credential, **metadata) as client:
        assert await client.rejection() == (grpc.StatusCode.PERMISSION_DENIED, "authorization failed")


async def test_disabled_identity_check_leaves_the_identity_empty(tmp_path: pathlib.Path) -> None:
    environ = {"PILOT_ENABLE_XDS_IDENTITY_CHECK": "false"}
    async with (
        running(tmp_path, environ) as env,
        SecureClient(env.port, env.root, token=token("other", "web")) as client,
    ):
        await client.request("cds")
        await client.receive()
        assert [connection.proxy.identity for connection in env.plane.discovery.connections()] == [""]


async def test_disabled_authentication_allows_streams_but_no_certificates(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, {"XDS_AUTH": "false"}) as env, SecureClient(env.port, env.root) as client:
        await client.request("cds")
        await client.receive()
        assert (await denial(env, token()))[0] is grpc.StatusCode.UNAUTHENTICATED


INVALID_CERTIFICATES = [
    (lambda env: issue(foreign_root(5, now=datetime.datetime.now(datetime.UTC)), WEB), "unknown root"),
    (lambda env: env.client_certificate(now=datetime.datetime.now(datetime.UTC) - 2 * DAY), "expired"),
    (lambda env: env.client_certificate("spiffe://elsewhere/ns/shop/sa/web"), "other trust domain"),
    (lambda env: env.client_certificate(WEB, "spiffe://cluster.local/ns/shop/sa/other"), "two URIs"),
    (lambda env: env.client_certificate("web.shop.svc"), "no URI"),
]


@pytest.mark.parametrize(
    "make", [make for make, _ in INVALID_CERTIFICATES], ids=[name for _, name in INVALID_CERTIFICATES]
)
async def test_invalid_client_certificate_ends_the_connection(
    tmp_path: pathlib.Path, make: Callable[[Running], ClientCertificate]
) -> None:
    async with running(tmp_path) as env:
        for credentials, is_valid in (
            (make(env), False),
            (env.client_certificate(WEB), True),
            (env.client_certificate(WEB, "web.shop.svc", "10.0.0.7"), True),
        ):
            async with SecureClient(env.port, env.root, credentials, token=token("shop", "web")) as client:
                if is_valid:
                    await client.request("cds")
                    await client.receive()
                else:
                    assert (await client.end_status())[0] is grpc.StatusCode.UNAVAILABLE


async def test_trusted_gateway_forwards_the_client_certificate(tmp_path: pathlib.Path) -> None:
    for environ, is_trusted in (({}, False), ({"TRUSTED_GATEWAY_CIDR": "192.0.2.0/24"}, True)):
        async with running(tmp_path, environ) as env:
            if is_trusted:
                async with secure_channel(env.port, env.root) as channel:
                    assert uris((await create_certificate(channel, forwarded=f"By=gateway;URI={WEB}"))[0]) == [WEB]
            else:
                assert (await denial(env, forwarded=f"By=gateway;URI={WEB}"))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_issuer_tokens_grant_certificates_but_no_configuration(
    tmp_path: pathlib.Path,
) -> None:
    async with key_server() as server:
        server.answers["/keys"] = json.dumps({"keys": [jwk(rsa_key())]})
        server.answers["/.well-known/openid-configuration"] = json.dumps({"jwks_uri": server.url("/keys")})
        environ = {"TOKEN_ISSUER": server.url(""), "AUDIENCE": "certificates"}
        credential = token("shop", "web", iss=server.url(""), aud="certificates")
        async with running(tmp_path, environ, tokenKeys="") as env:
            async with secure_channel(env.port, env.root) as channel:
                assert uris((await create_certificate(channel, credential))[0]) == [WEB]
            assert (await denial(env, token("shop", "web", iss=server.url(""))))[0] is grpc.StatusCode.UNAUTHENTICATED
            async with SecureClient(env.port, env.root, token=credential) as client:
                assert await client.end_status() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")


async def test_plaintext_port_issues_certificates_without_a_tls_port(
    tmp_path: pathlib.Path,
) -> None:
    for environ, is_enabled in (({}, False), ({"XDS_AUTH_PLAINTEXT": "true"}, True)):
        async with running(tmp_path, environ, secureGRPCAddr="") as env, env.plain_channel() as channel:
            if is_enabled:
                assert uris((await create_certificate(channel, token("shop", "web")))[0]) == [WEB]
            else:
                with pytest.raises(grpc.aio.AioRpcError, match="request authenticate failure"):
                    await create_certificate(channel, token("shop", "web"))


@pytest.mark.parametrize("environ", [{"PILOT_CERT_PROVIDER": "none"}, {"ENABLE_CA_SERVER": "false"}])
async def test_port_without_a_certificate_does_not_listen(tmp_path: pathlib.Path, environ: dict[str, str]) -> None:
    async with running(tmp_path, environ) as env:
        assert env.port == 0
