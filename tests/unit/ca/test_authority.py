"""Sources of the signer: plugged-in key material, or a stored self-signed root that is renewed."""

from __future__ import annotations

import datetime
import errno
import logging
import os
import pathlib
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca.authority import Authority
from ca.csr import decode_csr
from ca.errors import KeyMaterialError
from ca.pem import PrivateKey, bundle_pem, certificate_pem, key_pem, load_key
from ca.plugged_in import read_extra_roots, read_plugged_in
from ca.reload import PluggedInReload
from ca.rotation import Rotation
from ca.self_signed import make_root, renewal_due, sign_root
from ca.server_certificate import issue_server_certificates
from ca.signer import Signer, key_usage
from ca.store import FolderStore
from testing.security.certificates import (
    DAY,
    IDENTITY,
    NOW,
    csr,
    ec_key,
    intermediate,
    name,
    root,
    rsa_key,
    write_plugged_in,
)

MINUTE = datetime.timedelta(minutes=1)

# -- plugged-in --------------------------------------------------------------------------------------------------------


def test_read_istio_file_layout(tmp_path: pathlib.Path) -> None:
    signer = intermediate(root())
    write_plugged_in(tmp_path, signer)
    (tmp_path / "ca-crl.pem").write_bytes(b"a list")
    material = read_plugged_in(str(tmp_path))
    assert material is not None
    assert material.signer.intermediates == signer.intermediates
    assert material.signer.roots == signer.roots
    assert material.crl == b"a list"


def test_tls_secret_layout_takes_precedence_and_has_no_crl(tmp_path: pathlib.Path) -> None:
    write_plugged_in(tmp_path, intermediate(root(1), 1))
    (tmp_path / "ca-crl.pem").write_bytes(b"a list")
    parent = root()
    signer = intermediate(intermediate(parent), 3)
    (tmp_path / "tls.crt").write_bytes(bundle_pem(signer.intermediates))
    (tmp_path / "tls.key").write_bytes(key_pem(signer.key))
    (tmp_path / "ca.crt").write_bytes(parent.roots_pem)
    material = read_plugged_in(str(tmp_path))
    assert material is not None
    assert material.signer.intermediates == signer.intermediates
    assert material.crl == b""


def test_self_signed_root_has_no_intermediates(tmp_path: pathlib.Path) -> None:
    write_plugged_in(tmp_path, root())
    material = read_plugged_in(str(tmp_path))
    assert material is not None
    assert material.signer.intermediates == ()


def test_folder_with_only_roots_adds_extra_roots(tmp_path: pathlib.Path) -> None:
    assert read_extra_roots(str(tmp_path)) == b""
    (tmp_path / "root-cert.pem").write_bytes(root().roots_pem)
    assert read_plugged_in(str(tmp_path)) is None
    assert read_extra_roots(str(tmp_path)) == root().roots_pem
    assert read_plugged_in(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("ca-key.pem", None, "missing ca-key.pem"),
        ("cert-chain.pem", None, "missing cert-chain.pem"),
        ("ca-key.pem", key_pem(ec_key(7)), "does not match"),
        ("ca-key.pem", b"no key", "ca-key.pem: expected an unencrypted private key"),
        ("ca-cert.pem", b"nothing", "ca-cert.pem: no valid certificates"),
        ("root-cert.pem", root(5).roots_pem, "does not end at"),
        ("cert-chain.pem", b"", "cert-chain.pem: no valid certificates"),
    ],
    ids=["no key", "no chain", "other key", "broken key", "broken certificate", "other root", "empty chain"],
)
def test_inconsistent_files_are_reported(tmp_path: pathlib.Path, file: str, data: bytes | None, message: str) -> None:
    write_plugged_in(tmp_path, intermediate(root()))
    if data is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(data)
    with pytest.raises(KeyMaterialError, match=message) as caught:
        read_plugged_in(str(tmp_path))
    assert "PRIVATE" not in str(caught.value)


