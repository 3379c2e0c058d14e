"""Rules of certificates, keys and roots: what Envoy would refuse is found before it is sent. Whether they have expired
is not looked at.

The library says that something is wrong by exceptions of many kinds, and of others in its next version: here they all
mean the same.
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


def find_flaw(found: KeyPair | Roots) -> Flaw | None:
    """Returns why Envoy would refuse a certificate with its key, or roots; None where it takes them.

    Nothing of a key is in the reason.
    """
    return _flaw_of_pair(found) if isinstance(found, KeyPair) else _flaw_of_roots(found)


def usable_staple(pair: KeyPair) -> Value | None:
    """Returns the OCSP response of a certificate; None where there is none, or one that Envoy would refuse the
    certificate for.
    """
    return None if pair.staple is None or find_staple_flaw(pair) else pair.staple


def find_staple_flaw(pair: KeyPair) -> Flaw | None:
    """Returns why the OCSP response cannot be sent with its certificate; None where it can, or there is none."""
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
    """Returns why a bundle cannot verify the mesh's workloads, None where it can: it needs certificates that may sign
    others.
    """
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
    except Exception:  # there is no such extension, or a broken one
        return False


def _flaw(value: Value, reason: str) -> Flaw:
    return Flaw(f"data[{value.key}]", reason)


def _load_certificates(value: Value) -> list[x509.Certificate]:
    """Returns the certificates of a bundle, in which names and times are right too: the library looks at these only
    when it is asked.
    """
    found = x509.load_pem_x509_certificates(_whole(value))
    for one in found:
        _ = one.subject, one.issuer, one.not_valid_before_utc, one.not_valid_after_utc
    return found


def _check_lists(value: Value) -> int:
    """Returns how many lists of revoked certificates there are. It raises something where one is broken."""
    lists = _CRL.findall(_whole(value))
    for pem in lists:
        found = x509.load_pem_x509_crl(pem)
        _ = found.issuer, found.last_update_utc, found.next_update_utc, [entry.serial_number for entry in found]
    return len(lists)


def _whole(value: Value) -> bytes:
    """Returns PEM, each block of which begins a line and is closed.

    ValueError for other PEM: some libraries pass over that, Envoy's does not.
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
        return _flaw(pair.private_key, "contains no valid PEM private key without a passphrase")
    if private.public_key() != public:
        return _flaw(pair.private_key, f"does not match the certificate in data[{pair.chain.key}]")
    if reason := _unsupported(public):
        return _flaw(pair.chain, reason)
    if _must_staple(certificate) and (pair.staple is None or find_staple_flaw(pair)):
        return _flaw(pair.staple or pair.chain, "requires a valid OCSP response (tls.ocsp-staple)")
    return None


def _unsupported(key: object) -> str:
    """Returns what Envoy has against a kind of key, "" for nothing."""
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
    except Exception:  # there is no such extension, or a broken one
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
