"""The secrets that the agent serves to Envoy."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.agent.certificates.workload_certificate import WorkloadCertificate

WORKLOAD, ROOTS = "default", "ROOTCA"
"""Names of the secrets with the workload's certificate and with the mesh's root certificates."""


class CachedSecret(NamedTuple):
    """A serialized secret and its version."""

    version: int
    body: bytes


class SecretCache:
    """All secrets of one agent, keyed by name. Bound to one event loop."""

    def __init__(self) -> None:
        self._secrets: dict[str, CachedSecret] = {}
        self._last_version = 0
        self._watchers: set[asyncio.Event] = set()

    def get(self, name: str) -> CachedSecret | None:
        """Return a secret, or None if it is not available yet."""
        return self._secrets.get(name)

    def put(self, secret: secret_pb2.Secret) -> bool:
        """Store a secret and notify watchers. Returns False if the secret is unchanged."""
        body: bytes = secret.SerializeToString(deterministic=True)
        previous = self._secrets.get(secret.name)
        if previous is not None and previous.body == body:
            return False
        self._last_version += 1
        self._secrets[secret.name] = CachedSecret(self._last_version, body)
        for event in self._watchers:
            event.set()
        return True

    def put_certificate(self, certificate: WorkloadCertificate) -> None:
        """Store the workload's certificate as the secrets `default` and `ROOTCA`."""
        # Roots first: Envoy must trust peers with new roots before it presents a certificate that chains to them.
        self.put(build_root_secret(ROOTS, certificate.roots))
        self.put(build_certificate_secret(WORKLOAD, certificate.chain, certificate.key))

    def watch(self) -> asyncio.Event:
        """Return an event that is set by every change, until it is passed to `unwatch`."""
        event = asyncio.Event()
        self._watchers.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        self._watchers.discard(event)


def build_certificate_secret(name: str, chain: bytes, key: bytes) -> secret_pb2.Secret:
    """Return the secret for a certificate chain and its private key. Both are PEM."""
    return secret_pb2.Secret(
        name=name, tls_certificate={"certificate_chain": {"inline_bytes": chain}, "private_key": {"inline_bytes": key}}
    )


def build_root_secret(name: str, roots: bytes, crl: bytes = b"") -> secret_pb2.Secret:
    """Return the secret for the roots that verify peers and an optional certificate revocation list. Both are PEM."""
    secret = secret_pb2.Secret(name=name, validation_context={"trusted_ca": {"inline_bytes": roots}})
    if crl:
        secret.validation_context.crl.inline_bytes = crl
    return secret
