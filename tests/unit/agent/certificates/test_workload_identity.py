"""The certificate of a workload on its way: who it is asked for, what is told of it, where it is put, and who is woken by it."""

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
from tests.unit.agent.envoy.test_proxy_bootstrap import facts

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
CERTIFICATE = WorkloadCertificate(b"chain", b"key", b"roots", NOW, NOW + DAY)
AUTHORITY: Any = "the authority"


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "pilot.secretcache"]


async def kept(answers: Iterator[WorkloadCertificate | str], sleeps: int) -> list[float]:
    """How a keeper of these answers of an authority sleeps, so many times; its clock is that of its sleeps."""
    now, slept, enough = [NOW], list[float](), asyncio.Event()

    async def fetch() -> WorkloadCertificate:
        answer = next(answers)
        if isinstance(answer, str):
            raise CaClientError(answer)
        return answer

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += datetime.timedelta(seconds=seconds)
        if len(slept) == sleeps:
            enough.set()
            await asyncio.Event().wait()

    run: Coroutine[Any, Any, None] = CertificateRenewer(
        CertificateSettings(), fetch, lambda _: None, lambda: None, lambda: now[0], sleep, lambda: 0.5
    ).run()
    task = asyncio.ensure_future(run)
    await asyncio.wait((task, asyncio.ensure_future(enough.wait())), return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    return slept


async def test_why_there_is_no_certificate_is_told_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    slept = await kept(iter(["away", "away", "no such account", CERTIFICATE]), 5)
    assert said(caplog) == [
        ("WARNING", "failed to obtain a certificate, retrying: away"),
        ("WARNING", "failed to obtain a certificate, retrying: no such account"),
        ("INFO", "certificate expires at 2026-01-03T00:00:00Z, renewal due at 2026-01-02T12:00:00Z"),
    ]
    assert slept[1:3] == [2 * slept[0], 4 * slept[0]]
    assert slept[3:] == [60.0, 60.0]


def test_a_certificate_is_written_as_three_files_for_its_owner_alone(tmp_path: pathlib.Path) -> None:
    write_certificate(str(tmp_path), CERTIFICATE)
    found = {path.name: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()}
    assert found == {
        "root-cert.pem": (b"roots", 0o600),
        "key.pem": (b"key", 0o600),
        "cert-chain.pem": (b"chain", 0o600),
    }


def test_who_waits_is_woken_by_what_changes_alone() -> None:
    secrets = SecretCache()
    event, gone = secrets.watch(), secrets.watch()
    secrets.unwatch(gone)
    assert secrets.get("a") is None
    assert secrets.put(build_root_secret("a", b"roots", b"list"))
    assert (event.is_set(), gone.is_set()) == (True, False)
    event.clear()
    assert not secrets.put(build_root_secret("a", b"roots", b"list"))
    assert not event.is_set()
    assert secrets.put(build_root_secret("a", b"roots"))
    assert secrets.put(build_certificate_secret("b", b"chain", b"key"))
    held = secrets.get("a"), secrets.get("b")
    assert [each.version for each in held if isinstance(each, CachedSecret)] == [2, 3]


def test_secrets_are_what_envoy_s_definition_says() -> None:
    revoked = build_root_secret("a", b"roots", b"list")
    assert revoked == secret_pb2.Secret(
        name="a", validation_context={"trusted_ca": {"inline_bytes": b"roots"}, "crl": {"inline_bytes": b"list"}}
    )
    assert not build_root_secret("a", b"roots").validation_context.HasField("crl")
    secrets = SecretCache()
    secrets.put_certificate(CERTIFICATE)
    assert (secrets.get("ROOTCA"), secrets.get("default")) == (
        CachedSecret(1, build_root_secret("ROOTCA", b"roots").SerializeToString(deterministic=True)),
        CachedSecret(2, build_certificate_secret("default", b"chain", b"key").SerializeToString(deterministic=True)),
    )


async def asked(
    monkeypatch: pytest.MonkeyPatch, settings: AgentSettings, config: dict[str, Any], metrics: AgentMetrics
) -> tuple[Any, ...]:
    """What the authority is asked for first, once its answer was taken."""
    found, taken = list[tuple[Any, ...]](), asyncio.Event()

    async def fetch(*question: Any) -> WorkloadCertificate:
        found.append(question)
        if len(found) > 1:
            taken.set()
            await asyncio.Event().wait()
        return CERTIFICATE

    async def at_once(seconds: float) -> None:
        taken.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(identity, "fetch_certificate", fetch)
    monkeypatch.setattr(identity, "_utc_now", lambda: NOW)
    monkeypatch.setattr(identity, "asyncio", types.SimpleNamespace(sleep=at_once))
    made = identity.WorkloadIdentity(facts(config), settings, AUTHORITY, metrics)
    server, beside = await made.start()
    assert server is not None
    assert len(beside) == 2
    task = asyncio.ensure_future(beside[1])
    beside[0].close()
    async with asyncio.timeout(20):
        await taken.wait()
    task.cancel()
    await server.stop(None)
    return found[0]


async def test_the_authority_is_asked_for_the_identity_of_the_workload(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    metrics = AgentMetrics()
    settings = load_sections(AgentSettings(), [], {"TRUST_DOMAIN": "mesh.example", "OUTPUT_CERTS": "out"}).settings
    question = await asked(monkeypatch, settings, {"caCertificatesPem": [" one\n", "two"]}, metrics)
    assert question == (AUTHORITY, settings.certificate, "spiffe://mesh.example/ns/shop/sa/web", b"one\ntwo\n")
    assert sorted(os.listdir("out")) == ["cert-chain.pem", "key.pem", "root-cert.pem"]
    page = metrics.render().decode()
    assert 'istio_agent_num_outgoing_requests{request_type="csr"} 1\n' in page
    assert 'istio_agent_cert_expiry_seconds{resource_name="default"}' in page


async def test_a_folder_that_is_not_there_is_told_and_the_certificate_is_served(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_sections(AgentSettings(), [], {"OUTPUT_CERTS": "gone"}).settings
    await asked(monkeypatch, settings, {}, AgentMetrics())
    errors = [text for level, text in said(caplog) if level == "ERROR"]
    assert errors == ["cannot write the certificate to gone: No such file or directory"]


@pytest.mark.parametrize("mounted", [True, False])
async def test_files_take_the_place_of_an_authority(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mounted: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "pilot")
    monkeypatch.setattr(identity, "CHAIN", str(tmp_path / "certs" / "cert-chain.pem"))
    if not mounted:
        (tmp_path / "certs").mkdir()
        (tmp_path / "certs" / "cert-chain.pem").write_text("")
    settings = load_sections(AgentSettings(), [], {"FILE_MOUNTED_CERTS": "true"} if mounted else {}).settings
    server, beside = await identity.WorkloadIdentity(facts(), settings, AUTHORITY, AgentMetrics()).start()
    assert server is not None
    assert said(caplog)[:1] == [("INFO", f"serving the certificate files in {tmp_path}/certs")]
    assert len(beside) == 1
    again, nothing = await identity.WorkloadIdentity(facts(), settings, AUTHORITY, AgentMetrics()).start()
    assert (again, nothing) == (None, [])
    assert said(caplog)[-1:] == [
        ("INFO", "another process serves certificates on ./var/run/secrets/workload-spiffe-uds/socket; using it")
    ]
    beside[0].close()
    await server.stop(None)


def test_keys_that_do_not_exist_are_refused_before_anything_is_served() -> None:
    settings = load_sections(AgentSettings(), [], {"WORKLOAD_RSA_KEY_SIZE": "1024"}).settings
    with pytest.raises(ValueError, match="1024 bits are too few"):
        identity.WorkloadIdentity(facts(), settings, AUTHORITY, AgentMetrics())


async def test_a_socket_that_cannot_be_is_said_in_a_sentence(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    long = load_sections(AgentSettings(), [], {"WORKLOAD_IDENTITY_SOCKET_FILE": "x" * 80}).settings
    with pytest.raises(StartError, match="is longer than 107 bytes"):
        await identity.WorkloadIdentity(facts(), long, AUTHORITY, AgentMetrics()).start()
    (tmp_path / "var").write_text("")
    with pytest.raises(StartError, match=r"cannot create the socket \./var/run/.*: Not a directory"):
        await identity.WorkloadIdentity(facts(), AgentSettings(), AUTHORITY, AgentMetrics()).start()