def test_leaf_certificate_is_rejected_as_signer(tmp_path: pathlib.Path) -> None:
    parent = root()
    authority = Authority(parent, DAY, DAY, lambda: NOW)
    chain = authority.sign(csr(), [IDENTITY], 60)
    write_plugged_in(tmp_path, Signer(parent.certificate, ec_key(), (), parent.roots))
    (tmp_path / "ca-cert.pem").write_text(chain[0])
    (tmp_path / "cert-chain.pem").write_text(chain[0])
    with pytest.raises(KeyMaterialError, match="is not a CA"):
        read_plugged_in(str(tmp_path))


# -- reload --------------------------------------------------------------------------------------------------------------


class ReloadableAuthority:
    """An authority whose plugged-in folder is reloaded by calling `reload`."""

    def __init__(self, folder: pathlib.Path, multiple_roots: bool = False) -> None:
        material = read_plugged_in(str(folder))
        assert material is not None
        self.authority = Authority(material.signer, DAY, DAY, lambda: NOW)
        self.changes = self.crls = 0
        self.authority.on_change.append(self._changed)
        self.reload = PluggedInReload(str(folder), self.authority, material.crl, multiple_roots, self._crl).reload

    def _changed(self) -> None:
        self.changes += 1

    def _crl(self) -> None:
        self.crls += 1


def test_reload_replaces_an_intermediate(tmp_path: pathlib.Path) -> None:
    parent = root()
    write_plugged_in(tmp_path, intermediate(parent))
    reloadable = ReloadableAuthority(tmp_path)
    reloadable.reload()
    assert reloadable.changes == 0
    other = intermediate(parent, 1)
    write_plugged_in(tmp_path, other)
    reloadable.reload()
    assert reloadable.changes == 1
    assert reloadable.authority.signer.certificate == other.certificate


def test_root_change_requires_multiple_roots_and_an_overlap(
    tmp_path: pathlib.Path,
) -> None:
    first, second = root(), root(1)
    combined = intermediate(first)._replace(roots=(*first.roots, *second.roots))
    write_plugged_in(tmp_path, intermediate(first))
    strict, lenient = ReloadableAuthority(tmp_path), ReloadableAuthority(tmp_path, multiple_roots=True)
    write_plugged_in(tmp_path, combined)
    for reloadable in (strict, lenient):
        reloadable.reload()
    assert (strict.changes, lenient.changes) == (0, 1)
    assert len(lenient.authority.signer.roots) == 2
    write_plugged_in(tmp_path, intermediate(root(2), 2))
    lenient.reload()
    assert lenient.changes == 1


def test_reload_of_invalid_files_keeps_the_signer(tmp_path: pathlib.Path) -> None:
    write_plugged_in(tmp_path, intermediate(root()))
    reloadable = ReloadableAuthority(tmp_path)
    before = reloadable.authority.signer
    (tmp_path / "ca-key.pem").write_bytes(b"")
    reloadable.reload()
    for path in tmp_path.iterdir():
        path.unlink()
    reloadable.reload()
    assert reloadable.authority.signer is before
    assert reloadable.changes == 0


def test_reload_replaces_the_crl(tmp_path: pathlib.Path) -> None:
    write_plugged_in(tmp_path, intermediate(root()))
    reloadable = ReloadableAuthority(tmp_path)
    (tmp_path / "ca-crl.pem").write_bytes(b"a list")
    reloadable.reload()
    reloadable.reload()
    assert (reloadable.crls, reloadable.changes) == (1, 0)


# -- self-signed -------------------------------------------------------------------------------------------------------


def test_self_signed_root_certificate_fields() -> None:
    signer = make_root("example.org", 10 * DAY, NOW)
    assert signer.certificate.subject.rfc4514_string() == "O=example.org"
    assert signer.key.key_size == 2048
    assert (signer.certificate.not_valid_before_utc, signer.certificate.not_valid_after_utc) == (
        NOW - 15 * MINUTE,
        NOW + 10 * DAY,
    )
    signer.certificate.verify_directly_issued_by(signer.certificate)
    assert [(extension.value, extension.critical) for extension in signer.certificate.extensions] == [
        (key_usage("key_cert_sign"), True),
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (x509.SubjectKeyIdentifier.from_public_key(signer.key.public_key()), False),
    ]
    assert (signer.intermediates, signer.roots) == ((), (signer.certificate,))


