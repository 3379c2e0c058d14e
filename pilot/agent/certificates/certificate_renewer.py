"""Keeps the workload's certificate: the first one as soon as there is one, the next before its end, the old one until then."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Awaitable, Callable

from pilot.agent.agent_settings import CertificateSettings
from pilot.agent.certificates.ca_client import CertificateRequestError
from pilot.agent.certificates.workload_certificate import WorkloadCertificate
from pilot.lib.log import scope

MAX_SLEEP_SECONDS = 60.0
"""Seconds after which the clock is read again, because a machine may have slept and its clock may be set."""
_log = scope("secretcache")


class CertificateRenewer:
    """`fetch` gets a certificate or raises CertificateRequestError; `take` is given each new one; `failed` is told of each failure."""

    def __init__(
        self,
        settings: CertificateSettings,
        fetch: Callable[[], Awaitable[WorkloadCertificate]],
        take: Callable[[WorkloadCertificate], None],
        failed: Callable[[], None],
        now: Callable[[], datetime.datetime],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._settings, self._fetch, self._take, self._failed = settings, fetch, take, failed
        self._now, self._sleep, self._random = now, sleep, random

    async def run(self) -> None:
        """Gets certificates until it is cancelled."""
        while True:
            certificate = await self._get()
            self._take(certificate)
            due = self._now() + datetime.timedelta(seconds=self._left(certificate))
            _log.info("there is a certificate until %s, to be renewed at %s", _show(certificate.ends), _show(due))
            while (rest := (due - self._now()).total_seconds()) > 0:
                await self._sleep(min(rest, MAX_SLEEP_SECONDS))

    def _left(self, certificate: WorkloadCertificate) -> float:
        """Returns the seconds until renewal; some in any case, for an authority that issues what has all but ended."""
        ratio, jitter = self._settings.grace_ratio, self._settings.grace_jitter
        left = seconds_until_renewal(certificate.begins, certificate.ends, self._now(), ratio, jitter, self._random)
        return max(left, seconds_until_retry(1, self._random))

    async def _get(self) -> WorkloadCertificate:
        """Returns the next certificate, after as many attempts as that takes."""
        failures, last = 0, ""
        while True:
            try:
                return await self._fetch()
            except CertificateRequestError as error:
                failures += 1
                self._failed()
                if str(error) != last:
                    _log.warning("there is no new certificate yet: %s", error)
                last = str(error)
                await self._sleep(seconds_until_retry(failures, self._random))


def write_certificate(folder: str, certificate: WorkloadCertificate) -> None:
    """Writes a certificate as key.pem, cert-chain.pem and root-cert.pem, each whole or not at all. OSError where it cannot."""
    for name, content in (
        ("root-cert.pem", certificate.roots),
        ("key.pem", certificate.key),
        ("cert-chain.pem", certificate.chain),
    ):
        fresh = pathlib.Path(folder, f".{name}.new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(content)
        fresh.replace(pathlib.Path(folder, name))


def _show(time: datetime.datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


SHORTEST, LONGEST = 0.1, 10.0
"""Seconds before the next attempt after the first failure, and after many."""
SKEW = datetime.timedelta(minutes=2)
"""How far authorities set the beginning of a life back, for clocks that are late."""


def seconds_until_renewal(
    begins: datetime.datetime,
    ends: datetime.datetime,
    now: datetime.datetime,
    ratio: float,
    jitter: float,
    random: Callable[[], float],
) -> float:
    """Returns the seconds from `now` to the time at which `ratio` of the life is left, 0 where that has passed. `random` gives numbers
    from 0 to 1, which change the ratio by `jitter` at most; 0 and 1 bound what comes out. What an authority dated back is no life."""
    life = (ends - max(begins, min(begins + SKEW, now))).total_seconds()
    left = min(1.0, max(0.0, ratio + jitter * (2 * random() - 1)))
    return max(0.0, (ends - now).total_seconds() - life * left)


def seconds_until_retry(failures: int, random: Callable[[], float]) -> float:
    """Returns the seconds to wait after that many failures in a row: twice as long each time up to `LONGEST`, of which up to half is
    taken away at random, so that the proxies of a mesh do not come at once."""
    longest = min(LONGEST, SHORTEST * 2 ** min(failures - 1, 16))
    return float(longest * (1 - random() / 2))
