"""What a proxy asks for in vain among secrets, and what it gets though it has expired, goes to the log and the metrics, for it is told nothing."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterator

from cryptography import x509
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError

from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.lib.text import cut, one_line
from pilot.lib.xds_types import SECRET
from pilot.xds.connection import Connection
from pilot.xds.frames import Payload
from pilot.xds.session import Response

NAMES_LENGTH = 300
_log = scope("ads")


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class SecretReport:
    """Counts and tells what is wrong with the secrets that responses bring."""

    def __init__(self, metrics: Metrics, now: Callable[[], datetime.datetime] = utc_now) -> None:
        self._metrics, self._now = metrics, now

    def asked(self, connection: Connection) -> None:
        """Looks at a request for secrets. Who has not proved who it is gets no response at all."""
        if not connection.proxy.identity and (watch := connection.watches.get(SECRET)) is not None:
            self._tell(connection, "gets no", [*watch.wanted.all])

    def sent(self, connection: Connection, answer: Response) -> None:
        """Looks at a response that is on its way."""
        if answer.type_url != SECRET:
            return
        asked = connection.watches[SECRET].wanted.all
        self._tell(connection, "gets no", [name for name in asked if answer.state.get(name) is None])
        self._tell(connection, "gets expired", list(self._expired(answer)))

    def _tell(self, connection: Connection, what: str, names: list[str]) -> None:
        if names:
            self._metrics.secrets_failed(len(names))
            shown = cut(one_line(", ".join(sorted(names))), NAMES_LENGTH)
            why = "" if connection.proxy.identity else ", for it has not proved who it is"
            _log.warning("ADS: %s %s secret %s%s", connection.id, what, shown, why)

    def _expired(self, answer: Response) -> Iterator[str]:
        now = self._now()
        for payload in answer.payloads:
            for resource in payload.resources if isinstance(payload, Payload) else ():
                try:
                    start, end = validity(certificates_of(any_pb2.Any.FromString(resource.any).value))
                except (DecodeError, ValueError):  # nothing that is told here is worth a stream
                    continue
                if not start <= now <= end:
                    yield resource.name


def certificates_of(secret: bytes) -> bytes:
    """Returns the certificates of a serialized secret, PEM."""
    found = secret_pb2.Secret.FromString(secret)
    pem: bytes = (
        found.tls_certificate.certificate_chain
        if found.HasField("tls_certificate")
        else found.validation_context.trusted_ca
    ).inline_bytes
    return pem


@functools.lru_cache(1024)
def validity(pem: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """Returns from when to when the first certificate of a bundle is valid."""
    first = x509.load_pem_x509_certificates(pem)[0]
    return first.not_valid_before_utc, first.not_valid_after_utc
