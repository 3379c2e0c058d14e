"""The secrets that are served to Envoy, by name, and who waits for the next change of them."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.agent.certificates.workload_certificate import WorkloadCertificate

WORKLOAD, ROOTS = "default", "ROOTCA"


class CachedSecret(NamedTuple):
    """A secret, serialized, and the number of its change."""

    version: int
    body: bytes


class SecretCache:
    """All secrets of one agent. For one event loop."""

    def __init__(self) -> None:
        self._held: dict[str, CachedSecret] = {}
        self._changes = 0
        self._waiting: set[asyncio.Event] = set()

    def get(self, name: str) -> CachedSecret | None:
        """Returns a secret; None where it is not there yet."""
        return self._held.get(name)

    def put(self, secret: secret_pb2.Secret) -> bool:
        """Takes a secret and wakes who waits; returns False where it is the same as before."""
        body: bytes = secret.SerializeToString(deterministic=True)
        before = self._held.get(secret.name)
        if before is not None and before.body == body:
            return False
        self._changes += 1
        self._held[secret.name] = CachedSecret(self._changes, body)
        for event in self._waiting:
            event.set()
        return True

    def put_certificate(self, certificate: WorkloadCertificate) -> None:
        """Takes the workload's certificate as the secrets `default` and `ROOTCA`."""
        self.put(
            build_root_secret(ROOTS, certificate.roots)
        )  # first: peers with new roots are to be trusted before they see ours
        self.put(build_certificate_secret(WORKLOAD, certificate.chain, certificate.key))

    def watch(self) -> asyncio.Event:
        """Returns an event that every change sets, until `unwatch`."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)


def build_certificate_secret(name: str, chain: bytes, key: bytes) -> secret_pb2.Secret:
    """Returns the secret of a certificate chain and its private key, in PEM."""
    return secret_pb2.Secret(
        name=name, tls_certificate={"certificate_chain": {"inline_bytes": chain}, "private_key": {"inline_bytes": key}}
    )


def build_root_secret(name: str, roots: bytes, revoked: bytes = b"") -> secret_pb2.Secret:
    """Returns the secret of the roots that peers are verified with, and of a list of revoked certificates where there is one, in PEM."""
    secret = secret_pb2.Secret(name=name, validation_context={"trusted_ca": {"inline_bytes": roots}})
    if revoked:
        secret.validation_context.crl.inline_bytes = revoked
    return secret
