"""Validity periods of the certificates that the control plane knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from pilot.config.key_material import KeyPair, Roots, find_key_pair, find_roots
from pilot.config.kinds.istio import GATEWAY
from pilot.config.kinds.kubernetes import SECRET
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.config.validation.key_material import validity_period
from pilot.debug.slices import collect_all
from pilot.debug.sources import Sources
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.analysis.selector import selected_anywhere
from pilot.mesh.gateways.gateways import servers
from pilot.mesh.model.credential_key import CredentialKey, parse_field
from pilot.mesh.security.credential_access import certificate_fields, gateway_credentials, root_fields
from pilot.mesh.tables.database import Mesh

MOST = 500
_OF_AUTHORITY = {
    "root of the mesh": "citadel_server_root_cert_expiry_timestamp",
    "signing chain": "citadel_server_cert_chain_expiry_timestamp",
}


class Validity(NamedTuple):
    """The validity period of a certificate.

    `name` says where the certificate is stored. Times are Unix seconds, and `begins` is 0.0 if unknown.
    """

    name: str
    begins: float
    ends: float


class SecretUse(NamedTuple):
    """A Gateway that refers to a Secret, and the hosts of its servers that do."""

    gateway: ObjectKey
    hosts: tuple[str, ...]


class Material(NamedTuple):
    """Certificates in an object, as PEM. `name` identifies the object."""

    name: str
    pem: bytes


async def list_certificates(sources: Sources) -> list[dict[str, Any]]:
    """Return the certificates of the built-in authority and of Secrets as JSON objects.

    `usedBy` are the Gateways that refer to the Secret.
    """
    users: dict[str, list[str]] = {}
    for name, gateway in await collect_all(_uses(sources.db)):
        users.setdefault(name, []).append(f"Gateway {gateway.namespace}/{gateway.name}")
    of_secrets = await asyncio.to_thread(validity, material(sources.db))
    return [
        {**one._asdict(), "usedBy": users.get(one.name, [])} for one in [*of_authority(sources.metrics), *of_secrets]
    ]


async def uses_of_secret(sources: Sources, secret: ObjectRef) -> list[SecretUse]:
    """Return the Gateways that refer to a Secret."""
    db, name = sources.db, _name(secret)
    gateways = [gateway for other, gateway in await collect_all(_uses(db)) if other == name]
    return [SecretUse(gateway, tuple(dict.fromkeys(_hosts_with(db, gateway, name)))) for gateway in gateways]


def of_authority(metrics: Metrics) -> list[Validity]:
    """Return the validity periods of the built-in CA's root and chain, if this process signs workload certificates."""
    return [Validity(name, 0.0, at) for name, metric in _OF_AUTHORITY.items() if (at := metrics.value(metric))]


def material(db: Mesh) -> list[Material]:
    """Return at most `MOST` certificate chains and roots from Secrets, without private keys."""
    contents = (item for key, row in SECRET.table(db).rows() for item in of_secret(key.object, row.spec.data))
    return list(islice(contents, MOST))


def of_secret(key: ObjectKey | ObjectRef, data: Mapping[str, bytes]) -> Iterator[Material]:
    """Yield the certificate chain and the root in the data of a Secret."""
    return (Material(_name(key), pem) for pem in _certificates(data))


def _certificates(data: Mapping[str, bytes]) -> Iterable[bytes]:
    pair, roots = find_key_pair(data), find_roots(data)
    if isinstance(pair, KeyPair):
        yield pair.chain.content
    if isinstance(roots, Roots):
        yield roots.certificates.content


def validity(items: Iterable[Material]) -> list[Validity]:
    """Return the validity period of the first certificate in each object.

    Objects without a valid certificate are skipped, because they are reported elsewhere.
    """
    periods = ((item.name, validity_period(item.pem)) for item in items)
    return [Validity(name, *period) for name, period in periods if period is not None]


def _name(key: ObjectKey | ObjectRef) -> str:
    return f"Secret {key.namespace}/{key.name}"


def _uses(db: Mesh) -> Iterator[tuple[str, ObjectKey]]:
    """Yield the name of each Secret that a Gateway refers to, and the Gateway."""
    for key in GATEWAY.all_keys(db):
        credentials = (
            credential
            for namespace in _router_namespaces(db, key)
            for credential in sorted(frozenset[Any]().union(*gateway_credentials(db, key, namespace)))
        )
        yield from ((name, key) for name in dict.fromkeys(_secret_names(credentials)))


def _hosts_with(db: Mesh, gateway: ObjectKey, secret: str) -> Iterator[str]:
    """Yield the hosts of the servers of a Gateway that refer to a Secret."""
    namespaces = _router_namespaces(db, gateway)
    for server in servers(db, gateway):
        fields = (*certificate_fields(server.tls), *root_fields(server.tls)) if server.tls is not None else ()
        credentials = (parse_field(field, namespace) for field in fields for namespace in namespaces)
        if secret in _secret_names(filter(None, credentials)):
            yield from server.hosts


def _secret_names(credentials: Iterable[CredentialKey]) -> Iterator[str]:
    of_secrets = (credential for credential in credentials if credential.source != "ConfigMap")
    return (f"Secret {credential.namespace}/{name}" for credential in of_secrets for name in credential.names)


def _router_namespaces(db: Mesh, key: ObjectKey) -> list[str]:
    """Return the namespaces of the routers that a Gateway selects, or its own if it selects none."""
    gateway = GATEWAY.get(db, key)
    if gateway is None:
        return []
    routers = selected_anywhere(db, gateway.spec.selector, key.namespace)
    return sorted({namespace for namespace, _ in routers}) or [key.namespace]
