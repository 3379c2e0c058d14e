"""Renewal of the workload's certificate.

The current certificate stays in use until a new one has been issued.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Awaitable, Callable

from pilot.agent.agent_settings import CertificateSettings
from pilot.agent.certificates.ca_client import CaClientError
from pilot.agent.certificates.workload_certificate import WorkloadCertificate
from pilot.lib.logging.log import scope

MAX_SLEEP_SECONDS = 60.0
"""Maximum time between two checks of the clock. A machine can be suspended, and its clock can be set."""
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 10.0
"""Delay after the first failure, and the maximum delay."""
BACKDATING = datetime.timedelta(minutes=2)
"""Amount by which authorities backdate certificates, so that clients whose clocks are slow accept them."""
_log = scope("secretcache")


class CertificateRenewer:
    """Requests certificates and renews them before they expire.

    `fetch` requests a certificate or raises CaClientError. `on_certificate` is called with each new certificate, and
    `on_failure` is called for each failed request.
    """

    def __init__(
        self,
        settings: CertificateSettings,
        fetch: Callable[[], Awaitable[WorkloadCertificate]],
        on_certificate: Callable[[WorkloadCertificate], None],
        on_failure: Callable[[], None],
        now: Callable[[], datetime.datetime],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._settings, self._fetch, self._on_certificate = settings, fetch, on_certificate
        self._on_failure = on_failure
        self._now, self._sleep, self._random = now, sleep, random

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            certificate = await self._fetch_with_retries()
            self._on_certificate(certificate)
            due = self._now() + datetime.timedelta(seconds=self._seconds_until_renewal(certificate))
            _log.info(
                "the certificate expires at %s; its renewal is due at %s", _format(certificate.not_after), _format(due)
            )
            while (remaining := (due - self._now()).total_seconds()) > 0:
                await self._sleep(min(remaining, MAX_SLEEP_SECONDS))

    def _seconds_until_renewal(self, certificate: WorkloadCertificate) -> float:
        """Return the seconds until the certificate is to be renewed.

        The result is never 0. Otherwise, an authority that issues certificates close to their expiry would cause a busy
        loop.
        """
        ratio, jitter = self._settings.grace_ratio, self._settings.grace_jitter
        seconds = seconds_until_renewal(
            certificate.not_before, certificate.not_after, self._now(), ratio, jitter, self._random
        )
        return max(seconds, seconds_until_retry(1, self._random))

    async def _fetch_with_retries(self) -> WorkloadCertificate:
        failures, last_message = 0, ""
        while True:
            try:
                return await self._fetch()
            except CaClientError as error:
                failures += 1
                self._on_failure()
                if str(error) != last_message:
                    _log.warning("failed to obtain a certificate, retrying: %s", error)
                last_message = str(error)
                await self._sleep(seconds_until_retry(failures, self._random))


def seconds_until_renewal(
    not_before: datetime.datetime,
    not_after: datetime.datetime,
    now: datetime.datetime,
    ratio: float,
    jitter: float,
    random: Callable[[], float],
) -> float:
    """Return the seconds until `ratio` of the certificate's lifetime remains, or 0 if that time has passed.

    `random` returns a number from 0 to 1, which changes the ratio by at most `jitter`. The changed ratio is clamped to
    the range from 0 to 1. Time by which the authority backdated the certificate is not part of the lifetime.
    """
    lifetime = (not_after - max(not_before, min(not_before + BACKDATING, now))).total_seconds()
    remaining_ratio = min(1.0, max(0.0, ratio + jitter * (2 * random() - 1)))
    return max(0.0, (not_after - now).total_seconds() - lifetime * remaining_ratio)


def seconds_until_retry(failures: int, random: Callable[[], float]) -> float:
    """Return the delay in seconds after a number of consecutive failures.

    The delay doubles with each failure, up to `MAX_RETRY_SECONDS`. Up to half of it is subtracted at random, so that
    the proxies of a mesh do not retry at the same time.
    """
    delay = min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * 2 ** min(failures - 1, 16))
    return float(delay * (1 - random() / 2))


def write_certificate(directory: str, certificate: WorkloadCertificate) -> None:
    """Write a certificate as key.pem, cert-chain.pem and root-cert.pem, replacing each file atomically.

    Raises OSError.
    """
    for name, content in (
        ("root-cert.pem", certificate.roots),
        ("key.pem", certificate.key),
        ("cert-chain.pem", certificate.chain),
    ):
        temporary = pathlib.Path(directory, f".{name}.new")
        temporary.touch(mode=0o600)
        temporary.write_bytes(content)
        temporary.replace(pathlib.Path(directory, name))


def _format(time: datetime.datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
