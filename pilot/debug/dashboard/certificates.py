"""Certificates that the control plane knows, from when until when each is valid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from cryptography import x509

from pilot.config.key_material import KeyPair, Roots, find_key_pair, find_roots
from pilot.config.kinds.kubernetes import SECRET
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh

MOST = 500
_OF_AUTHORITY = {
    "root of the mesh": "citadel_server_root_cert_expiry_timestamp",
    "signing chain": "citadel_server_cert_chain_expiry_timestamp",
}


class Validity(NamedTuple):
    """A certificate by where it is. Times are Unix seconds, `begins` 0.0 where it is not known."""

    name: str
    begins: float
    ends: float


class Material(NamedTuple):
    """The public part of an object's credential, as PEM."""

    name: str
    pem: bytes


def of_authority(metrics: Metrics) -> list[Validity]:
    """Returns the root and the chain that workloads' certificates are signed by, where this process signs them."""
    return [Validity(name, 0.0, at) for name, metric in _OF_AUTHORITY.items() if (at := metrics.value(metric))]


def material(db: Mesh) -> list[Material]:
    """Returns the certificates and roots of Secrets, those of `MOST` at most; private keys are not among them."""
    held = ((key, pem) for key, row in SECRET.table(db).rows() for pem in _certificates(row.spec.data))
    return [Material(f"Secret {key.namespace}/{key.name}", pem) for key, pem in islice(held, MOST)]


def _certificates(data: Mapping[str, bytes]) -> Iterable[bytes]:
    pair, roots = find_key_pair(data), find_roots(data)
    if isinstance(pair, KeyPair):
        yield pair.chain.content
    if isinstance(roots, Roots):
        yield roots.certificates.content


def validity(found: Iterable[Material]) -> list[Validity]:
    """Returns from when until when the first certificate of each is valid. What is no certificate is left out, for it is a problem elsewhere."""
    shown = []
    for item in found:
        try:
            first = x509.load_pem_x509_certificates(item.pem)[0]
        except ValueError:
            continue
        shown.append(Validity(item.name, first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp()))
    return shown
