"""The port with TLS of a whole control plane: certificates for tokens, configuration for both, nothing for anybody else."""

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
from testing.clients.secure_client import SecureClient, Shown, create_certificate, enroll, secure_channel, uris
from testing.control_planes.secure_plane import WEB, Plain, Running, denied, issue, running, served_certificate
from testing.security.certificates import DAY, rsa_key
from testing.security.certificates import root as other_root
from testing.security.tokens import claims, jwk, other_key, sign, token
from testing.servers.key_servers import key_server

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])


@BOTH
async def test_a_workload_gets_its_certificate_for_a_token_and_configuration_for_the_certificate(
    tmp_path: pathlib.Path, variant: str
) -> None:
    async with running(tmp_path) as it:
        shown = await enroll(it.port, it.root, token("shop", "web"))
        assert uris(shown.chain.decode()) == [WEB]
        async with SecureClient(it.port, it.root, shown, variant=variant, SERVICE_ACCOUNT="web") as client:
            await client.ask("cds")
            assert (await client.take()).resources
            [connection] = it.plane.discovery.connections()
            assert (connection.proxy.identity, connection.address.startswith("127.0.0.1:")) == (WEB, True)


async def test_a_token_alone_is_enough_for_configuration(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it, SecureClient(it.port, it.root, token=token("shop", "web")) as client:
        await client.ask("cds")
        assert (await client.take()).resources
        assert [connection.proxy.identity for connection in it.plane.discovery.connections()] == [WEB]


async def test_who_proves_nothing_is_refused(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it:
        async with SecureClient(it.port, it.root) as client:
            assert await client.refused() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
        async with secure_channel(it.port, it.root) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await create_certificate(channel)
        assert (caught.value.code(), caught.value.details()) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "request authenticate failure",
        )


async def test_a_workload_gets_no_certificate_of_another(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it:
        told = (grpc.StatusCode.UNAUTHENTICATED, "request impersonation authentication failure")
        assert await denied(it, token("shop", "web"), instead_of="spiffe://cluster.local/ns/shop/sa/other") == told


async def test_who_has_not_ended_a_handshake_is_cut_off_at_the_end(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        await served_certificate(it.port)  # those before it are known, too
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_cve_2022_39388_a_caller_from_the_same_machine_is_nobody_without_credentials(
    tmp_path: pathlib.Path,
) -> None:
    async with (
        running(tmp_path, {"XDS_AUTH_PLAINTEXT": "true"}) as it,
        Client(Plain(it.plane.ports["xDS"].number), node_id=NODE) as client,
    ):
        assert await client.refused() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")


@pytest.mark.parametrize(
    "made",
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
async def test_a_token_that_is_not_valid_is_no_identity(tmp_path: pathlib.Path, made: str) -> None:
    async with running(tmp_path) as it:
        async with SecureClient(it.port, it.root, token=made) as client:
            assert await client.refused() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
        assert await denied(it, made) == (grpc.StatusCode.UNAUTHENTICATED, "request authenticate failure")
        assert not it.plane.discovery.connections()


@pytest.mark.parametrize(
    ("made", "metadata"),
    [
        (token("other", "web"), {}),
        (token("shop", "web"), {"SERVICE_ACCOUNT": "boss"}),
        (token("shop", "web"), {"NAMESPACE": "other"}),
    ],
)
async def test_a_proxy_is_of_the_namespace_and_account_that_is_proved(
    tmp_path: pathlib.Path, made: str, metadata: dict[str, str]
) -> None:
    async with running(tmp_path) as it, SecureClient(it.port, it.root, token=made, **metadata) as client:
        assert await client.refused() == (grpc.StatusCode.PERMISSION_DENIED, "authorization failed")


async def test_without_the_check_of_identities_a_proxy_has_none(tmp_path: pathlib.Path) -> None:
    environ = {"PILOT_ENABLE_XDS_IDENTITY_CHECK": "false"}
    async with running(tmp_path, environ) as it, SecureClient(it.port, it.root, token=token("other", "web")) as client:
        await client.ask("cds")
        await client.take()
        assert [connection.proxy.identity for connection in it.plane.discovery.connections()] == [""]


async def test_without_authentication_anybody_connects_and_nobody_gets_a_certificate(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, {"XDS_AUTH": "false"}) as it, SecureClient(it.port, it.root) as client:
        await client.ask("cds")
        await client.take()
        assert (await denied(it, token()))[0] is grpc.StatusCode.UNAUTHENTICATED


FOREIGN = [
    (lambda it: issue(other_root(5, now=datetime.datetime.now(datetime.UTC)), WEB), "a root that is not ours"),
    (lambda it: it.shown(now=datetime.datetime.now(datetime.UTC) - 2 * DAY), "expired"),
    (lambda it: it.shown("spiffe://elsewhere/ns/shop/sa/web"), "another trust domain"),
    (lambda it: it.shown(WEB, "spiffe://cluster.local/ns/shop/sa/other"), "two URIs"),
    (lambda it: it.shown("web.shop.svc"), "no URI"),
]


@pytest.mark.parametrize("make", [make for make, _ in FOREIGN], ids=[name for _, name in FOREIGN])
async def test_a_connection_with_a_certificate_that_is_not_the_meshs_ends_even_with_a_token(
    tmp_path: pathlib.Path, make: Callable[[Running], Shown]
) -> None:
    async with running(tmp_path) as it:
        for shown, works in (
            (make(it), False),
            (it.shown(WEB), True),
            (it.shown(WEB, "web.shop.svc", "10.0.0.7"), True),
        ):
            async with SecureClient(it.port, it.root, shown, token=token("shop", "web")) as client:
                if works:
                    await client.ask("cds")
                    await client.take()
                else:
                    assert (await client.refused())[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_gateway_that_is_trusted_says_whose_certificate_it_has_seen(tmp_path: pathlib.Path) -> None:
    for environ, works in (({}, False), ({"TRUSTED_GATEWAY_CIDR": "192.0.2.0/24"}, True)):
        async with running(tmp_path, environ) as it:
            if works:
                async with secure_channel(it.port, it.root) as channel:
                    assert uris((await create_certificate(channel, forwarded=f"By=gateway;URI={WEB}"))[0]) == [WEB]
            else:
                assert (await denied(it, forwarded=f"By=gateway;URI={WEB}"))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_without_kubernetes_tokens_of_an_issuer_are_enough_for_a_certificate_and_not_for_configuration(
    tmp_path: pathlib.Path,
) -> None:
    async with key_server() as server:
        server.answers["/keys"] = json.dumps({"keys": [jwk(rsa_key())]})
        server.answers["/.well-known/openid-configuration"] = json.dumps({"jwks_uri": server.url("/keys")})
        environ = {"TOKEN_ISSUER": server.url(""), "AUDIENCE": "certificates"}
        made = token("shop", "web", iss=server.url(""), aud="certificates")
        async with running(tmp_path, environ, tokenKeys="") as it:
            async with secure_channel(it.port, it.root) as channel:
                assert uris((await create_certificate(channel, made))[0]) == [WEB]
            assert (await denied(it, token("shop", "web", iss=server.url(""))))[0] is grpc.StatusCode.UNAUTHENTICATED
            async with SecureClient(it.port, it.root, token=made) as client:
                assert await client.refused() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")


async def test_without_an_address_for_tls_the_other_port_issues_certificates_to_those_it_identifies(
    tmp_path: pathlib.Path,
) -> None:
    for environ, works in (({}, False), ({"XDS_AUTH_PLAINTEXT": "true"}, True)):
        async with running(tmp_path, environ, secureGRPCAddr="") as it, it.plain_channel() as channel:
            if works:
                assert uris((await create_certificate(channel, token("shop", "web")))[0]) == [WEB]
            else:
                with pytest.raises(grpc.aio.AioRpcError, match="request authenticate failure"):
                    await create_certificate(channel, token("shop", "web"))


@pytest.mark.parametrize("environ", [{"PILOT_CERT_PROVIDER": "none"}, {"ENABLE_CA_SERVER": "false"}])
async def test_where_nobody_issues_its_certificate_the_port_does_not_listen(
    tmp_path: pathlib.Path, environ: dict[str, str]
) -> None:
    async with running(tmp_path, environ) as it:
        assert it.port == 0
