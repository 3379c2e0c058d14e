"""Checks whether proxies that trust the reference's root certificate will trust certificates of this control plane."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from pilot.kube.api_errors import ApiError
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind

_SECRET, _CONFIG_MAP = VersionedKind("v1", "Secret"), VersionedKind("v1", "ConfigMap")
ROOT_CONFIG_MAP = "istio-ca-root-cert"
_SOURCES = (
    ("cacerts", "root-cert.pem", "ca-cert.pem"),
    ("cacerts", "ca.crt", "tls.crt"),
    ("istio-ca-secret", "ca-cert.pem", "ca-cert.pem"),
)
"""Secrets with an authority, in the order in which both control planes look for them, with the keys of the root and of
the signing certificate."""


class Continuity(NamedTuple):
    """Continuity of the root: `is_same` if workloads trust it already. `source` is the Secret with the authority."""

    is_same: bool
    source: str
    message: str


async def published_root(client: ObjectClient, namespace: str) -> bytes:
    """Return the root certificates that workloads of a namespace trust, or b"" if the ConfigMap does not exist."""
    published = await client.get(ResourceKey(_CONFIG_MAP, namespace, ROOT_CONFIG_MAP))
    return str((((published or {}).get("data")) or {}).get("root-cert.pem", "")).encode()


async def check_authority(client: ObjectClient, namespace: str) -> Continuity:
    """Return whether this control plane would sign with the root that workloads trust now."""
    trusted = _fingerprints(await published_root(client, namespace))
    for name, root_key, signing_key in _SOURCES:
        try:
            secret = await client.get(ResourceKey(_SECRET, namespace, name))
        except ApiError as error:
            return Continuity(False, name, f"Secret {namespace}/{name} cannot be read: {error}")
        data = (secret or {}).get("data") or {}
        if data.get(signing_key):
            return compare_roots(f"Secret {namespace}/{name}", _decoded(data, root_key), trusted)
    return Continuity(
        False,
        "",
        f"neither Secret cacerts nor istio-ca-secret is in {namespace}: this control plane would create a new root",
    )


def compare_roots(source: str, root: bytes, trusted: frozenset[str]) -> Continuity:
    """Return whether workloads that trust some roots, given by their fingerprints, trust the root in a Secret."""
    roots = _fingerprints(root)
    if not roots:
        return Continuity(False, source, f"{source} contains no valid root certificate")
    if not trusted:
        return Continuity(True, source, f"the root is in {source}; no ConfigMap istio-ca-root-cert to compare it with")
    if roots & trusted:
        return Continuity(True, source, f"workloads trust the root in {source} already")
    return Continuity(False, source, f"workloads trust another root than the one in {source}")


def _decoded(data: Mapping[str, str], key: str) -> bytes:
    try:
        return base64.b64decode(data.get(key, ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _fingerprints(pem: bytes) -> frozenset[str]:
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return frozenset()
    return frozenset(certificate.fingerprint(hashes.SHA256()).hex() for certificate in certificates)
