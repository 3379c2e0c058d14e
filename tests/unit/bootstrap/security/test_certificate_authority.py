"""Certificate authority of a process: the initial signer and its renewal."""

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
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.settings.parse import load
from testing.security.certificates import IDENTITY, csr, intermediate, root, write_plugged_in

NOW = datetime.datetime.now(datetime.UTC)
FIRST, SECOND = root(1, now=NOW), root(2, now=NOW)


class StubStore:
    """A store of one signer. A failed save leaves the signer that another replica saved."""

    def __init__(self, signer: Signer | None = None, theirs: Signer | None = None, fails: bool = False) -> None:
        self.signer, self._theirs, self._fails = signer, theirs, fails

    def load(self) -> Signer | None:
        return self.signer

    def save(self, signer: Signer) -> None:
        if self._fails:
            self.signer = self._theirs
            raise KeyMaterialError("somebody was faster")
        self.signer = signer


class AuthorityHarness:
    """Authorities whose generated roots are all `FIRST`, with a record of calls."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.metrics, self.generated, self.rotations, self.reloads = Metrics(), list[Any](), list[Any](), list[Any]()
        harness = self

        def make_root(*args: Any) -> Signer:
            harness.generated.append(args)
            return FIRST

        class Rotation:
            def __init__(self, *args: Any) -> None:
                harness.rotations.append(args)

            async def run(self, **kwargs: Any) -> None:
                harness.rotations.append(sorted(kwargs) and kwargs["jitter"]())
                await asyncio.Event().wait()

        class Reload:
            def __init__(self, *args: Any) -> None:
                self.args, self.crl, self.lines = args, b"", list[str]()
                harness.reloads.append(self)

            async def start(self) -> None:
                self.lines.append("start")

            async def stop(self) -> None:
                self.lines.append("stop")

        patch.setattr(certificate_authority, "make_root", make_root)
        patch.setattr(certificate_authority, "Rotation", Rotation)
        patch.setattr(certificate_authority, "PluggedInReload", Reload)

    def authority(
        self, folder: pathlib.Path, environ: Mapping[str, str] | None = None, **sources: Any
    ) -> CertificateAuthority:
        settings = load([], {"ROOT_CA_DIR": str(folder), **(environ or {})}).settings.authority
        return CertificateAuthority(settings, lambda: "td", self.metrics, **sources)

    def metric(self, name: str) -> float | None:
        [*values] = [
            float(line.split()[1])
            for line in self.metrics.exposition().decode().splitlines()
            if line.startswith(f"{name} ")
        ]
        return values[0] if values else None


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> AuthorityHarness:
    return AuthorityHarness(monkeypatch)


def issuing(authority: CertificateAuthority) -> Authority:
    assert authority.authority is not None
    return authority.authority


async def test_signing_before_the_start_is_rejected(harness: AuthorityHarness, tmp_path: pathlib.Path) -> None:
    authority = harness.authority(tmp_path)
    with pytest.raises(SigningError, match="has not started") as error:
        await authority.sign(csr(), [IDENTITY], 60, "")
    assert error.value.code == "CA_NOT_READY"
    assert (authority.roots_pem(), authority.crl) == (b"", b"")
    await authority.stop()


async def test_self_signed_root_is_generated_stored_and_rotated(
    harness: AuthorityHarness, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
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
    authority = harness.authority(tmp_path, environ)
    await authority.start()
    [(domain, ttl, now, bits)] = harness.generated
    assert (domain, ttl, bits) == ("td", datetime.timedelta(hours=100), 4096)
    assert abs(now - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=5)
    [(target, store, *terms)] = harness.rotations
    assert (target, type(store)) == (authority.authority, MemoryStore)
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
    assert harness.metric("citadel_server_root_cert_expiry_timestamp") == pytest.approx(
        FIRST.certificate.not_valid_after_utc.timestamp()
    )
    assert harness.metric("citadel_server_cert_chain_expiry_timestamp") is None
    await authority.stop()


@pytest.mark.parametrize(("jitter", "first_run"), [("true", []), ("false", 1.0)])
async def test_first_rotation_check_is_jittered_by_default(
    harness: AuthorityHarness, tmp_path: pathlib.Path, jitter: str, first_run: object
) -> None:
    authority = harness.authority(tmp_path, {"CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR": jitter})
    await authority.start()
    await asyncio.sleep(0)
    assert harness.rotations[1] == first_run
    async with asyncio.timeout(10):
        await authority.stop()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "root rotation"] == []


@pytest.mark.parametrize("has_api_server", [True, False])
async def test_root_is_stored_in_the_folder_or_at_the_api_server(
    harness: AuthorityHarness, tmp_path: pathlib.Path, has_api_server: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    options: Any = {"root_store": StubStore} if has_api_server else {}
    folder = tmp_path / "root"
    authority = harness.authority(tmp_path, {"PILOT_SELF_SIGNED_CA_DIR": str(folder)}, **options)
    await authority.start()
    assert isinstance(harness.rotations[0][1], FolderStore)
    assert (folder / "ca-cert.pem").read_bytes() == certificate_pem(FIRST.certificate)
    assert caplog.messages == ["generated a self-signed root certificate"]
    await authority.stop()
    other = harness.authority(tmp_path, {}, **options)
    await other.start()
    assert isinstance(harness.rotations[-1][1], StubStore if has_api_server else MemoryStore)
    assert caplog.messages[1] == (
        "generated a self-signed root certificate"
        if has_api_server
        else "generated a self-signed root certificate; it will change at the next restart (set --caDir to keep it)"
    )
    await other.stop()


async def test_stored_root_is_used(harness: AuthorityHarness, tmp_path: pathlib.Path) -> None:
    authority = harness.authority(tmp_path, root_store=lambda: StubStore(SECOND))
    await authority.start()
    assert (issuing(authority).signer.certificate, harness.generated) == (SECOND.certificate, [])
    await authority.stop()


async def test_root_of_a_faster_replica_is_used(harness: AuthorityHarness, tmp_path: pathlib.Path) -> None:
    authority = harness.authority(tmp_path, root_store=lambda: StubStore(theirs=SECOND, fails=True))
    await authority.start()
    assert issuing(authority).signer.certificate == SECOND.certificate
    await authority.stop()


async def test_failure_to_store_the_root_aborts_the_start(harness: AuthorityHarness, tmp_path: pathlib.Path) -> None:
    with pytest.raises(StartError, match=r"^certificate authority: somebody was faster$"):
        await harness.authority(tmp_path, root_store=lambda: StubStore(fails=True)).start()


async def test_additional_roots_are_deduplicated(harness: AuthorityHarness, tmp_path: pathlib.Path) -> None:
    (tmp_path / "root-cert.pem").write_bytes(SECOND.roots_pem + FIRST.roots_pem)
    authority = harness.authority(tmp_path)
    await authority.start()
    assert issuing(authority).signer.roots == (FIRST.certificate, SECOND.certificate)
    await authority.stop()


async def test_signer_change_runs_callbacks_and_updates_the_metric(
    harness: AuthorityHarness, tmp_path: pathlib.Path
) -> None:
    authority, calls = harness.authority(tmp_path), list[str]()
    authority.on_change += [lambda: calls.append("one"), lambda: calls.append("two")]
    await authority.start()
    later = sign_root(FIRST.key, FIRST.certificate.subject, datetime.timedelta(days=200), NOW)
    issuing(authority).renew(later)
    assert calls == ["one", "two"]
    assert harness.metric("citadel_server_root_cert_expiry_timestamp") == pytest.approx(
        later.certificate.not_valid_after_utc.timestamp()
    )
    await authority.stop()


# -- plugged-in signers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multiroot", [True, False])
async def test_plugged_in_signer_wins_and_is_watched(
    harness: AuthorityHarness, tmp_path: pathlib.Path, multiroot: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    signer = intermediate(FIRST, 1, 400 * datetime.timedelta(days=1))
    write_plugged_in(tmp_path, signer)
    (tmp_path / "ca-crl.pem").write_bytes(b"revoked")
    authority, revocations = (
        harness.authority(
            tmp_path, {"ISTIO_MULTIROOT_MESH": str(multiroot).lower()}, root_store=lambda: StubStore(SECOND)
        ),
        list[bytes](),
    )
    authority.on_change.append(lambda: revocations.append(authority.crl))
    await authority.start()
    assert (issuing(authority).signer.certificate, authority.crl, harness.rotations) == (
        signer.certificate,
        b"revoked",
        [],
    )
    assert caplog.messages == [f"certificates are issued with the signing certificate in {tmp_path}"]
    [reload] = harness.reloads
    assert (reload.args[:4], reload.lines) == ((str(tmp_path), authority.authority, b"revoked", multiroot), ["start"])
    chain = harness.metric("citadel_server_cert_chain_expiry_timestamp")
    assert chain == pytest.approx(signer.certificate.not_valid_after_utc.timestamp())
    reload.crl = b"more"
    reload.args[4]()
    assert (authority.crl, revocations) == (b"more", [b"more"])
    await authority.stop()
    assert reload.lines == ["start", "stop"]


@pytest.mark.parametrize(
    ("use_cacerts", "has_marker", "plugged_in"), [("true", True, False), ("true", False, True), ("false", True, True)]
)
async def test_generated_cacerts_are_not_a_plugged_in_signer(
    harness: AuthorityHarness, tmp_path: pathlib.Path, use_cacerts: str, has_marker: bool, plugged_in: bool
) -> None:
    write_plugged_in(tmp_path, SECOND)
    if has_marker:
        (tmp_path / "istio-generated").write_text("")
    authority = harness.authority(tmp_path, {"USE_CACERTS_FOR_SELF_SIGNED_CA": use_cacerts})
    await authority.start()
    assert (issuing(authority).signer.certificate == SECOND.certificate) is plugged_in
    await authority.stop()


class Secrets:
    """The Secrets of an API server."""

    def __init__(self, data: Mapping[str, bytes] | Exception) -> None:
        self.data, self.requests = data, list[str]()

    async def read(self, name: str) -> Mapping[str, bytes]:
        self.requests.append(name)
        if isinstance(self.data, Exception):
            raise self.data
        return self.data


def write_signer(folder: pathlib.Path, signer: Signer) -> dict[str, bytes]:
    folder.mkdir()
    write_plugged_in(folder, signer)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_secret_is_written_to_the_folder_before_loading(
    harness: AuthorityHarness, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    secrets, folder, names = (
        Secrets(write_signer(tmp_path / "files", SECOND)),
        tmp_path / "etc" / "cacerts",
        list[str](),
    )
    real_open = certificate_authority.os.open  # type: ignore[attr-defined]

    def open_and_record(path: Any, flags: int, mode: int) -> int:
        names.append(pathlib.Path(path).name)
        return int(real_open(path, flags, mode))

    monkeypatch.setattr("os.open", open_and_record)
    authority = harness.authority(folder, {"USE_REMOTE_CERTS": "true"}, read_secret=secrets.read)
    await authority.start()
    assert issuing(authority).signer.certificate == SECOND.certificate
    assert secrets.requests == ["cacerts"]
    assert [name for name in names if name.endswith(".pem")][-1] == "ca-key.pem", (
        "the key is written last, because it marks the set as complete"
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == secrets.data
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert caplog.messages[0] == f"wrote Secret cacerts to {folder}"
    await authority.stop()
    await harness.authority(folder, {"USE_REMOTE_CERTS": "true"}, read_secret=secrets.read).start()
    assert secrets.requests == ["cacerts"], "the second start reuses the key"


async def test_keys_of_the_secret_that_are_paths_are_not_written(
    harness: AuthorityHarness, tmp_path: pathlib.Path
) -> None:
    files = write_signer(tmp_path / "files", SECOND) | {"ca-crl.pem": b""}
    others = dict.fromkeys(("../escaped.txt", str(tmp_path / "absolute.txt"), "sub/x", ".profile", "extra"), b"x")
    folder = tmp_path / "etc" / "cacerts"
    authority = harness.authority(folder, {"USE_REMOTE_CERTS": "true"}, read_secret=Secrets(files | others).read)
    await authority.start()
    assert {str(path.relative_to(tmp_path / "etc")) for path in (tmp_path / "etc").rglob("*") if path.is_file()} == {
        f"cacerts/{name}" for name in files
    }
    assert not (tmp_path / "absolute.txt").exists()
    await authority.stop()


async def test_secret_is_read_only_with_the_setting(harness: AuthorityHarness, tmp_path: pathlib.Path) -> None:
    secrets = Secrets(write_signer(tmp_path / "files", SECOND))
    for environ, options in (({}, {"read_secret": secrets.read}), ({"USE_REMOTE_CERTS": "true"}, {})):
        authority = harness.authority(tmp_path / "cacerts", environ, **options)
        await authority.start()
        assert issuing(authority).signer.certificate == FIRST.certificate
        await authority.stop()
    assert secrets.requests == []


async def test_missing_secret_writes_nothing(
    harness: AuthorityHarness, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    authority = harness.authority(tmp_path / "cacerts", {"USE_REMOTE_CERTS": "true"}, read_secret=Secrets({}).read)
    await authority.start()
    assert not (tmp_path / "cacerts").exists()
    assert caplog.messages == [
        "generated a self-signed root certificate; it will change at the next restart (set --caDir to keep it)"
    ]
    await authority.stop()


@pytest.mark.parametrize("error", [SecretError("Secret cacerts: 503"), PermissionError(13, "Permission denied")])
async def test_unreadable_secret_aborts_the_start(
    harness: AuthorityHarness, tmp_path: pathlib.Path, error: Exception
) -> None:
    with pytest.raises(
        StartError, match=r"^cannot get the signing certificate from the API server: .*(503|Permission denied)"
    ):
        await harness.authority(tmp_path, {"USE_REMOTE_CERTS": "true"}, read_secret=Secrets(error).read).start()
