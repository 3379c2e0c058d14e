"""Certificate signing requests.

Only the public key and the presence of a common name are used. The signature proves possession of the private key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca.errors import SigningError

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
MAX_SIZE = 16 * 1024
"""Maximum size of a request in bytes. A request for an RSA key of 8192 bits has 3 kB."""
RSA_BITS = range(2048, 8193)
CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_ORGANIZATION = x509.NameOID.ORGANIZATION_NAME


class SigningRequest(NamedTuple):
    """The properties of a CSR that affect the certificate. Requested names and extensions are ignored."""

    public_key: PublicKey
    has_common_name: bool


def decode_csr(pem: bytes) -> SigningRequest:
    """Return the request in the first PEM block.

    Raise SigningError with the code CSR_ERROR if there is no request, if it is not signed with its own key, or if the
    type or size of the key is not supported.
    """
    if len(pem) > MAX_SIZE:
        raise SigningError("CSR_ERROR", f"the request has {len(pem)} bytes; at most {MAX_SIZE} are allowed")
    try:
        csr = x509.load_pem_x509_csr(pem)
        key = csr.public_key()
        subject = csr.subject
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise SigningError("CSR_ERROR", f"cannot decode the request: {error}") from error
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
        raise SigningError("CSR_ERROR", f"keys of type {type(key).__name__} are not supported")
    if isinstance(key, rsa.RSAPublicKey) and key.key_size not in RSA_BITS:
        raise SigningError("CSR_ERROR", f"an RSA key of {key.key_size} bits is not supported")
    if isinstance(key, ec.EllipticCurvePublicKey) and not isinstance(key.curve, CURVES):
        raise SigningError("CSR_ERROR", f"the curve {key.curve.name} is not supported")
    if not _is_signed_by_its_key(csr):
        raise SigningError("CSR_ERROR", "the request is not signed with its own key")
    return SigningRequest(key, bool(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)))


def _is_signed_by_its_key(csr: x509.CertificateSigningRequest) -> bool:
    try:
        return csr.is_signature_valid
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False


def check_requested_names(csr: bytes, identities: Sequence[str]) -> bytes:
    """Return the CSR in PEM, without surrounding text. It must be valid and request exactly one of the identities.

    An external signer issues what the CSR requests. Raise SigningError with the code CSR_ERROR if it requests anything
    else.
    """
    request = x509.load_pem_x509_csr(csr)
    try:
        names = certificate_names(request)
    except (ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension) as error:
        raise SigningError("CSR_ERROR", f"cannot parse the subject alternative names of the CSR: {error}") from error
    extensions = [
        extension.oid.dotted_string
        for extension in request.extensions
        if not isinstance(extension.value, x509.SubjectAlternativeName)
    ]
    if extensions:
        raise SigningError("CSR_ERROR", f"the request has extensions other than names: {', '.join(extensions)}")
    if any(attribute.oid != _ORGANIZATION for attribute in request.subject):
        raise SigningError("CSR_ERROR", f"the subject {request.subject.rfc4514_string()} is not allowed")
    if len(names) != 1 or not names <= set(identities):
        requested = ", ".join(sorted(names)) or "no identity"
        raise SigningError("CSR_ERROR", f"the request is for {requested}, but the caller is {', '.join(identities)}")
    return request.public_bytes(serialization.Encoding.PEM)


def certificate_names(signed: x509.CertificateSigningRequest | x509.Certificate) -> set[str]:
    """Return the names in a CSR or certificate. A name that is not a URI is returned in a form that matches no
    identity."""
    try:
        names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {name.value if isinstance(name, x509.UniformResourceIdentifier) else repr(name) for name in names}
