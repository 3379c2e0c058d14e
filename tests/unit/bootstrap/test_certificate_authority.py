"""The certificate authority of a process: which signer it starts with by its settings, and what keeps that up to date."""

from __future__ import annotations

import asyncio
import datetime
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from ca.authority import Authority
from ca.errors import KeyMaterialError, SigningError
from ca.pem import certificate_pem
from ca.self_signed import sign_root
from ca.signer import Signer
from ca.store import FolderStore, MemoryStore
from pilot.bootstrap.security import certificate_authority
from pilot.bootstrap.security.certificate_authority import CertificateAuthority
from pilot.bootstrap.security.secret_store import SecretError
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.settings.parse import load
from testing.security.certificates import IDENTITY, csr, intermediate, root, write_plugged_in

NOW = datetime.datetime.now(datetime.UTC)
FIRST, SECOND = root(1, now=NOW), root(2, now=NOW)


class Kept:
    """A store of one signer; a save that fails leaves what another replica has saved."""

    def __init__(self, signer: Signer | None = None, theirs: Signer | None = None, fails: bool = False) -> None:
        self.signer, self._theirs, self._fails = signer, theirs, fails

    def load(self) -> Signer | None:
        return self.signer

    def save(self, signer: Signer) -> None:
        if self._fails:
            self.signer = self._theirs
            raise KeyMaterialError("somebody was faster")
        self.signer = signer


