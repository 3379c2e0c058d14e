"""Secrets for Envoy: the protocol, the socket, and secrets of files."""

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


def ask(*names: str, nonce: str = "", error: str = "") -> discovery_pb2.DiscoveryRequest:
    request = discovery_pb2.DiscoveryRequest(resource_names=names, response_nonce=nonce, type_url=SECRET)
    if error:
        request.error_detail.CopyFrom(status_pb2.Status(message=error))
    return request


def read(raw: bytes | None) -> tuple[str, dict[str, secret_pb2.Secret]]:
    assert raw is not None
    response = discovery_pb2.DiscoveryResponse.FromString(raw)
    assert response.type_url == SECRET
    secrets = [secret_pb2.Secret.FromString(resource.value) for resource in response.resources]
    return response.nonce, {secret.name: secret for secret in secrets}


def test_a_secret_is_sent_once_it_is_there_and_again_when_it_changes() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    stream.receive(ask("default"))
    assert stream.next_response() is None
    secrets.put_certificate(certificate(1))
    nonce, found = read(stream.next_response())
    assert found["default"].tls_certificate.certificate_chain.inline_bytes == b"chain 1"
    assert found["default"].tls_certificate.private_key.inline_bytes == b"key 1"
    stream.receive(ask("default", nonce=nonce))
    assert stream.next_response() is None
    secrets.put_certificate(certificate(2))
    assert read(stream.next_response())[1]["default"].tls_certificate.certificate_chain.inline_bytes == b"chain 2"


def test_roots_that_stay_the_same_are_not_sent_again() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    stream.receive(ask("ROOTCA"))
    secrets.put_certificate(certificate(1))
    assert read(stream.next_response())[1]["ROOTCA"].validation_context.trusted_ca.inline_bytes == b"roots"
    secrets.put_certificate(certificate(2))
    assert stream.next_response() is None


def test_a_refused_secret_is_not_sent_again_but_the_next_one_is(caplog: pytest.LogCaptureFixture) -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    secrets.put_certificate(certificate(1))
    stream.receive(ask("default", "ROOTCA"))
    nonce, _ = read(stream.next_response())
    assert nonce == "1"
    stream.receive(ask("default", "ROOTCA", nonce=nonce, error="bad key"))
    assert stream.next_response() is None
    assert caplog.messages == ["Envoy rejected the secrets default, ROOTCA: bad key"]
    secrets.put_certificate(certificate(2))
    assert "default" in read(stream.next_response())[1]


def test_answers_to_older_responses_change_nothing() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    secrets.put_certificate(certificate(1))
    stream.receive(ask("default"))
    stream.next_response()
    secrets.put_certificate(certificate(2))
    stream.next_response()
    stream.receive(ask(nonce="1"))
    assert stream.names == ["default"]


def test_names_may_be_added_and_taken_away() -> None:
    secrets = SecretCache()
    stream = SecretStream(secrets)
    secrets.put_certificate(certificate(1))
    stream.receive(ask("default"))
    nonce, _ = read(stream.next_response())
    stream.receive(ask("default", "ROOTCA", nonce=nonce))
    nonce, found = read(stream.next_response())
    assert found.keys() == {"default", "ROOTCA"}
    stream.receive(ask("ROOTCA", nonce=nonce))
    secrets.put_certificate(certificate(2))
    assert stream.next_response() is None


def test_a_stream_may_not_ask_for_any_number_of_secrets() -> None:
    with pytest.raises(ValueError, match="secrets were requested"):
        SecretStream(SecretCache()).receive(ask(*map(str, range(MAX_NAMES + 1))))
    stream = SecretStream(SecretCache())
    stream.receive(ask(*map(str, range(MAX_NAMES))))
    assert len(stream.names) == MAX_NAMES == 1000


@pytest.fixture
async def served(tmp_path: pathlib.Path) -> Any:
    secrets, path = SecretCache(), str(tmp_path / "folder" / "sds")
    server = build_server()
    server.add_generic_rpc_handlers((SecretDiscoveryService(secrets).handlers(),))
    await serve(server, path, private=True)
    yield secrets, path
    await server.stop(None)


async def test_every_stream_on_the_socket_gets_each_change(served: Any) -> None:
    secrets, path = served
    async with open_channel(f"unix:{path}") as channel:
        calls = {name: channel.stream_stream(METHOD)() for name in ("default", "ROOTCA")}
        for name, call in calls.items():
            await call.write(ask(name).SerializeToString())
        secrets.put_certificate(certificate(1))
        for name, call in calls.items():
            nonce, found = read(await call.read())
            assert found.keys() == {name}
            await call.write(ask(name, nonce=nonce).SerializeToString())
        secrets.put_certificate(certificate(2))
        _, found = read(await calls["default"].read())
        assert found["default"].tls_certificate.private_key.inline_bytes == b"key 2"


