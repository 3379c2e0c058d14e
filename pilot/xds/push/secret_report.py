"""Reports missing and expired secrets in logs and metrics, because proxies do not report them."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterator

from cryptography import x509
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError

from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.text import cut, one_line
from pilot.lib.xds_types import SECRET
from pilot.xds.push.connection import Connection
from pilot.xds.session.response_encoding import Payload
from pilot.xds.session.session import Response

MAX_NAMES_LENGTH = 300
_log = scope("ads")


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class SecretReport:
    """Checks requests for secrets and the responses to them."""

    def __init__(self, metrics: Metrics, now: Callable[[], datetime.datetime] = utc_now) -> None:
        self._metrics, self._now = metrics, now

    def on_request(self, connection: Connection) -> None:
        """Report the requested secrets as missing if the stream has no verified identity and therefore receives no
        response."""
        if not connection.proxy.identity and (subscription := connection.subscriptions.get(SECRET)) is not None:
            self._report(connection, "missing", [*subscription.requested.all])

    def on_response(self, connection: Connection, response: Response) -> None:
        """Report the missing and expired secrets in a response that is being sent."""
        if response.type_url != SECRET:
            return
        requested = connection.subscriptions[SECRET].requested.all
        self._report(connection, "missing", [name for name in requested if response.state.get(name) is None])
        self._report(connection, "expired", list(self._expired(response)))

    def _report(self, connection: Connection, problem: str, names: list[str]) -> None:
        if names:
            self._metrics.secrets_failed(len(names))
            listing = cut(one_line(", ".join(sorted(names))), MAX_NAMES_LENGTH)
            reason = "" if connection.proxy.identity else " (the proxy is not authenticated)"
            _log.warning("ADS: %s requested %s secret %s%s", connection.id, problem, listing, reason)

    def _expired(self, response: Response) -> Iterator[str]:
        now = self._now()
        for payload in response.payloads:
            for resource in payload.resources if isinstance(payload, Payload) else ():
                try:
                    start, end = validity(certificates_of(any_pb2.Any.FromString(resource.any).value))
                except (DecodeError, ValueError):  # a failed check must not end the stream
                    continue
                if not start <= now <= end:
                    yield resource.name


def certificates_of(secret: bytes) -> bytes:
    """Return the PEM certificates in a serialized secret."""
    message = secret_pb2.Secret.FromString(secret)
    pem: bytes = (
        message.tls_certificate.certificate_chain
        if message.HasField("tls_certificate")
        else message.validation_context.trusted_ca
    ).inline_bytes
    return pem


@functools.lru_cache(1024)
def validity(pem: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the validity period of the first certificate in a PEM bundle."""
    first = x509.load_pem_x509_certificates(pem)[0]
    return first.not_valid_before_utc, first.not_valid_after_utc