class Started:
    """Authorities whose new roots are all `FIRST`, and what was asked on the way."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.metrics, self.made, self.rotations, self.reloads = Metrics(), list[Any](), list[Any](), list[Any]()
        started = self

        def make_root(*given: Any) -> Signer:
            started.made.append(given)
            return FIRST

        class Rotation:
            def __init__(self, *given: Any) -> None:
                started.rotations.append(given)

            async def run(self, **named: Any) -> None:
                started.rotations.append(sorted(named) and named["jitter"]())
                await asyncio.Event().wait()

        class Reload:
            def __init__(self, *given: Any) -> None:
                self.given, self.crl, self.lines = given, b"", list[str]()
                started.reloads.append(self)

            async def start(self) -> None:
                self.lines.append("start")

            async def stop(self) -> None:
                self.lines.append("stop")

        patch.setattr(certificate_authority, "make_root", make_root)
        patch.setattr(certificate_authority, "Rotation", Rotation)
        patch.setattr(certificate_authority, "PluggedInReload", Reload)

    def authority(
        self, folder: pathlib.Path, environ: Mapping[str, str] | None = None, **given: Any
    ) -> CertificateAuthority:
        settings = load([], {"ROOT_CA_DIR": str(folder), **(environ or {})}).settings.authority
        return CertificateAuthority(settings, lambda: "td", self.metrics, **given)

    def metric(self, name: str) -> float | None:
        [*found] = [
            float(line.split()[1])
            for line in self.metrics.exposition().decode().splitlines()
            if line.startswith(f"{name} ")
        ]
        return found[0] if found else None


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    return Started(monkeypatch)


def issuing(authority: CertificateAuthority) -> Authority:
    assert authority.authority is not None
    return authority.authority


async def test_before_the_start_nothing_is_signed(started: Started, tmp_path: pathlib.Path) -> None:
    authority = started.authority(tmp_path)
    with pytest.raises(SigningError, match="has not started") as caught:
        await authority.sign(csr(), [IDENTITY], 60, "")
    assert caught.value.code == "CA_NOT_READY"
    assert (authority.roots_pem(), authority.crl) == (b"", b"")
    await authority.stop()


async def test_a_root_of_its_own_is_made_kept_and_renewed(
    started: Started, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    environ = {
        "CITADEL_SELF_SIGNED_CA_CERT_TTL": "100h",
        "CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE": "4096",
        "DEFAULT_WORKLOAD_CERT_TTL": "2h",
        "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL": "5m",
        "CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE": "30",
        "MAX_WORKLOAD_CERT_TTL": "3h",
    }
    authority = started.authority(tmp_path, environ)
    await authority.start()
    [(domain, ttl, now, bits)] = started.made
    assert (domain, ttl, bits) == ("td", datetime.timedelta(hours=100), 4096)
    assert abs(now - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=5)
    [(renewed, store, *terms)] = started.rotations
    assert (renewed, type(store)) == (authority.authority, MemoryStore)
    assert terms == [datetime.timedelta(hours=100), datetime.timedelta(minutes=5), 30]
    assert store.load() is FIRST
    assert authority.roots_pem() == FIRST.roots_pem
    assert caplog.messages == [
        "generated a self-signed root certificate; it will change at the next restart (set --caDir to keep it)"
    ]
    chain = await authority.sign(csr(names=(IDENTITY,)), [IDENTITY], 0, "")
    assert chain[-1].encode() == FIRST.roots_pem
    with pytest.raises(SigningError):
        await authority.sign(csr(), [IDENTITY], 3 * 3600 + 1, "")
    [pair] = authority.pairs(["a.example.com"])
    assert pair.chain.startswith(b"-----BEGIN CERTIFICATE")
    assert started.metric("citadel_server_root_cert_expiry_timestamp") == pytest.approx(
        FIRST.certificate.not_valid_after_utc.timestamp()
    )
    assert started.metric("citadel_server_cert_chain_expiry_timestamp") is None
    await authority.stop()


@pytest.mark.parametrize(("jitter", "ran"), [("true", []), ("false", 1.0)])
async def test_the_first_look_at_the_root_comes_after_a_random_time_unless_settings_say_otherwise(
    started: Started, tmp_path: pathlib.Path, jitter: str, ran: object
) -> None:
    authority = started.authority(tmp_path, {"CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR": jitter})
    await authority.start()
    await asyncio.sleep(0)
    assert started.rotations[1] == ran
    async with asyncio.timeout(10):
        await authority.stop()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "root rotation"] == []


@pytest.mark.parametrize("has_api_server", [True, False])
async def test_a_root_is_kept_in_the_named_folder_else_at_the_api_server(
    started: Started, tmp_path: pathlib.Path, has_api_server: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    given: Any = {"root_store": Kept} if has_api_server else {}
    kept = tmp_path / "kept"
    authority = started.authority(tmp_path, {"PILOT_SELF_SIGNED_CA_DIR": str(kept)}, **given)
    await authority.start()
    assert isinstance(started.rotations[0][1], FolderStore)
    assert (kept / "ca-cert.pem").read_bytes() == certificate_pem(FIRST.certificate)
    assert caplog.messages == ["generated a self-signed root certificate"]
    await authority.stop()
    other = started.authority(tmp_path, {}, **given)
    await other.start()
    assert isinstance(started.rotations[-1][1], Kept if has_api_server else MemoryStore)
    assert caplog.messages[1] == (
        "generated a self-signed root certificate"
        if has_api_server
        else "generated a self-signed root certificate; it will change at the next restart (set --caDir to keep it)"
    )
    await other.stop()


async def test_a_root_that_is_kept_is_taken(started: Started, tmp_path: pathlib.Path) -> None:
    authority = started.authority(tmp_path, root_store=lambda: Kept(SECOND))
    await authority.start()
    assert (issuing(authority).signer.certificate, started.made) == (SECOND.certificate, [])
    await authority.stop()


async def test_the_root_of_another_replica_that_was_faster_is_taken(started: Started, tmp_path: pathlib.Path) -> None:
    authority = started.authority(tmp_path, root_store=lambda: Kept(theirs=SECOND, fails=True))
    await authority.start()
    assert issuing(authority).signer.certificate == SECOND.certificate
    await authority.stop()


async def test_a_root_that_cannot_be_kept_ends_the_start(started: Started, tmp_path: pathlib.Path) -> None:
    with pytest.raises(StartError, match=r"^certificate authority: somebody was faster$"):
        await started.authority(tmp_path, root_store=lambda: Kept(fails=True)).start()


async def test_further_roots_of_the_folder_are_told_each_once(started: Started, tmp_path: pathlib.Path) -> None:
    (tmp_path / "root-cert.pem").write_bytes(SECOND.roots_pem + FIRST.roots_pem)
    authority = started.authority(tmp_path)
    await authority.start()
    assert issuing(authority).signer.roots == (FIRST.certificate, SECOND.certificate)
    await authority.stop()


async def test_a_change_of_the_signer_is_told_and_counted(started: Started, tmp_path: pathlib.Path) -> None:
    authority, told = started.authority(tmp_path), list[str]()
    authority.on_change += [lambda: told.append("one"), lambda: told.append("two")]
    await authority.start()
    later = sign_root(FIRST.key, FIRST.certificate.subject, datetime.timedelta(days=200), NOW)
    issuing(authority).renew(later)
    assert told == ["one", "two"]
    assert started.metric("citadel_server_root_cert_expiry_timestamp") == pytest.approx(
        later.certificate.not_valid_after_utc.timestamp()
    )
    await authority.stop()


# -- plugged in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [True, False])
async def test_a_signer_that_is_plugged_in_comes_first_and_is_followed(
    started: Started, tmp_path: pathlib.Path, several: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    signer = intermediate(FIRST, 1, 400 * datetime.timedelta(days=1))
    write_plugged_in(tmp_path, signer)
    (tmp_path / "ca-crl.pem").write_bytes(b"revoked")
    authority, told = (
        started.authority(tmp_path, {"ISTIO_MULTIROOT_MESH": str(several).lower()}, root_store=lambda: Kept(SECOND)),
        list[bytes](),
    )
    authority.on_change.append(lambda: told.append(authority.crl))
    await authority.start()
    assert (issuing(authority).signer.certificate, authority.crl, started.rotations) == (
        signer.certificate,
        b"revoked",
        [],
    )
    assert caplog.messages == [f"certificates are issued with the signing certificate in {tmp_path}"]
    [reload] = started.reloads
    assert (reload.given[:4], reload.lines) == ((str(tmp_path), authority.authority, b"revoked", several), ["start"])
    chain = started.metric("citadel_server_cert_chain_expiry_timestamp")
    assert chain == pytest.approx(signer.certificate.not_valid_after_utc.timestamp())
    reload.crl = b"more"
    reload.given[4]()
    assert (authority.crl, told) == (b"more", [b"more"])
    await authority.stop()
    assert reload.lines == ["start", "stop"]


@pytest.mark.parametrize(
    ("keeps", "marked", "plugged_in"), [("true", True, False), ("true", False, True), ("false", True, True)]
)
async def test_what_this_authority_itself_keeps_there_is_no_plugged_in_signer(
    started: Started, tmp_path: pathlib.Path, keeps: str, marked: bool, plugged_in: bool
) -> None:
    write_plugged_in(tmp_path, SECOND)
    if marked:
        (tmp_path / "istio-generated").write_text("")
    authority = started.authority(tmp_path, {"USE_CACERTS_FOR_SELF_SIGNED_CA": keeps})
    await authority.start()
    assert (issuing(authority).signer.certificate == SECOND.certificate) is plugged_in
    await authority.stop()


class Secrets:
    """The Secrets of an API server."""

    def __init__(self, data: Mapping[str, bytes] | Exception) -> None:
        self.data, self.asked = data, list[str]()

    async def read(self, name: str) -> Mapping[str, bytes]:
        self.asked.append(name)
        if isinstance(self.data, Exception):
            raise self.data
        return self.data


def files_of(folder: pathlib.Path, signer: Signer) -> dict[str, bytes]:
    folder.mkdir()
    write_plugged_in(folder, signer)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_files_of_the_secret_are_written_before_the_folder_is_read(
    started: Started, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    secrets, folder, opened = Secrets(files_of(tmp_path / "made", SECOND)), tmp_path / "etc" / "cacerts", list[str]()
    real = certificate_authority.os.open  # type: ignore[attr-defined]

    def noted(path: Any, flags: int, mode: int) -> int:
        opened.append(pathlib.Path(path).name)
        return int(real(path, flags, mode))

    monkeypatch.setattr("os.open", noted)
    authority = started.authority(folder, {"USE_REMOTE_CERTS": "true"}, read_secret=secrets.read)
    await authority.start()
    assert issuing(authority).signer.certificate == SECOND.certificate
    assert secrets.asked == ["cacerts"]
    assert [name for name in opened if name.endswith(".pem")][-1] == "ca-key.pem", "its key says that all is there"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == secrets.data
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert caplog.messages[0] == f"wrote Secret cacerts to {folder}"
    await authority.stop()
    await started.authority(folder, {"USE_REMOTE_CERTS": "true"}, read_secret=secrets.read).start()
    assert secrets.asked == ["cacerts"], "the second start finds a key there"


async def test_without_the_setting_no_secret_is_read(started: Started, tmp_path: pathlib.Path) -> None:
    secrets = Secrets(files_of(tmp_path / "made", SECOND))
    for environ, given in (({}, {"read_secret": secrets.read}), ({"USE_REMOTE_CERTS": "true"}, {})):
        authority = started.authority(tmp_path / "cacerts", environ, **given)
        await authority.start()
        assert issuing(authority).signer.certificate == FIRST.certificate
        await authority.stop()
    assert secrets.asked == []


async def test_where_there_is_no_such_secret_nothing_is_written(
    started: Started, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    authority = started.authority(tmp_path / "cacerts", {"USE_REMOTE_CERTS": "true"}, read_secret=Secrets({}).read)
    await authority.start()
    assert not (tmp_path / "cacerts").exists()
    assert caplog.messages == [
        "generated a self-signed root certificate; it will change at the next restart (set --caDir to keep it)"
    ]
    await authority.stop()


@pytest.mark.parametrize("error", [SecretError("Secret cacerts: 503"), PermissionError(13, "Permission denied")])
async def test_a_secret_that_cannot_be_read_ends_the_start(
    started: Started, tmp_path: pathlib.Path, error: Exception
) -> None:
    with pytest.raises(
        StartError, match=r"^cannot get the signing certificate from the API server: .*(503|Permission denied)"
    ):
        await started.authority(tmp_path, {"USE_REMOTE_CERTS": "true"}, read_secret=Secrets(error).read).start()
