"""Leaf certificates: names, usage and lifetime, and rejected requests."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from ca.authority import Authority
from ca.csr import MAX_SIZE, decode_csr
from ca.errors import SigningError
from ca.self_signed import sign_root
from ca.signer import Signer
from testing.security.certificates import (
    DAY,
    IDENTITY,
    NOW,
    csr,
    ec_key,
    intermediate,
    name,
    request_pem,
    root,
    rsa_key,
)

HOUR, SECOND = datetime.timedelta(hours=1), datetime.timedelta(seconds=1)


def authority(
    signer: Signer | None = None, default: datetime.timedelta = DAY, longest: datetime.timedelta = 90 * DAY
) -> Authority:
    return Authority(signer or root(), default, longest, lambda: NOW)


def parse_leaf(chain: list[str]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(chain[0].encode())


def alternative_names(leaf: x509.Certificate) -> x509.Extension[x509.SubjectAlternativeName]:
    return leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_leaf_has_only_the_identity_of_the_caller() -> None:
    leaf = parse_leaf(
        authority().sign(
            csr(names=("spiffe://cluster.local/ns/bank/sa/admin", "spiffe://other/ns/a/sa/b")), [IDENTITY], 3600
        )
    )
    assert alternative_names(leaf).value.get_values_for_type(x509.UniformResourceIdentifier) == [IDENTITY]
    assert len(list(alternative_names(leaf).value)) == 1
    assert alternative_names(leaf).critical


def test_alternative_name_type_follows_the_identity() -> None:
    names = alternative_names(
        parse_leaf(authority().sign(csr(), [IDENTITY, "10.0.0.1", "fd00::1", "istiod.istio-system.svc"], 60))
    ).value
    assert [type(n).__name__ for n in names] == ["UniformResourceIdentifier", "IPAddress", "IPAddress", "DNSName"]


def test_leaf_usage_is_server_and_client_but_not_ca() -> None:
    leaf = parse_leaf(authority().sign(csr(), [IDENTITY], 60))
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.digital_signature, usage.value.key_encipherment, usage.value.key_cert_sign) == (
        True,
        True,
        False,
    )
    extended = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(extended) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    critical = {
        "keyUsage": True,
        "extendedKeyUsage": False,
        "basicConstraints": True,
        "subjectAltName": True,
        "authorityKeyIdentifier": False,
    }
    assert {extension.oid._name: extension.critical for extension in leaf.extensions} == critical


def test_authority_key_identifier_matches_the_signer() -> None:
    def authority_key_ids(signer: Signer) -> list[bytes | None]:
        extensions = parse_leaf(authority(signer).sign(csr(), [IDENTITY], 60)).extensions
        return [e.value.key_identifier for e in extensions if isinstance(e.value, x509.AuthorityKeyIdentifier)]

    assert authority_key_ids(root()) == [x509.SubjectKeyIdentifier.from_public_key(root().key.public_key()).digest]
    assert authority_key_ids(intermediate(root())) == []  # the intermediate has no subject key identifier


@pytest.mark.parametrize(
    ("seconds", "end"),
    [(3600, NOW + HOUR), (1, NOW + SECOND), (0, NOW + DAY), (-5, NOW + DAY), (90 * 86400, NOW + 90 * DAY)],
    ids=["requested", "shortest", "default", "negative", "longest"],
)
def test_leaf_lifetime(seconds: int, end: datetime.datetime) -> None:
    assert parse_leaf(authority().sign(csr(), [IDENTITY], seconds)).not_valid_after_utc == end


@pytest.mark.parametrize(("seconds", "backdating"), [(86400, 900), (9000, 900), (120, 12), (60, 6)])
def test_leaf_is_backdated_by_at_most_a_tenth_of_its_lifetime(seconds: int, backdating: int) -> None:
    leaf = parse_leaf(authority().sign(csr(), [IDENTITY], seconds))
    assert leaf.not_valid_before_utc == NOW - datetime.timedelta(seconds=backdating)


def test_leaf_expires_no_later_than_its_signer() -> None:
    signer = root(lifetime=HOUR)
    assert parse_leaf(authority(signer).sign(csr(), [IDENTITY], 86400)).not_valid_after_utc == NOW + HOUR


def test_default_lifetime_is_limited_by_the_chain() -> None:
    signer = intermediate(root(), lifetime=HOUR)
    assert authority(signer).default_ttl == HOUR


@pytest.mark.parametrize(
    ("lifetime", "ended"), [(-SECOND, "03:04:04"), (0 * SECOND, "03:04:05")], ids=["a second ago", "now"]
)
def test_expired_signer_issues_nothing(lifetime: datetime.timedelta, ended: str) -> None:
    with pytest.raises(SigningError) as caught:
        authority(root(lifetime=lifetime)).sign(csr(), [IDENTITY], 60)
    assert caught.value.code == "CERT_GEN_ERROR"
    assert str(caught.value) == f"the signing certificate expired at 2026-01-02T{ended}Z"
    assert not caught.value.is_callers_fault


def test_lifetime_above_the_maximum_is_rejected() -> None:
    with pytest.raises(SigningError) as caught:
        authority().sign(csr(), [IDENTITY], 90 * 86400 + 1)
    assert caught.value.code == "TTL_ERROR"
    assert str(caught.value) == "the requested lifetime of 7776001 s exceeds 7776000 s"
    assert caught.value.is_callers_fault


def test_requested_common_name_becomes_the_identity() -> None:
    def subject(common_name: str | None, identity: str) -> list[str]:
        leaf = parse_leaf(authority().sign(csr(common_name=common_name), [identity], 60))
        return [str(a.value) for a in leaf.subject]

    assert subject(None, IDENTITY) == []
    assert subject("anything", IDENTITY) == [IDENTITY]
    longest = "spiffe://cluster.local/ns/" + "n" * 31 + "/sa/web"
    assert len(longest) == 64  # the upper bound of X.520
    assert subject("anything", longest) == [longest]
    assert subject("anything", longest + "s") == []


@pytest.mark.parametrize(
    ("curve", "digest"),
    [(ec.SECP256R1, "sha256"), (ec.SECP384R1, "sha384"), (ec.SECP521R1, "sha512")],
    ids=["P-256", "P-384", "P-521"],
)
def test_digest_follows_the_curve_of_the_signer(curve: type[ec.EllipticCurve], digest: str) -> None:
    leaf = parse_leaf(authority(sign_root(ec_key(1, curve), name("d"), DAY, NOW)).sign(csr(), [IDENTITY], 60))
    assert leaf.signature_hash_algorithm is not None
    assert leaf.signature_hash_algorithm.name == digest


def test_leaves_for_supported_key_types_verify() -> None:
    signer = intermediate(root())
    for key in (ec_key(), rsa_key(), ed25519.Ed25519PrivateKey.generate()):
        leaf = parse_leaf(authority(signer).sign(csr(key), [IDENTITY], 60))
        leaf.verify_directly_issued_by(signer.certificate)
        assert leaf.public_key() == key.public_key()


def test_chain_is_leaf_intermediates_and_one_bundle_of_roots() -> None:
    parent = root()
    signer = intermediate(parent)._replace(roots=(*parent.roots, *root(1).roots))
    chain = authority(signer).sign(csr(), [IDENTITY], 60)
    assert len(chain) == 3
    assert [text.count("BEGIN CERTIFICATE") for text in chain] == [1, 1, 2]
    assert chain[0].endswith("-----\n\n")
    assert x509.load_pem_x509_certificate(chain[1].encode()) == signer.certificate
    assert len(authority(parent).sign(csr(), [IDENTITY], 60)) == 2


def _der() -> bytes:
    return x509.load_pem_x509_csr(csr()).public_bytes(serialization.Encoding.DER)


DER = _der()  # computed once, because EC signatures are not deterministic


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: b"",
        lambda: b"no pem",
        lambda: csr()[:200],
        lambda: request_pem(b"\x30\x03\x02\x01\x01"),
        lambda: b"\xff" * 100,
        lambda: csr() + b"\n" * MAX_SIZE,
        lambda: request_pem(DER[:-1] + bytes([DER[-1] ^ 1])),
        lambda: csr(dsa.generate_private_key(1024)),
        lambda: csr(rsa_key(1024)),
        lambda: csr(ec_key(2, ec.SECP192R1)),
    ],
    ids=[
        "empty",
        "text",
        "truncated",
        "not a request",
        "binary",
        "too large",
        "tampered",
        "DSA",
        "short RSA",
        "other curve",
    ],
)
def test_invalid_request_is_rejected(request_of: object) -> None:
    assert callable(request_of)
    with pytest.raises(SigningError) as caught:
        authority().sign(request_of(), [IDENTITY], 60)
    assert caught.value.code == "CSR_ERROR"
    assert caught.value.is_callers_fault


def test_request_size_limit() -> None:
    request = csr().ljust(16384, b"\n")
    assert decode_csr(request).public_key == ec_key().public_key()
    with pytest.raises(SigningError, match=r"^the request has 16385 bytes; at most 16384 are allowed$"):
        decode_csr(request + b"\n")


@pytest.mark.parametrize("identity", ["spiffe://clüster/ns/a/sa/b", "näme"])
def test_identity_that_is_no_valid_name_is_an_internal_error(identity: str) -> None:
    with pytest.raises(SigningError) as caught:
        authority().sign(csr(), [identity], 60)
    assert caught.value.code == "CERT_GEN_ERROR"


@given(st.binary(max_size=300))
def test_random_bytes_are_rejected(data: bytes) -> None:
    for pem in (data, request_pem(data)):
        with pytest.raises(SigningError):
            decode_csr(pem)


@given(st.integers(0, len(DER) - 1), st.integers(1, 255))
def test_tampered_request_is_never_accepted_for_another_key(position: int, flip: int) -> None:
    data = DER[:position] + bytes([DER[position] ^ flip]) + DER[position + 1 :]
    try:
        request = decode_csr(request_pem(data))
    except SigningError:
        return
    assert request.public_key == ec_key().public_key()
