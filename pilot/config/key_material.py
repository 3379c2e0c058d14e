"""Certificates, private keys and root certificates in Secrets and ConfigMaps.

The data keys are those that Istio documents:
https://istio.io/latest/docs/tasks/traffic-management/ingress/secure-ingress/#key-formats
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import NamedTuple

OCSP_STAPLE = "tls.ocsp-staple"
_PAIRS = (("cert", "key"), ("tls.crt", "tls.key"))
_ROOTS = (("cacert", "crl"), ("ca.crt", "ca.crl"))
_BEGIN, _DASHES = b"-----BEGIN ", b"-----"
_BEGIN_CERTIFICATE, _END_CERTIFICATE = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_LABEL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ")
_PRIVATE = b"PRIVATE KEY-----"


class Value(NamedTuple):
    """The content of a data key. The repr omits the content."""

    key: str
    content: bytes

    def __repr__(self) -> str:
        return f"Value({self.key!r}, {len(self.content)} bytes)"


class KeyPair(NamedTuple):
    """A certificate chain with its private key and an optional OCSP response."""

    chain: Value
    private_key: Value
    staple: Value | None = None


class Roots(NamedTuple):
    """Root certificates for the verification of peers, and an optional certificate revocation list."""

    certificates: Value
    revoked: Value | None = None


class Flaw(NamedTuple):
    """The reason why an object is not a valid credential.

    `path` is the location in the object, such as `data[tls.crt]`.
    """

    path: str
    reason: str
    object: str = ""


def find_key_pair(data: Mapping[str, bytes]) -> KeyPair | Flaw:
    """Return the certificate and private key in an object's data, or a Flaw if either is missing."""
    for certificate, key in _PAIRS:
        if data.get(certificate) and data.get(key):
            staple = Value(OCSP_STAPLE, data[OCSP_STAPLE]) if data.get(OCSP_STAPLE) else None
            return KeyPair(Value(certificate, _without_keys(data[certificate])), Value(key, data[key]), staple)
    return _missing(data, _PAIRS)


def find_roots(data: Mapping[str, bytes]) -> Roots | Flaw:
    """Return the root certificates in an object's data, or a Flaw if there are none."""
    for roots, crl in _ROOTS:
        if data.get(roots):
            return Roots(Value(roots, _without_keys(data[roots])), Value(crl, data[crl]) if data.get(crl) else None)
    return _missing(data, tuple((roots,) for roots, _ in _ROOTS))


class PemBlock(NamedTuple):
    """A PEM block. `label` is its type, such as b"CERTIFICATE", and `content` includes the first and the last line."""

    label: bytes
    content: bytes

    @property
    def der(self) -> bytes:
        """The decoded content. Raise ValueError if it is not valid Base64."""
        return base64.b64decode(self.content.split(_DASHES)[2])


def split_pem(pem: bytes) -> list[PemBlock]:
    """Return the blocks in PEM content, in time proportional to its size.

    Raise ValueError if a block is not closed, has headers, or does not start at the beginning of a line. Envoy rejects
    such content although some libraries accept it.
    """
    before, *parts = pem.split(_BEGIN)
    blocks: list[PemBlock] = []
    for part in parts:
        label, _, rest = part.partition(_DASHES)
        body, end, after = rest.partition(b"\n-----END " + label + _DASHES)
        starts_a_line = before.endswith(b"\n") or not (blocks or before)
        if not starts_a_line or not end or after.partition(b"\n")[0].strip():
            raise ValueError("a block is not closed, or is indented")
        if not label or not _LABEL.issuperset(label) or not body[:1].isspace() or b":" in body:
            raise ValueError("a block has an invalid label, or headers")
        blocks.append(PemBlock(label, _BEGIN + label + _DASHES + body + end + b"\n"))
        before = after
    return blocks


def split_certificates(pem: str) -> tuple[str, ...]:
    """Return the PEM block of each certificate in a bundle, without trailing line breaks."""
    return tuple(block.decode().strip() for block in certificate_blocks(pem.encode()))


def certificate_blocks(pem: bytes) -> Iterator[bytes]:
    """Yield the PEM block of each certificate in a bundle. Other content is skipped, and so are unclosed blocks."""
    for part in pem.split(_BEGIN_CERTIFICATE)[1:]:
        body, closed, after = part.partition(_END_CERTIFICATE)
        if closed:
            yield _BEGIN_CERTIFICATE + body + closed + (b"\n" if after.startswith(b"\n") else b"")


def _without_keys(pem: bytes) -> bytes:
    """Return a certificate bundle without private keys, because certificates may be displayed.

    Some tools include the private key in the bundle.
    """
    return b"".join(certificate_blocks(pem)) if _PRIVATE in pem else pem


def _missing(data: Mapping[str, bytes], layouts: tuple[tuple[str, ...], ...]) -> Flaw:
    for layout in layouts:
        if any(key in data for key in layout):
            absent = next((key for key in layout if not data.get(key)), layout[0])
            return Flaw(f"data[{absent}]", "is empty" if absent in data else "is missing")
    return Flaw("data", f"has neither {' nor '.join(' with '.join(layout) for layout in layouts)}")
