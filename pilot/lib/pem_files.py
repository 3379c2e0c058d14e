"""Checks of files with certificates and private keys in PEM, whose errors name the file and the fix."""

from __future__ import annotations

import re
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

_LABELS = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE")
_KEY = "PRIVATE KEY"
_DER = b"\x30"  # SEQUENCE, the outermost element of certificates and keys


class PemFile(NamedTuple):
    """The content of a file, and its name for messages, such as "--tlsKeyFile key.pem"."""

    name: str
    content: bytes


class PemError(ValueError):
    """A file without a usable certificate or private key. Users see the message, which does not reveal the key."""


def check_pair(chain: PemFile, key: PemFile) -> None:
    """Raise PemError unless a private key matches the first certificate of a chain."""
    if _is_key(chain) and not _is_key(key) and any(label in _CERTIFICATES for label in _labels(key)):
        raise PemError(f"{chain.name} contains a private key, and {key.name} a certificate: swap the two files")
    certificates, public = load_certificates(chain), _public_key(key)
    try:
        matches = [_encode(one.public_key()) == public for one in certificates]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PemError(f"{chain.name} contains a certificate with a key that is not supported: {error}") from error
    if not any(matches):
        raise PemError(f"{key.name} does not match {chain.name}: the certificate was issued for another private key")
    if not matches[0]:
        raise PemError(
            f"{key.name} does not match the first certificate in {chain.name}, but number {matches.index(True) + 1}; "
            "move that one to the top"
        )


def load_certificates(file: PemFile) -> list[x509.Certificate]:
    """Return the certificates in a file, of which there is at least one. Raise PemError if there is none."""
    _require(file, "certificate", any(label in _CERTIFICATES for label in _labels(file)), "x509")
    try:
        return x509.load_pem_x509_certificates(file.content)
    except (ValueError, TypeError) as error:
        raise PemError(f"{file.name} contains an invalid certificate, so it may be truncated: {error}") from error


def _public_key(file: PemFile) -> bytes:
    """Return the public key of the private key in a file in DER. Raise PemError if the file has no plain key."""
    _require(file, "private key", _is_key(file), "pkey")
    try:
        return _encode(serialization.load_pem_private_key(file.content, None).public_key())
    except TypeError:
        raise PemError(
            f"{file.name} contains an encrypted private key: decrypt it, with openssl pkey -in FILE -out OUT"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise PemError(f"{file.name} contains an invalid private key, so it may be truncated") from None


def _require(file: PemFile, what: str, is_there: bool, tool: str) -> None:
    """Raise PemError with the content of a file unless it contains what it should."""
    if is_there:
        return
    if not file.content.strip():
        raise PemError(f"{file.name} is empty: it must contain a {what} in PEM")
    if labels := _labels(file):
        raise PemError(f"{file.name} contains a {labels[0]}, not a {what}")
    hint = f"; convert DER with openssl {tool} -inform der -in FILE -out OUT" if file.content[:1] == _DER else ""
    raise PemError(f"{file.name} contains no {what} in PEM, which starts with -----BEGIN{hint}")


def _labels(file: PemFile) -> list[str]:
    return [label.decode("ascii") for label in _LABELS.findall(file.content)]


def _is_key(file: PemFile) -> bool:
    return any(label.endswith(_KEY) for label in _labels(file))


def _encode(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
