"""Validity periods of the certificates that the control plane knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from pilot.config.key_material import KeyPair, Roots, find_key_pair, find_roots
from pilot.config.kinds.kubernetes import SECRET
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.config.validation.key_material import validity_period
from pilot.lib.metrics.metrics import Metrics
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


class Material(NamedTuple):
    """Certificates in an object, as PEM. `name` identifies the object."""

    name: str
    pem: bytes


def of_authority(metrics: Metrics) -> list[Validity]:
    """Return the validity periods of the built-in CA's root and chain, if this process signs workload certificates."""
    return [Validity(name, 0.0, at) for name, metric in _OF_AUTHORITY.items() if (at := metrics.value(metric))]


def material(db: Mesh) -> list[Material]:
    """Return at most `MOST` certificate chains and roots from Secrets, without private keys."""
    contents = (item for key, row in SECRET.table(db).rows() for item in of_secret(key.object, row.spec.data))
    return list(islice(contents, MOST))


def of_secret(key: ObjectKey | ObjectRef, data: Mapping[str, bytes]) -> Iterator[Material]:
    """Yield the certificate chain and the root in the data of a Secret."""
    return (Material(f"Secret {key.namespace}/{key.name}", pem) for pem in _certificates(data))


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
