"""Secrets for Envoy: the SDS protocol, its socket, and secrets from files."""

from __future__ import annotations

import asyncio
import datetime
import os
import pathlib
from typing import Any

import grpc
import pytest
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2

from ca.csr import decode_csr
from pilot.agent.certificates import secret_files
from pilot.agent.certificates.sds_server import MAX_NAMES, SECRET, SecretDiscoveryService, SecretStream
from pilot.agent.certificates.secret_cache import SecretCache, build_root_secret
from pilot.agent.certificates.secret_files import SecretFileSource, SecretFileWatcher, parse_secret_name
from pilot.agent.certificates.workload_certificate import WorkloadCertificate, key_pem
from pilot.agent.unix_sockets import build_server, is_listening, prepare_path, serve
from pilot.lib.start_error import StartError
from testing.clients.ads import open_channel
from testing.security import certificates

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


async def test_socket_is_private_to_its_user(sds_socket: Any) -> None:
    assert os.stat(sds_socket[1]).st_mode & 0o077 == 0


async def test_stale_socket_is_detected_and_removed(sds_socket: Any, tmp_path: pathlib.Path) -> None:
    assert await asyncio.to_thread(is_listening, sds_socket[1])
    assert not is_listening(str(tmp_path / "none"))
    stale = tmp_path / "left"
    stale.write_text("")
    assert not is_listening(str(stale))
    prepare_path(str(stale))
    assert not stale.exists()


def test_invalid_socket_path_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot create the socket"):
        prepare_path(str(tmp_path / "file" / "socket"))
    with pytest.raises(StartError, match="is longer than 107 bytes"):
        prepare_path("/tmp/" + "x" * 120)


# -- secrets from files ------------------------------------------------------------------------------------------------


def write_pair(folder: pathlib.Path, number: int) -> tuple[bytes, bytes]:
    root = certificates.root()
    key = certificates.ec_key(number)
    leaf = root.issue(decode_csr(certificates.csr(key)), [certificates.IDENTITY], certificates.DAY, certificates.NOW)
    chain, private = root.chain(leaf)[0].encode(), key_pem(key, True)
    (folder / "cert.pem").write_bytes(chain)
    (folder / "key.pem").write_bytes(private)
    return chain, private


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("file-cert:/a/cert.pem~/a/key.pem", SecretFileSource("/a/cert.pem", "/a/key.pem")),
        ("file-root:/a/root.pem", SecretFileSource(roots="/a/root.pem")),
        ("file-cert:/a/cert.pem", None),
        ("default", None),
        ("kubernetes://x", None),
    ],
)
def test_parsing_of_secret_names(name: str, source: SecretFileSource | None) -> None:
    assert parse_secret_name(name) == source


def chain_of(secrets: SecretCache, name: str) -> bytes:
    secret = secrets.get(name)
    assert secret is not None
    chain: bytes = secret_pb2.Secret.FromString(secret.body).tls_certificate.certificate_chain.inline_bytes
    return chain


def test_files_are_watched_and_partial_updates_ignored(tmp_path: pathlib.Path) -> None:
    secrets = SecretCache()
    files = SecretFileWatcher(secrets)
    first, _ = write_pair(tmp_path, 1)
    name = f"file-cert:{tmp_path}/cert.pem~{tmp_path}/key.pem"
    files.watch(name)
    assert chain_of(secrets, name) == first
    old_key = (tmp_path / "key.pem").read_bytes()
    second, new_key = write_pair(tmp_path, 2)
    (tmp_path / "key.pem").write_bytes(old_key)
    files.poll()
    assert chain_of(secrets, name) == first
    (tmp_path / "key.pem").write_bytes(new_key)
    os.utime(tmp_path / "key.pem", ns=(1, 1))  # independent of the clock resolution
    files.poll()
    assert chain_of(secrets, name) == second


async def test_files_are_polled(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_files, "POLL_SECONDS", 0.0)
    secrets = SecretCache()
    files = SecretFileWatcher(secrets)
    name = f"file-root:{tmp_path}/root.pem"
    files.watch(name)
    task = asyncio.create_task(files.run())
    for number in range(3):
        (tmp_path / "root.pem").write_bytes(b"pem" * (number + 1))
        expected = build_root_secret(name, b"pem" * (number + 1)).SerializeToString(deterministic=True)
        async with asyncio.timeout(30):
            while (secret := secrets.get(name)) is None or secret.body != expected:
                await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


def test_unreadable_file_is_logged_once(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    files = SecretFileWatcher(SecretCache())
    name = f"file-root:{tmp_path}/root.pem"
    for _ in range(2):
        files.watch(name)
        files.poll()
    assert caplog.messages == [
        f"secret {name} was not updated: [Errno 2] No such file or directory: '{tmp_path}/root.pem'"
    ]


@pytest.mark.parametrize("existing", [(), (0,), (1, 3), (2,)])
def test_first_existing_system_bundle_is_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, existing: tuple[int, ...]
) -> None:
    bundles = tuple(str(tmp_path / str(number)) for number in range(4))
    for number in existing:
        pathlib.Path(bundles[number]).write_text("")
    monkeypatch.setattr(secret_files, "SYSTEM_BUNDLES", bundles)
    assert parse_secret_name("file-root:system") == SecretFileSource(roots=bundles[existing[0] if existing else 0])


def test_file_created_later_is_read(tmp_path: pathlib.Path) -> None:
    secrets = SecretCache()
    files = SecretFileWatcher(secrets)
    name = f"file-root:{tmp_path}/root.pem"
    files.watch(name)
    assert secrets.get(name) is None
    (tmp_path / "root.pem").write_bytes(b"pem")
    files.poll()
    secret = secrets.get(name)
    assert secret is not None
    assert secret.body == build_root_secret(name, b"pem").SerializeToString(deterministic=True)


def test_mounted_certificate_becomes_the_default_secret(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "etc" / "certs"
    folder.mkdir(parents=True)
    chain, _ = write_pair(folder, 1)
    (folder / "cert.pem").rename(folder / "cert-chain.pem")
    (folder / "root-cert.pem").write_bytes(certificates.root().roots_pem)
    monkeypatch.chdir(tmp_path)
    secrets = SecretCache()
    SecretFileWatcher(secrets).watch_mounted()
    assert chain_of(secrets, "default") == chain
    assert secrets.get("ROOTCA") is not None
