"""The workload's identity: certificate requests, logs, output files and SDS."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import pathlib
import stat
import types
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.agent_settings import AgentSettings, CertificateSettings
from pilot.agent.certificates import workload_identity as identity
from pilot.agent.certificates.ca_client import CaClientError
from pilot.agent.certificates.certificate_renewer import CertificateRenewer, write_certificate
from pilot.agent.certificates.secret_cache import CachedSecret, SecretCache, build_certificate_secret, build_root_secret
from pilot.agent.certificates.workload_certificate import WorkloadCertificate
from pilot.lib.start_error import StartError
from pilot.settings.parse import load_sections
from tests.unit.agent.envoy.test_proxy_bootstrap import make_context

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
CERTIFICATE = WorkloadCertificate(b"chain", b"key", b"roots", NOW, NOW + DAY)
AUTHORITY: Any = "the authority"


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "pilot.secretcache"]


async def renewal_delays(results: Iterator[WorkloadCertificate | str], sleeps: int) -> list[float]:
    """Return the sleeps of a renewer that receives these results, up to a number of sleeps."""
    times, seconds_slept, finished = [NOW], list[float](), asyncio.Event()

    async def fetch() -> WorkloadCertificate:
        result = next(results)
        if isinstance(result, str):
            raise CaClientError(result)
        return result

    async def sleep(seconds: float) -> None:
        seconds_slept.append(seconds)
        times[0] += datetime.timedelta(seconds=seconds)
        if len(seconds_slept) == sleeps:
            finished.set()
            await asyncio.Event().wait()

    run: Coroutine[Any, Any, None] = CertificateRenewer(
        CertificateSettings(), fetch, lambda _: None, lambda: None, lambda: times[0], sleep, lambda: 0.5
    ).run()
    task = asyncio.ensure_future(run)
    await asyncio.wait((task, asyncio.ensure_future(finished.wait())), return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    return seconds_slept


async def test_each_failure_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    delays = await renewal_delays(iter(["away", "away", "no such account", CERTIFICATE]), 5)
    assert messages(caplog) == [
        ("WARNING", "failed to obtain a certificate, retrying: away"),
        ("WARNING", "failed to obtain a certificate, retrying: no such account"),
        ("INFO", "certificate expires at 2026-01-03T00:00:00Z, renewal due at 2026-01-02T12:00:00Z"),
    ]
    assert delays[1:3] == [2 * delays[0], 4 * delays[0]]
    assert delays[3:] == [60.0, 60.0]


def test_certificate_files_are_private_to_the_owner(tmp_path: pathlib.Path) -> None:
    write_certificate(str(tmp_path), CERTIFICATE)
    files = {path.name: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()}
    assert files == {
        "root-cert.pem": (b"roots", 0o600),
        "key.pem": (b"key", 0o600),
        "cert-chain.pem": (b"chain", 0o600),
    }


def test_watchers_wake_only_on_changes() -> None:
    secrets = SecretCache()
    event, unwatched = secrets.watch(), secrets.watch()
    secrets.unwatch(unwatched)
    assert secrets.get("a") is None
    assert secrets.put(build_root_secret("a", b"roots", b"list"))
    assert (event.is_set(), unwatched.is_set()) == (True, False)
    event.clear()
    assert not secrets.put(build_root_secret("a", b"roots", b"list"))
    assert not event.is_set()
    assert secrets.put(build_root_secret("a", b"roots"))
    assert secrets.put(build_certificate_secret("b", b"chain", b"key"))
    stored = secrets.get("a"), secrets.get("b")
    assert [secret.version for secret in stored if isinstance(secret, CachedSecret)] == [2, 3]


def test_encoding_of_secrets() -> None:
    root_secret = build_root_secret("a", b"roots", b"list")
    assert root_secret == secret_pb2.Secret(
        name="a", validation_context={"trusted_ca": {"inline_bytes": b"roots"}, "crl": {"inline_bytes": b"list"}}
    )
    assert not build_root_secret("a", b"roots").validation_context.HasField("crl")
    secrets = SecretCache()
    secrets.put_certificate(CERTIFICATE)
    assert (secrets.get("ROOTCA"), secrets.get("default")) == (
        CachedSecret(1, build_root_secret("ROOTCA", b"roots").SerializeToString(deterministic=True)),
        CachedSecret(2, build_certificate_secret("default", b"chain", b"key").SerializeToString(deterministic=True)),
    )


async def first_request(
    monkeypatch: pytest.MonkeyPatch, settings: AgentSettings, config: dict[str, Any], metrics: AgentMetrics
) -> tuple[Any, ...]:
    """Return the arguments of the first certificate request, after its result was processed."""
    requests, processed = list[tuple[Any, ...]](), asyncio.Event()

    async def fetch(*request: Any) -> WorkloadCertificate:
        requests.append(request)
        if len(requests) > 1:
            processed.set()
            await asyncio.Event().wait()
        return CERTIFICATE

    async def sleep(seconds: float) -> None:
        processed.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(identity, "fetch_certificate", fetch)
    monkeypatch.setattr(identity, "_utc_now", lambda: NOW)
    monkeypatch.setattr(identity, "asyncio", types.SimpleNamespace(sleep=sleep))
    workload = identity.WorkloadIdentity(make_context(config), settings, AUTHORITY, metrics)
    server, jobs = await workload.start()
    assert server is not None
    assert len(jobs) == 2
    task = asyncio.ensure_future(jobs[1])
    jobs[0].close()
    async with asyncio.timeout(20):
        await processed.wait()
    task.cancel()
    await server.stop(None)
    return requests[0]


async def test_certificate_request_for_the_workload_identity(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    metrics = AgentMetrics()
    settings = load_sections(AgentSettings(), [], {"TRUST_DOMAIN": "mesh.example", "OUTPUT_CERTS": "out"}).settings
    request = await first_request(monkeypatch, settings, {"caCertificatesPem": [" one\n", "two"]}, metrics)
    assert request == (AUTHORITY, settings.certificate, "spiffe://mesh.example/ns/shop/sa/web", b"one\ntwo\n")
    assert sorted(os.listdir("out")) == ["cert-chain.pem", "key.pem", "root-cert.pem"]
    page = metrics.render().decode()
    assert 'istio_agent_num_outgoing_requests{request_type="csr"} 1\n' in page
    assert 'istio_agent_cert_expiry_seconds{resource_name="default"}' in page


async def test_missing_output_folder_is_logged(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_sections(AgentSettings(), [], {"OUTPUT_CERTS": "gone"}).settings
    await first_request(monkeypatch, settings, {}, AgentMetrics())
    errors = [text for level, text in messages(caplog) if level == "ERROR"]
    assert errors == ["cannot write the certificate to gone: No such file or directory"]


@pytest.mark.parametrize("mounted", [True, False])
async def test_certificate_files_replace_the_authority(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mounted: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "pilot")
    monkeypatch.setattr(identity, "CHAIN", str(tmp_path / "certs" / "cert-chain.pem"))
    if not mounted:
        (tmp_path / "certs").mkdir()
        (tmp_path / "certs" / "cert-chain.pem").write_text("")
    settings = load_sections(AgentSettings(), [], {"FILE_MOUNTED_CERTS": "true"} if mounted else {}).settings
    server, jobs = await identity.WorkloadIdentity(make_context(), settings, AUTHORITY, AgentMetrics()).start()
    assert server is not None
    assert messages(caplog)[:1] == [("INFO", f"serving the certificate files in {tmp_path}/certs")]
    assert len(jobs) == 1
    second_server, second_jobs = await identity.WorkloadIdentity(
        make_context(), settings, AUTHORITY, AgentMetrics()
    ).start()
    assert (second_server, second_jobs) == (None, [])
    assert messages(caplog)[-1:] == [
        ("INFO", "another process serves certificates on ./var/run/secrets/workload-spiffe-uds/socket; using it")
    ]
    jobs[0].close()
    await server.stop(None)


def test_unknown_key_settings_abort_the_start() -> None:
    settings = load_sections(AgentSettings(), [], {"WORKLOAD_RSA_KEY_SIZE": "1024"}).settings
    with pytest.raises(ValueError, match="1024 bits are too few"):
        identity.WorkloadIdentity(make_context(), settings, AUTHORITY, AgentMetrics())


async def test_invalid_socket_path_is_reported(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_sections(AgentSettings(), [], {"WORKLOAD_IDENTITY_SOCKET_FILE": "x" * 80}).settings
    with pytest.raises(StartError, match="is longer than 107 bytes"):
        await identity.WorkloadIdentity(make_context(), settings, AUTHORITY, AgentMetrics()).start()
    (tmp_path / "var").write_text("")
    with pytest.raises(StartError, match=r"cannot create the socket \./var/run/.*: Not a directory"):
        await identity.WorkloadIdentity(make_context(), AgentSettings(), AUTHORITY, AgentMetrics()).start()
