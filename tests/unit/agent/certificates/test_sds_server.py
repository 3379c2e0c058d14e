"""The SDS server and its streams."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
from typing import Any

import grpc
import pytest
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2

from pilot.agent.certificates.sds_server import MAX_NAMES, SECRET, SecretDiscoveryService, SecretStream
from pilot.agent.certificates.secret_cache import SecretCache
from pilot.agent.certificates.workload_certificate import WorkloadCertificate
from pilot.agent.unix_sockets import build_server, serve
from testing.clients.ads import open_channel

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
METHOD = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets"


def certificate(number: int) -> WorkloadCertificate:
    return WorkloadCertificate(b"chain %d" % number, b"key %d" % number, b"roots", NOW, NOW)


def make_request(*names: str, nonce: str = "", error: str = "") -> discovery_pb2.DiscoveryRequest:
    request = discovery_pb2.DiscoveryRequest(resource_names=names, response_nonce=nonce, type_url=SECRET)
    if error:
        request.error_detail.CopyFrom(status_pb2.Status(message=error))
    return request


def parse_response(raw: bytes | None) -> tuple[str, dict[str, secret_pb2.Secret]]:
    assert raw is not None
    response = discovery_pb2.DiscoveryResponse.FromString(raw)
    assert response.type_url == SECRET
    secrets = [secret_pb2.Secret.FromString(resource.value) for resource in response.resources]
    return response.nonce, {secret.name: secret for secret in secrets}


def test_secret_is_sent_when_available_and_when_changed() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    stream.receive(make_request("default"))
    assert stream.next_response() is None
    secrets.put_certificate(certificate(1))
    nonce, secrets_by_name = parse_response(stream.next_response())
    assert secrets_by_name["default"].tls_certificate.certificate_chain.inline_bytes == b"chain 1"
    assert secrets_by_name["default"].tls_certificate.private_key.inline_bytes == b"key 1"
    stream.receive(make_request("default", nonce=nonce))
    assert stream.next_response() is None
    secrets.put_certificate(certificate(2))
    assert (
        parse_response(stream.next_response())[1]["default"].tls_certificate.certificate_chain.inline_bytes
        == b"chain 2"
    )


def test_unchanged_roots_are_not_resent() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    stream.receive(make_request("ROOTCA"))
    secrets.put_certificate(certificate(1))
    assert parse_response(stream.next_response())[1]["ROOTCA"].validation_context.trusted_ca.inline_bytes == b"roots"
    secrets.put_certificate(certificate(2))
    assert stream.next_response() is None


def test_rejected_secret_is_not_resent_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    secrets.put_certificate(certificate(1))
    stream.receive(make_request("default", "ROOTCA"))
    nonce, _ = parse_response(stream.next_response())
    assert nonce == "1"
    stream.receive(make_request("default", "ROOTCA", nonce=nonce, error="bad key"))
    assert stream.next_response() is None
    assert caplog.messages == ["Envoy rejected the secrets default, ROOTCA: bad key"]
    secrets.put_certificate(certificate(2))
    assert "default" in parse_response(stream.next_response())[1]


def test_stale_nonces_are_ignored() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    secrets.put_certificate(certificate(1))
    stream.receive(make_request("default"))
    stream.next_response()
    secrets.put_certificate(certificate(2))
    stream.next_response()
    stream.receive(make_request(nonce="1"))
    assert stream.names == ["default"]


def test_subscription_names_can_change() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    secrets.put_certificate(certificate(1))
    stream.receive(make_request("default"))
    nonce, _ = parse_response(stream.next_response())
    stream.receive(make_request("default", "ROOTCA", nonce=nonce))
    nonce, secrets_by_name = parse_response(stream.next_response())
    assert secrets_by_name.keys() == {"default", "ROOTCA"}
    stream.receive(make_request("ROOTCA", nonce=nonce))
    secrets.put_certificate(certificate(2))
    assert stream.next_response() is None


def test_subscription_names_are_limited() -> None:
    with pytest.raises(ValueError, match="secrets were requested"):
        SecretStream(SecretCache()).receive(make_request(*map(str, range(MAX_NAMES + 1))))
    stream = SecretStream(SecretCache())
    stream.receive(make_request(*map(str, range(MAX_NAMES))))
    assert len(stream.names) == MAX_NAMES == 1000


@pytest.fixture
async def sds_socket(tmp_path: pathlib.Path) -> Any:
    secrets, path = SecretCache(), str(tmp_path / "folder" / "sds")
    server = build_server()
    server.add_generic_rpc_handlers((SecretDiscoveryService(secrets).handlers(),))
    await serve(server, path, private=True)
    yield secrets, path
    await server.stop(None)


async def test_every_stream_receives_each_change(sds_socket: Any) -> None:
    secrets, path = sds_socket
    async with open_channel(f"unix:{path}") as channel:
        calls = {name: channel.stream_stream(METHOD)() for name in ("default", "ROOTCA")}
        for name, call in calls.items():
            await call.write(make_request(name).SerializeToString())
        secrets.put_certificate(certificate(1))
        for name, call in calls.items():
            nonce, secrets_by_name = parse_response(await call.read())
            assert secrets_by_name.keys() == {name}
            await call.write(make_request(name, nonce=nonce).SerializeToString())
        secrets.put_certificate(certificate(2))
        _, secrets_by_name = parse_response(await calls["default"].read())
        assert secrets_by_name["default"].tls_certificate.private_key.inline_bytes == b"key 2"


async def test_closed_stream_stops_watching(sds_socket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets, path = sds_socket
    secrets.put_certificate(certificate(1))
    events, unwatch = list[asyncio.Event](), secrets.unwatch
    closed = asyncio.Event()
    monkeypatch.setattr(secrets, "unwatch", lambda event: (unwatch(event), events.append(event), closed.set()))
    async with open_channel(f"unix:{path}") as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(make_request("default").SerializeToString())
        await call.read()
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
    await asyncio.wait_for(closed.wait(), 30)
    events[0].clear()
    secrets.put_certificate(certificate(2))
    assert not events[0].is_set()


async def test_invalid_request_closes_only_its_stream(sds_socket: Any) -> None:
    secrets, path = sds_socket
    secrets.put_certificate(certificate(1))
    async with open_channel(f"unix:{path}") as channel:
        bad = channel.stream_stream(METHOD)()
        await bad.write(b"\xff\xff")
        assert await bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        good = channel.stream_stream(METHOD)()
        await good.write(make_request("default").SerializeToString())
        assert "default" in parse_response(await good.read())[1]