def test_stored_root_is_loaded_and_its_key_is_private(tmp_path: pathlib.Path) -> None:
    store = FolderStore(str(tmp_path / "var" / "ca"))
    assert store.load() is None
    signer = root()
    store.save(root(1))
    store.save(signer)  # replaces the first one
    stored = store.load()
    assert stored is not None
    assert (stored.certificate, key_pem(stored.key)) == (signer.certificate, key_pem(signer.key))
    folder = tmp_path / "var" / "ca"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"ca-cert.pem": 0o644, "ca-key.pem": 0o600}


def test_unreadable_folder_of_a_store_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(_: pathlib.Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.is_file", deny)
    with pytest.raises(KeyMaterialError, match=f"^{tmp_path}: Permission denied$"):
        FolderStore(str(tmp_path)).load()


def test_store_requires_a_folder() -> None:
    with pytest.raises(ValueError, match=r"a folder .* is required"):
        FolderStore("")


def test_store_syncs_files_before_renaming_them(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operations: list[tuple[str, bytes]] = []
    fsync, replace = os.fsync, os.replace

    def record_sync(descriptor: int) -> None:
        operations.append(("fsync", os.pread(descriptor, 10_000, 0)))
        fsync(descriptor)

    def record_replace(path: str, target: pathlib.Path) -> None:
        operations.append((target.name, pathlib.Path(path).read_bytes()))
        replace(path, target)

    monkeypatch.setattr("os.fsync", record_sync)
    monkeypatch.setattr("os.replace", record_replace)
    FolderStore(str(tmp_path)).save(root())
    key, certificate = key_pem(root().key), certificate_pem(root().certificate)
    assert operations == [
        ("fsync", key),
        ("ca-key.pem", key),
        ("fsync", certificate),
        ("ca-cert.pem", certificate),
    ]


def test_failed_save_leaves_no_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(KeyMaterialError, match=f"^{tmp_path}: No space left on device$"):
        FolderStore(str(tmp_path)).save(root())
    assert list(tmp_path.iterdir()) == []


def test_stored_certificate_must_match_its_key(tmp_path: pathlib.Path) -> None:
    store = FolderStore(str(tmp_path))
    store.save(root())
    (tmp_path / "ca-key.pem").write_bytes(key_pem(root(1).key))
    with pytest.raises(KeyMaterialError, match=f"^{tmp_path}: the private key does not match the signing certificate$"):
        store.load()


@pytest.mark.parametrize("file", ["ca-cert.pem", "ca-key.pem"])
def test_incomplete_or_invalid_stored_root_is_an_error(tmp_path: pathlib.Path, file: str) -> None:
    store = FolderStore(str(tmp_path))
    store.save(root())
    (tmp_path / file).unlink()
    with pytest.raises(KeyMaterialError, match="is missing"):
        store.load()
    (tmp_path / file).write_bytes(b"something")
    with pytest.raises(KeyMaterialError, match=file):
        store.load()


@pytest.mark.parametrize(("age", "due"), [(79, False), (80, True), (101, True)])
def test_root_renewal_is_due_in_the_last_fifth_of_its_lifetime(age: int, due: bool) -> None:
    signer = sign_root(
        ec_key(), name("d"), 100 * DAY - datetime.timedelta(minutes=2), NOW + datetime.timedelta(minutes=2)
    )
    assert renewal_due(signer, NOW + age * DAY, 20) is due


class Replica:
    """An authority with root rotation and a store, which may be shared."""

    def __init__(self, store: FolderStore, signer: Signer, now: datetime.datetime) -> None:
        self.authority = Authority(signer, DAY, DAY, lambda: now)
        self.rotation = Rotation(self.authority, store, 100 * DAY, datetime.timedelta(hours=1), 20, lambda: now)


async def test_renewed_root_has_the_same_key_and_verifies_old_leaves(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot.rootcertrotator")
    store, extra = FolderStore(str(tmp_path)), root(3)
    old = root()
    store.save(old)
    replica = Replica(store, old._replace(roots=(*old.roots, *extra.roots)), NOW + 90 * DAY)
    leaf = old.issue(decode_csr(csr()), [IDENTITY], DAY, NOW)
    assert await replica.rotation.check()
    renewed = replica.authority.signer
    assert renewed.certificate != old.certificate
    assert renewed.certificate.not_valid_after_utc == NOW + 190 * DAY
    leaf.verify_directly_issued_by(renewed.certificate)
    assert renewed.roots == (renewed.certificate, *extra.roots)
    stored = store.load()
    assert stored is not None
    assert stored.certificate == renewed.certificate
    assert not await replica.rotation.check()
    assert caplog.messages == ["renewed the root certificate, valid until 2026-07-11 03:04:05+00:00"]


async def test_root_renewed_by_another_replica_is_adopted(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot.rootcertrotator")
    store, extra = FolderStore(str(tmp_path)), root(3)
    old = root()
    store.save(old)
    one, other = (Replica(store, old._replace(roots=(*old.roots, *extra.roots)), NOW + 90 * DAY) for _ in range(2))
    assert await one.rotation.check()
    caplog.clear()
    assert await other.rotation.check()
    assert other.authority.signer.certificate == one.authority.signer.certificate
    assert (
        other.authority.signer.roots == one.authority.signer.roots == (one.authority.signer.certificate, *extra.roots)
    )
    assert caplog.messages == ["adopted the root certificate of another replica, valid until 2026-07-11 03:04:05+00:00"]
    assert not await other.rotation.check()


async def test_unusable_stored_root_is_not_adopted(tmp_path: pathlib.Path) -> None:
    store = FolderStore(str(tmp_path))
    replica = Replica(store, root(), NOW)
    store.save(root(1, lifetime=200 * DAY))
    with pytest.raises(KeyMaterialError, match="another key"):
        await replica.rotation.check()
    (tmp_path / "ca-key.pem").unlink()
    with pytest.raises(KeyMaterialError):
        await replica.rotation.check()
    assert replica.authority.signer is root()


async def test_rotation_continues_after_a_failure(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FolderStore(str(tmp_path))
    store.save(root())
    (tmp_path / "ca-key.pem").unlink()
    replica = Replica(store, root(), NOW + 90 * DAY)
    delays: list[float] = []

    class End(Exception):
        pass

    async def sleep(seconds: float) -> None:
        delays.append(seconds)
        if len(delays) == 2:
            store.save(root())
        if len(delays) == 3:
            raise End

    with pytest.raises(End):
        await replica.rotation.run(sleep, lambda: 0.5)
    assert delays == [1800, 3600, 3600]
    assert caplog.messages == [
        f"failed to renew the root certificate: {tmp_path}: either ca-key.pem or ca-cert.pem is missing"
    ]
    assert replica.authority.signer.certificate != root().certificate


# -- the control plane's certificate -----------------------------------------------------------------------------------

NAMES = ("istiod.istio-system.svc", "istiod", "istiod.istio-system.svc")


def test_server_certificate_has_its_names_and_a_ten_year_lifetime() -> None:
    parent = root(lifetime=5000 * DAY)
    signer = intermediate(parent, lifetime=4000 * DAY)
    (certificate,) = issue_server_certificates(signer, NAMES, NOW)
    leaf, *chain = x509.load_pem_x509_certificates(certificate.chain)
    assert leaf.subject.rfc4514_string() == ""
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["istiod", "istiod.istio-system.svc"]
    assert (leaf.not_valid_before_utc, leaf.not_valid_after_utc) == (NOW - 15 * MINUTE, NOW + 3650 * DAY)
    assert chain == [signer.certificate]
    assert load_key(certificate.key, "").public_key() == leaf.public_key()
    assert repr(certificate) == "ServerCertificate(…)"


def test_server_key_types_follow_the_signer() -> None:
    def keys(key: PrivateKey) -> list[str]:
        certificates = issue_server_certificates(sign_root(key, name("d"), DAY, NOW), NAMES, NOW)
        return [description(load_key(certificate.key, "")) for certificate in certificates]

    def description(key: PrivateKey) -> str:
        return (
            key.curve.name
            if isinstance(key, ec.EllipticCurvePrivateKey)
            else f"{type(key).__name__} {getattr(key, 'key_size', '')}"
        )

    assert keys(ec_key(1, ec.SECP384R1)) == ["secp384r1"]
    assert keys(ed25519.Ed25519PrivateKey.generate()) == ["secp256r1"]
    assert keys(rsa_key()) == [f"{rsa.RSAPrivateKey.__name__} 2048", "secp256r1"]
