"""Renewal of the workload certificate."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import logging
import pathlib
import stat
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from pilot.agent.agent_settings import CertificateSettings
from pilot.agent.certificates.ca_client import CaClientError
from pilot.agent.certificates.certificate_renewer import (
    MAX_RETRY_SECONDS,
    MAX_SLEEP_SECONDS,
    MIN_RETRY_SECONDS,
    CertificateRenewer,
    seconds_until_renewal,
    seconds_until_retry,
    write_certificate,
)
from pilot.agent.certificates.workload_certificate import WorkloadCertificate

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def certificate(not_before: datetime.datetime, not_after: datetime.datetime) -> WorkloadCertificate:
    return WorkloadCertificate(b"chain", b"key", b"roots", not_before, not_after)


def test_renewal_time_follows_the_grace_ratio() -> None:
    not_before = NOW - datetime.timedelta(minutes=2)  # authorities backdate certificates
    seconds = [
        seconds_until_renewal(not_before, NOW + 10 * HOUR, NOW + hours * HOUR, 0.5, 0, lambda: 0.5)
        for hours in (0, 4, 6)
    ]
    assert seconds == [5 * 3600, 3600, 0]


def test_jitter_moves_renewal_both_ways() -> None:
    seconds = [
        seconds_until_renewal(NOW, NOW + 10 * HOUR, NOW, 0.5, 0.1, lambda number=number: number)
        for number in (0, 0.5, 1)
    ]
    assert seconds == [pytest.approx(6 * 3600), pytest.approx(5 * 3600), pytest.approx(4 * 3600)]


def test_backdated_lifetime_starts_at_issuance() -> None:
    not_before = NOW - datetime.timedelta(minutes=2)
    assert seconds_until_renewal(not_before, NOW + datetime.timedelta(seconds=30), NOW, 0.5, 0, lambda: 0.5) == 15


@pytest.mark.parametrize("ratio", [-1.0, 2.0])
def test_out_of_range_ratio_is_clamped(ratio: float) -> None:
    assert 0 <= seconds_until_renewal(NOW, NOW + HOUR, NOW, ratio, 0, lambda: 0.5) <= 3600


def test_retry_delay_doubles_with_jitter() -> None:
    delays = [seconds_until_retry(failures, lambda: 0.0) for failures in range(1, 10)]
    assert delays[:3] == [MIN_RETRY_SECONDS, 2 * MIN_RETRY_SECONDS, 4 * MIN_RETRY_SECONDS]
    assert delays[-1] == MAX_RETRY_SECONDS == seconds_until_retry(10_000, lambda: 0.0)
    assert seconds_until_retry(1, lambda: 1.0) == MIN_RETRY_SECONDS / 2


class Authority:
    """A clock that sleeping moves, and an authority with prepared responses."""

    def __init__(self, responses: Iterator[datetime.timedelta | str]) -> None:
        self.now, self.responses = NOW, responses
        self.fetches: list[datetime.datetime] = []
        self.certificates: list[WorkloadCertificate] = []
        self.failures = 0
        self.longest_sleep = 0.0

    async def sleep(self, seconds: float) -> None:
        self.longest_sleep = max(self.longest_sleep, seconds)
        self.now += datetime.timedelta(seconds=seconds)
        await asyncio.sleep(0)

    async def fetch(self) -> WorkloadCertificate:
        self.fetches.append(self.now)
        try:
            response = next(self.responses)
        except StopIteration:
            await asyncio.Event().wait()
            raise AssertionError from None
        if isinstance(response, str):
            raise CaClientError(response)
        return certificate(self.now, self.now + response)

    def on_failure(self) -> None:
        self.failures += 1

    async def run(self, settings: CertificateSettings, count: int) -> None:
        renewer = CertificateRenewer(
            settings, self.fetch, self.certificates.append, self.on_failure, lambda: self.now, self.sleep, lambda: 0.5
        )
        task = asyncio.ensure_future(renewer.run())
        while len(self.fetches) < count:
            await asyncio.sleep(0)
        task.cancel()


async def test_certificates_are_renewed_before_expiry() -> None:
    world = Authority(itertools.repeat(24 * HOUR, 4))
    await world.run(CertificateSettings(), 5)
    assert [(time - NOW) / HOUR for time in world.fetches] == [pytest.approx(12 * n, abs=0.01) for n in range(5)]
    assert all(
        time < certificate.not_after for time, certificate in zip(world.fetches[1:], world.certificates, strict=True)
    )
    assert world.longest_sleep <= MAX_SLEEP_SECONDS


async def test_failed_fetches_are_retried() -> None:
    world = Authority(iter(["down", "down", "no", HOUR]))
    await world.run(CertificateSettings(), 5)
    assert world.failures == 3
    assert len(world.certificates) == 1
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(world.fetches[:4])]
    assert gaps == sorted(gaps)
    assert gaps[-1] < MAX_RETRY_SECONDS


async def test_certificate_stays_while_renewal_fails() -> None:
    world = Authority(iter([HOUR, "down", "down", HOUR]))
    await world.run(CertificateSettings(), 5)
    assert [(certificate.not_after - NOW) / HOUR for certificate in world.certificates] == [
        pytest.approx(1),
        pytest.approx(1.5, abs=0.01),
    ]


async def test_expired_certificates_do_not_cause_a_busy_loop() -> None:
    world = Authority(itertools.repeat(datetime.timedelta(0), 50))
    await world.run(CertificateSettings(), 50)
    assert (world.now - NOW).total_seconds() >= 49 * MIN_RETRY_SECONDS / 2


DAY = datetime.timedelta(days=1)


CERTIFICATE = WorkloadCertificate(b"chain", b"key", b"roots", NOW, NOW + DAY)


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
        ("INFO", "the certificate expires at 2026-01-03T00:00:00Z; its renewal is due at 2026-01-02T12:00:00Z"),
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
