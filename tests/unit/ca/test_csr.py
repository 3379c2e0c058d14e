"""Leaves: what they say, for how long, and which requests get none."""

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


def leaf_of(chain: list[str]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(chain[0].encode())


def names_of(leaf: x509.Certificate) -> x509.Extension[x509.SubjectAlternativeName]:
    return leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_a_leaf_is_for_the_callers_identity_whatever_the_request_names() -> None:
    leaf = leaf_of(
        authority().sign(
            csr(names=("spiffe://cluster.local/ns/bank/sa/admin", "spiffe://other/ns/a/sa/b")), [IDENTITY], 3600
        )
    )
    assert names_of(leaf).value.get_values_for_type(x509.UniformResourceIdentifier) == [IDENTITY]
    assert len(list(names_of(leaf).value)) == 1
    assert names_of(leaf).critical


def test_identities_become_names_by_their_form() -> None:
    names = names_of(
        leaf_of(authority().sign(csr(), [IDENTITY, "10.0.0.1", "fd00::1", "istiod.istio-system.svc"], 60))
    ).value
    assert [type(n).__name__ for n in names] == ["UniformResourceIdentifier", "IPAddress", "IPAddress", "DNSName"]


def test_a_leaf_may_be_server_and_client_and_sign_nothing() -> None:
    leaf = leaf_of(authority().sign(csr(), [IDENTITY], 60))
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


def test_a_leaf_names_the_key_of_its_signer_where_that_names_it_itself() -> None:
    def named(signer: Signer) -> list[bytes | None]:
        extensions = leaf_of(authority(signer).sign(csr(), [IDENTITY], 60)).extensions
        return [e.value.key_identifier for e in extensions if isinstance(e.value, x509.AuthorityKeyIdentifier)]

    assert named(root()) == [x509.SubjectKeyIdentifier.from_public_key(root().key.public_key()).digest]
    assert named(intermediate(root())) == []  # it has none


@pytest.mark.parametrize(
    ("asked", "end"),
    [(3600, NOW + HOUR), (1, NOW + SECOND), (0, NOW + DAY), (-5, NOW + DAY), (90 * 86400, NOW + 90 * DAY)],
    ids=["as asked", "shortest", "default", "negative", "longest"],
)
def test_life_of_a_leaf(asked: int, end: datetime.datetime) -> None:
    leaf = leaf_of(authority().sign(csr(), [IDENTITY], asked))
    assert leaf.not_valid_before_utc == NOW - datetime.timedelta(minutes=2)
    assert leaf.not_valid_after_utc == end


def test_a_leaf_ends_with_its_signer() -> None:
    signer = root(life=HOUR)
    assert leaf_of(authority(signer).sign(csr(), [IDENTITY], 86400)).not_valid_after_utc == NOW + HOUR


def test_the_default_life_is_no_longer_than_the_chain_lives_at_the_start() -> None:
    signer = intermediate(root(), life=HOUR)
    assert authority(signer).default_ttl == HOUR


@pytest.mark.parametrize(
    ("life", "ended"), [(-SECOND, "03:04:04"), (0 * SECOND, "03:04:05")], ids=["a second ago", "now"]
)
def test_an_ended_signer_issues_nothing(life: datetime.timedelta, ended: str) -> None:
    with pytest.raises(SigningError) as caught:
        authority(root(life=life)).sign(csr(), [IDENTITY], 60)
    assert caught.value.code == "CERT_GEN_ERROR"
    assert str(caught.value) == f"the signing certificate expired at 2026-01-02T{ended}Z"
    assert not caught.value.is_callers_fault


def test_a_second_more_than_the_longest_life_is_refused() -> None:
    with pytest.raises(SigningError) as caught:
        authority().sign(csr(), [IDENTITY], 90 * 86400 + 1)
    assert caught.value.code == "TTL_ERROR"
    assert str(caught.value) == "the requested lifetime of 7776001 s exceeds 7776000 s"
    assert caught.value.is_callers_fault


def test_a_common_name_is_the_identity_where_one_was_asked_for() -> None:
    def subject(asked: str | None, identity: str) -> list[str]:
        leaf = leaf_of(authority().sign(csr(common_name=asked), [identity], 60))
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
def test_the_digest_follows_the_signers_curve(curve: type[ec.EllipticCurve], digest: str) -> None:
    leaf = leaf_of(authority(sign_root(ec_key(1, curve), name("d"), DAY, NOW)).sign(csr(), [IDENTITY], 60))
    assert leaf.signature_hash_algorithm is not None
    assert leaf.signature_hash_algorithm.name == digest


def test_keys_of_every_supported_kind_get_leaves_that_verify() -> None:
    signer = intermediate(root())
    for key in (ec_key(), rsa_key(), ed25519.Ed25519PrivateKey.generate()):
        leaf = leaf_of(authority(signer).sign(csr(key), [IDENTITY], 60))
        leaf.verify_directly_issued_by(signer.certificate)
        assert leaf.public_key() == key.public_key()


def test_a_chain_is_leaf_intermediates_and_all_roots_as_one() -> None:
    above = root()
    signer = intermediate(above)._replace(roots=(*above.roots, *root(1).roots))
    chain = authority(signer).sign(csr(), [IDENTITY], 60)
    assert len(chain) == 3
    assert [text.count("BEGIN CERTIFICATE") for text in chain] == [1, 1, 2]
    assert chain[0].endswith("-----\n\n")
    assert x509.load_pem_x509_certificate(chain[1].encode()) == signer.certificate
    assert len(authority(above).sign(csr(), [IDENTITY], 60)) == 2


def _der() -> bytes:
    return x509.load_pem_x509_csr(csr()).public_bytes(serialization.Encoding.DER)


DER = _der()  # one, because every signature of an EC key is another


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
    ids=["empty", "text", "cut", "not a request", "binary", "too large", "tampered", "DSA", "short RSA", "other curve"],
)
def test_requests_that_get_nothing(request_of: object) -> None:
    assert callable(request_of)
    with pytest.raises(SigningError) as caught:
        authority().sign(request_of(), [IDENTITY], 60)
    assert caught.value.code == "CSR_ERROR"
    assert caught.value.is_callers_fault


def test_a_request_of_64_kibibytes_is_read_and_none_that_is_longer() -> None:
    request = csr().ljust(65536, b"\n")
    assert decode_csr(request).public_key == ec_key().public_key()
    with pytest.raises(SigningError, match=r"^the request has 65537 bytes; at most 65536 are allowed$"):
        decode_csr(request + b"\n")


@pytest.mark.parametrize("identity", ["spiffe://clüster/ns/a/sa/b", "näme"])
def test_an_identity_that_cannot_be_a_name_is_an_error_of_ours(identity: str) -> None:
    with pytest.raises(SigningError) as caught:
        authority().sign(csr(), [identity], 60)
    assert caught.value.code == "CERT_GEN_ERROR"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_a_csr_error(data: bytes) -> None:
    for pem in (data, request_pem(data)):
        with pytest.raises(SigningError):
            decode_csr(pem)


@given(st.integers(0, len(DER) - 1), st.integers(1, 255))
def test_a_changed_request_is_never_signed_for_another_key(at: int, flip: int) -> None:
    changed = DER[:at] + bytes([DER[at] ^ flip]) + DER[at + 1 :]
    try:
        found = decode_csr(request_pem(changed))
    except SigningError:
        return
    assert found.public_key == ec_key().public_key()