async def test_a_stream_that_has_ended_is_not_told_of_changes(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets, path = served
    secrets.put_certificate(certificate(1))
    unwatched, unwatch = list[asyncio.Event](), secrets.unwatch
    gone = asyncio.Event()
    monkeypatch.setattr(secrets, "unwatch", lambda changed: (unwatch(changed), unwatched.append(changed), gone.set()))
    async with open_channel(f"unix:{path}") as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(ask("default").SerializeToString())
        await call.read()
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
    await asyncio.wait_for(gone.wait(), 30)
    unwatched[0].clear()
    secrets.put_certificate(certificate(2))
    assert not unwatched[0].is_set()


async def test_what_is_no_request_ends_the_stream_alone(served: Any) -> None:
    secrets, path = served
    secrets.put_certificate(certificate(1))
    async with open_channel(f"unix:{path}") as channel:
        bad = channel.stream_stream(METHOD)()
        await bad.write(b"\xff\xff")
        assert await bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        good = channel.stream_stream(METHOD)()
        await good.write(ask("default").SerializeToString())
        assert "default" in read(await good.read())[1]


async def test_the_socket_with_the_private_key_is_for_its_user_alone(served: Any) -> None:
    assert os.stat(served[1]).st_mode & 0o077 == 0


async def test_a_socket_that_somebody_serves_is_told_from_one_that_was_left(
    served: Any, tmp_path: pathlib.Path
) -> None:
    assert await asyncio.to_thread(is_listening, served[1])
    assert not is_listening(str(tmp_path / "none"))
    left = tmp_path / "left"
    left.write_text("")
    assert not is_listening(str(left))
    prepare_path(str(left))
    assert not left.exists()


def test_a_socket_that_cannot_be_is_said_in_a_sentence(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot create the socket"):
        prepare_path(str(tmp_path / "file" / "socket"))
    with pytest.raises(StartError, match="is longer than 107 bytes"):
        prepare_path("/tmp/" + "x" * 120)


# -- secrets of files ------------------------------------------------------------------------------------------------------


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
def test_names_say_which_files_a_secret_is_in(name: str, source: SecretFileSource | None) -> None:
    assert parse_secret_name(name) == source


def chain_of(secrets: SecretCache, name: str) -> bytes:
    held = secrets.get(name)
    assert held is not None
    found: bytes = secret_pb2.Secret.FromString(held.body).tls_certificate.certificate_chain.inline_bytes
    return found


def test_files_are_followed_and_half_replaced_ones_are_left_alone(tmp_path: pathlib.Path) -> None:
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
    os.utime(tmp_path / "key.pem", ns=(1, 1))  # whatever the clock's grain
    files.poll()
    assert chain_of(secrets, name) == second


async def test_files_are_looked_at_again_and_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_files, "POLL_SECONDS", 0.0)
    secrets = SecretCache()
    files = SecretFileWatcher(secrets)
    name = f"file-root:{tmp_path}/root.pem"
    files.watch(name)
    following = asyncio.create_task(files.run())
    for number in range(3):
        (tmp_path / "root.pem").write_bytes(b"pem" * (number + 1))
        wanted = build_root_secret(name, b"pem" * (number + 1)).SerializeToString(deterministic=True)
        async with asyncio.timeout(30):
            while (held := secrets.get(name)) is None or held.body != wanted:
                await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait((following,))
    assert following.cancelled()


def test_a_file_that_stays_unreadable_is_told_once(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    files = SecretFileWatcher(SecretCache())
    name = f"file-root:{tmp_path}/root.pem"
    for _ in range(2):
        files.watch(name)
        files.poll()
    assert caplog.messages == [
        f"secret {name} was not updated: [Errno 2] No such file or directory: '{tmp_path}/root.pem'"
    ]


@pytest.mark.parametrize("there", [(), (0,), (1, 3), (2,)])
def test_roots_of_the_system_are_the_first_that_are_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, there: tuple[int, ...]
) -> None:
    bundles = tuple(str(tmp_path / str(number)) for number in range(4))
    for number in there:
        pathlib.Path(bundles[number]).write_text("")
    monkeypatch.setattr(secret_files, "SYSTEM_BUNDLES", bundles)
    assert parse_secret_name("file-root:system") == SecretFileSource(roots=bundles[there[0] if there else 0])


def test_a_file_that_comes_later_is_read_then(tmp_path: pathlib.Path) -> None:
    secrets = SecretCache()
    files = SecretFileWatcher(secrets)
    name = f"file-root:{tmp_path}/root.pem"
    files.watch(name)
    assert secrets.get(name) is None
    (tmp_path / "root.pem").write_bytes(b"pem")
    files.poll()
    held = secrets.get(name)
    assert held is not None
    assert held.body == build_root_secret(name, b"pem").SerializeToString(deterministic=True)


def test_the_mounted_certificate_is_the_workloads_own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
