"""The workload's identity: certificate requests, logs, output files and SDS."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import pathlib
import types
from typing import Any

import pytest

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.agent_settings import AgentSettings
from pilot.agent.certificates import workload_identity as identity
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
