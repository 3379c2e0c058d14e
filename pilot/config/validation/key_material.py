"""Validation of certificates, private keys and root certificates. Values that Envoy would reject are not sent.

Flaws do not include expiry, because they would change with time. The cryptography library reports invalid input with
many types of exceptions, which may change between versions, so every exception is handled in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509 import ocsp

from pilot.config.key_material import (
    OCSP_STAPLE,
    Flaw,
    KeyPair,
    PemBlock,
    Roots,
    Value,
    certificate_blocks,
    split_pem,
)

LARGEST_VALUE = 1 << 20
"""Maximum size of a value in bytes. An API server accepts no larger Secrets."""
LARGEST_KEY = 16 * 1024
"""Maximum size of a private key in bytes. An RSA key of 8192 bits takes 5 kB."""
LARGEST_STAPLE = 64 * 1024
"""Maximum size of an OCSP response in bytes. If it contains the responder's certificates, it usually takes 2 to 5 kB.
"""
MOST_BLOCKS = 1000
"""Maximum number of PEM blocks in a value. The CA bundle of a Linux distribution contains 150."""
MOST_ATTRIBUTES = 5000
"""Maximum number of attributes in all names of a value's certificates or revocation lists.

Attributes are decoded one by one. The CA bundle of a Linux distribution contains 1200.
"""
_RSA_BITS = range(2048, 8193)
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_RSA, _EC, _ED25519 = (
    bytes.fromhex("06092a864886f70d010101"),
    bytes.fromhex("06072a8648ce3d0201"),
    bytes.fromhex("06032b6570"),
)
"""The types of keys that Envoy supports, as object identifiers in DER."""
_SEQUENCE, _OBJECT_IDENTIFIER = 0x30, b"\x06"
_PKCS8, _TRADITIONAL = b"PRIVATE KEY", (b"RSA PRIVATE KEY", b"EC PRIVATE KEY")
_CERTIFICATE_LABELS, _LIST_LABELS = (b"CERTIFICATE", b"X509 CERTIFICATE"), (b"X509 CRL",)
_MUST_STAPLE = tuple(bytes.fromhex(f"06082b06010505070118{critical}04053003020105") for critical in ("", "0101ff"))
"""The certificate extension that requires an OCSP response (RFC 7633), in the encodings that Envoy recognizes."""


class ValidityPeriod(NamedTuple):
    """The times between which a certificate is valid, in Unix seconds."""

    begins: float
    ends: float


def validity_period(pem: bytes) -> ValidityPeriod | None:
    """Return the validity period of the first certificate in a PEM bundle, or None if it is not a valid certificate."""
    try:
        first = x509.load_pem_x509_certificate(next(certificate_blocks(pem), b""))
        return ValidityPeriod(first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp())
    except Exception:
        return None


class _FlawError(Exception):
    """An unusable value."""

    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(reason)
        self.flaw = Flaw(f"data[{value.key}]", reason)


def find_flaw(material: KeyPair | Roots) -> Flaw | None:
    """Return why Envoy would reject a key pair or root certificates, or None if it accepts them.

    The reason does not contain the private key.
    """
    try:
        _check_pair(material) if isinstance(material, KeyPair) else _check_roots(material)
    except _FlawError as error:
        return error.flaw
    return None


def usable_staple(pair: KeyPair) -> Value | None:
    """Return the OCSP response of a key pair. Return None if there is none, or if Envoy would reject it."""
    return None if pair.staple is None or find_staple_flaw(pair) else pair.staple


def find_staple_flaw(pair: KeyPair) -> Flaw | None:
    """Return why the OCSP response of a key pair cannot be used. Return None if it can be used, or if there is none."""
    try:
        if pair.staple is not None:
            _check_staple(pair.staple, _load_certificates(pair.chain)[0])
    except _FlawError as error:
        return error.flaw
    return None


def find_authority_flaw(pem: str) -> str | None:
    """Return why a bundle cannot be used to verify workloads, or None if it consists of CA certificates."""
    try:
        certificates = _load_certificates(Value("pem", pem.encode()))
    except _FlawError as error:
        return error.flaw.reason
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


def _check_pair(pair: KeyPair) -> None:
    certificate = _load_certificates(pair.chain)[0]
    public = _load_public_key(pair.chain, certificate)
    private = _load_private_key(pair.private_key)
    if private.public_key() != public:
        raise _FlawError(pair.private_key, f"does not match the certificate in data[{pair.chain.key}]")
    if isinstance(private, rsa.RSAPrivateKey) and not _is_consistent(private.private_numbers()):
        _reject_private_key(pair.private_key)
    if not any(extension in certificate.public_bytes(serialization.Encoding.DER) for extension in _MUST_STAPLE):
        return
    try:
        _check_staple(pair.staple or Value(OCSP_STAPLE, b""), certificate)
    except _FlawError:
        raise _FlawError(pair.staple or pair.chain, "requires a valid OCSP response (tls.ocsp-staple)") from None


def _check_staple(staple: Value, certificate: x509.Certificate) -> None:
    if len(staple.content) > LARGEST_STAPLE:
        raise _FlawError(staple, f"has {len(staple.content)} bytes; at most {LARGEST_STAPLE} are supported")
    try:
        response = ocsp.load_der_ocsp_response(staple.content)
        status = response.response_status
        is_successful = status is ocsp.OCSPResponseStatus.SUCCESSFUL
        serials = [single.serial_number for single in response.responses] if is_successful else []
    except Exception:
        raise _FlawError(staple, "is not an OCSP response in DER format") from None
    if not is_successful:
        raise _FlawError(staple, f"is an OCSP response with status {status.name}")
    if serials != [certificate.serial_number]:
        raise _FlawError(staple, "is not the OCSP response for this certificate")


def _check_roots(roots: Roots) -> None:
    _load_certificates(roots.certificates)
    if roots.revoked is not None:
        _check_lists(roots.revoked)


# -- PEM blocks --------------------------------------------------------------------------------------------------------


def _split(value: Value) -> list[PemBlock]:
    """Return the PEM blocks in a value. Raise ValueError if they are invalid, or _FlawError if there are too many."""
    if len(value.content) > LARGEST_VALUE:
        raise _FlawError(value, f"has {len(value.content)} bytes; at most {LARGEST_VALUE} are supported")
    count = value.content.count(b"-----BEGIN ")
    if count > MOST_BLOCKS:
        raise _FlawError(value, f"contains {count} PEM blocks; at most {MOST_BLOCKS} are supported")
    return split_pem(value.content)


def _blocks(value: Value, labels: tuple[bytes, ...]) -> list[PemBlock]:
    return [block for block in _split(value) if block.label in labels]


def _load_certificates(value: Value) -> list[x509.Certificate]:
    """Return the certificates in a bundle.

    Their names and times are accessed once to detect errors, because the library parses them lazily.
    """
    try:
        blocks = _blocks(value, _CERTIFICATE_LABELS)
        _check_names(value, blocks, 6)
        certificates = x509.load_pem_x509_certificates(b"".join(block.content for block in blocks))
        for one in certificates:
            _ = one.subject, one.issuer, one.not_valid_before_utc, one.not_valid_after_utc
    except _FlawError:
        raise
    except Exception:
        raise _FlawError(value, "contains no valid PEM certificates") from None
    return certificates


def _check_lists(value: Value) -> None:
    """Raise _FlawError unless a value contains a certificate revocation list, and all of its lists are valid."""
    try:
        blocks = _blocks(value, _LIST_LABELS)
        _check_names(value, blocks, 3)
        lists = [x509.load_pem_x509_crl(block.content) for block in blocks]
        for one in lists:
            _ = one.issuer, one.last_update_utc, one.next_update_utc
    except _FlawError:
        raise
    except Exception:
        lists = []
    if not lists:
        raise _FlawError(value, "contains no valid PEM certificate revocation list")


def _check_names(value: Value, blocks: Iterable[PemBlock], fields: int) -> None:
    """Raise _FlawError if the names in certificates or revocation lists have too many attributes.

    The names are among the first `fields` fields of the signed content.
    """
    signed = (_elements(block.der, 1)[0] for block in blocks)
    names = (field for content in signed for field in _elements(content, fields) if field[0] == _SEQUENCE)
    count = sum(name.count(_OBJECT_IDENTIFIER) for name in names)
    if count > MOST_ATTRIBUTES:
        raise _FlawError(value, f"has names with {count} attributes; at most {MOST_ATTRIBUTES} are supported")


# -- keys --------------------------------------------------------------------------------------------------------------


def _load_public_key(value: Value, certificate: x509.Certificate) -> object:
    """Return the key of a certificate. Raise _FlawError if Envoy does not support it."""
    try:
        key: object = certificate.public_key()
    except Exception:
        raise _FlawError(value, "contains no valid PEM certificates") from None
    match key:
        case rsa.RSAPublicKey() if key.key_size < _RSA_BITS[0]:
            raise _FlawError(value, f"has an RSA key of {key.key_size} bits; at least {_RSA_BITS[0]} are required")
        case rsa.RSAPublicKey() if key.key_size > _RSA_BITS[-1]:
            raise _FlawError(value, f"has an RSA key of {key.key_size} bits; at most {_RSA_BITS[-1]} are supported")
        case ec.EllipticCurvePublicKey() if not isinstance(key.curve, _CURVES):
            reason = f"has a key on the curve {key.curve.name}; P-256, P-384 and P-521 are supported"
            raise _FlawError(value, reason)
        case rsa.RSAPublicKey() | ec.EllipticCurvePublicKey() | ed25519.Ed25519PublicKey():
            return key
    raise _FlawError(value, "has an unsupported type of key")


def _load_private_key(value: Value) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey:
    """Return the first private key in a value.

    RSA keys are loaded without OpenSSL's check that their factors are prime, and DSA keys are rejected without loading
    them, because OpenSSL would calculate their public key. With large numbers, both take minutes.
    """
    try:
        block = next(block for block in _split(value) if block.label.endswith(b"PRIVATE KEY"))
        if len(block.content) > LARGEST_KEY or not _is_supported(block):
            _reject_private_key(value)
        key = serialization.load_pem_private_key(block.content, None, unsafe_skip_rsa_key_validation=True)
    except _FlawError:
        raise
    except Exception:
        _reject_private_key(value)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        _reject_private_key(value)
    return key


def _reject_private_key(value: Value) -> NoReturn:
    raise _FlawError(value, "does not contain a valid unencrypted PEM private key") from None


def _is_supported(block: PemBlock) -> bool:
    """Return whether a block contains a private key of a type that Envoy supports."""
    if block.label != _PKCS8:
        return block.label in _TRADITIONAL
    _, algorithm = _elements(block.der, 2)
    return _elements(algorithm, 1)[0] in (_RSA, _EC, _ED25519)


def _is_consistent(key: rsa.RSAPrivateNumbers) -> bool:
    """Return whether the numbers of a private RSA key are consistent. BoringSSL performs the same checks.

    https://boringssl.googlesource.com/boringssl/+/refs/heads/main/crypto/fipsmodule/rsa/rsa.cc.inc
    """
    n, e = key.public_numbers.n, key.public_numbers.e
    return (
        max(key.p, key.q, key.d) < n
        and key.p * key.q == n
        and all(
            prime > 1 and e * key.d % (prime - 1) == 1 and exponent < prime and e * exponent % (prime - 1) == 1
            for prime, exponent in ((key.p, key.dmp1), (key.q, key.dmq1))
        )
        and key.iqmp < key.p
        and key.q * key.iqmp % key.p == 1
    )


def _elements(der: bytes, most: int) -> list[bytes]:
    """Return the first elements of a DER sequence. `most` is the maximum number of elements to return."""
    at, end = _content_of(der, 0)
    elements: list[bytes] = []
    while at < end and len(elements) < most:
        _, following = _content_of(der, at)
        elements.append(der[at:following])
        at = following
    return elements


def _content_of(der: bytes, at: int) -> tuple[int, int]:
    """Return the offsets at which the content of the DER element at offset `at` begins and ends."""
    start, size = at + 2, der[at + 1]
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start])
    return start, start + size
