"""Secrets read from files."""

from __future__ import annotations

import asyncio
import os
import pathlib

import pytest
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from ca.csr import decode_csr
from pilot.agent.certificates import secret_files
from pilot.agent.certificates.secret_cache import SecretCache, build_root_secret
from pilot.agent.certificates.secret_files import SecretFileSource, SecretFileWatcher, parse_secret_name
from pilot.agent.certificates.workload_certificate import key_pem
from testing.security import certificates


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
