"""Validation of certificates, keys and roots. Values that Envoy would reject are not sent.

Expiry is not checked. The cryptography library reports invalid input with many types of exceptions, which may change
between versions, so every exception is handled in the same way.
"""

from __future__ import annotations

import re

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509 import ocsp

from pilot.config.key_material import Flaw, KeyPair, Roots, Value

_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_RSA_BITS = 2048
_BLOCK = re.compile(rb"^-----BEGIN ([A-Z0-9 ]+)-----\s[^:]+?^-----END \1-----\s*?$", re.DOTALL | re.MULTILINE)
_CRL = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----\n?", re.DOTALL)


def find_flaw(material: KeyPair | Roots) -> Flaw | None:
    """Return why Envoy would reject a key pair or roots, or None if it accepts them. The reason excludes the key."""
    return _flaw_of_pair(material) if isinstance(material, KeyPair) else _flaw_of_roots(material)


def usable_staple(pair: KeyPair) -> Value | None:
    """Return the OCSP response of a key pair. Return None if there is none, or if Envoy would reject it."""
    return None if pair.staple is None or find_staple_flaw(pair) else pair.staple


def find_staple_flaw(pair: KeyPair) -> Flaw | None:
    """Return why the OCSP response of a key pair cannot be used. Return None if it can be used, or if there is none."""
    if pair.staple is None:
        return None
    try:
        response = ocsp.load_der_ocsp_response(pair.staple.content)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            return _flaw(pair.staple, f"is an OCSP response with status {response.response_status.name}")
        serials = [single.serial_number for single in response.responses]
    except Exception:
        return _flaw(pair.staple, "is not an OCSP response in DER format")
    if len(serials) != 1 or serials[0] != _load_certificates(pair.chain)[0].serial_number:
        return _flaw(pair.staple, "is not the OCSP response for this certificate")
    return None


def find_authority_flaw(pem: str) -> str | None:
    """Return why a bundle cannot be used to verify workloads, or None if it consists of CA certificates."""
    try:
        certificates = _load_certificates(Value("pem", pem.encode()))
    except Exception:
        return "contains no valid PEM certificates"
    return (
        None
        if all(map(_may_sign, certificates))
        else "contains a certificate that is not a CA certificate (basicConstraints CA:TRUE)"
    )


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except Exception:  # there is no such extension, or it is invalid
        return False


def _flaw(value: Value, reason: str) -> Flaw:
    return Flaw(f"data[{value.key}]", reason)


def _load_certificates(value: Value) -> list[x509.Certificate]:
    """Return the certificates in a bundle. Names and times are accessed because the library parses them lazily."""
    certificates = x509.load_pem_x509_certificates(_whole(value))
    for certificate in certificates:
        _ = certificate.subject, certificate.issuer, certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return certificates


def _check_lists(value: Value) -> int:
    """Return the number of certificate revocation lists. Raise an exception if one is invalid."""
    lists = _CRL.findall(_whole(value))
    for pem in lists:
        revoked = x509.load_pem_x509_crl(pem)
        _ = revoked.issuer, revoked.last_update_utc, revoked.next_update_utc, [entry.serial_number for entry in revoked]
    return len(lists)


def _whole(value: Value) -> bytes:
    """Return the PEM content if each block is closed and starts at the beginning of a line.

    Otherwise raise ValueError, because Envoy rejects such content although some libraries accept it.
    """
    if value.content.count(b"-----BEGIN ") != len(_BLOCK.findall(value.content)):
        raise ValueError("a block is not closed, or is indented")
    return value.content


def _flaw_of_pair(pair: KeyPair) -> Flaw | None:
    try:
        certificate = _load_certificates(pair.chain)[0]
        public = certificate.public_key()
    except Exception:
        return _flaw(pair.chain, "contains no valid PEM certificates")
    try:
        private = serialization.load_pem_private_key(_whole(pair.private_key), None)
    except Exception:
        return _flaw(pair.private_key, "does not contain a valid unencrypted PEM private key")
    if private.public_key() != public:
        return _flaw(pair.private_key, f"does not match the certificate in data[{pair.chain.key}]")
    if reason := _unsupported(public):
        return _flaw(pair.chain, reason)
    if _must_staple(certificate) and (pair.staple is None or find_staple_flaw(pair)):
        return _flaw(pair.staple or pair.chain, "requires a valid OCSP response (tls.ocsp-staple)")
    return None


def _unsupported(key: object) -> str:
    """Return why Envoy does not support a public key, or "" if it does."""
    match key:
        case rsa.RSAPublicKey():
            return (
                f"has an RSA key of {key.key_size} bits; at least {_RSA_BITS} are required"
                if key.key_size < _RSA_BITS
                else ""
            )
        case ec.EllipticCurvePublicKey():
            return (
                ""
                if isinstance(key.curve, _CURVES)
                else f"has a key on the curve {key.curve.name}; P-256, P-384 and P-521 are supported"
            )
        case ed25519.Ed25519PublicKey():
            return ""
    return "has an unsupported type of key"


def _must_staple(certificate: x509.Certificate) -> bool:
    try:
        features = certificate.extensions.get_extension_for_class(x509.TLSFeature).value
    except Exception:  # there is no such extension, or it is invalid
        return False
    return x509.TLSFeatureType.status_request in features


def _flaw_of_roots(roots: Roots) -> Flaw | None:
    try:
        _load_certificates(roots.certificates)
    except Exception:
        return _flaw(roots.certificates, "contains no valid PEM certificates")
    if roots.revoked is None:
        return None
    try:
        count = _check_lists(roots.revoked)
    except Exception:
        count = 0
    return None if count else _flaw(roots.revoked, "contains no valid PEM certificate revocation list")
