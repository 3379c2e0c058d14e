"""Verification of JSON Web Tokens and parsing of key sets."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pilot.lib.tokens.jwks import LARGEST_SET, Jwk, JwksError, parse_jwks
from pilot.lib.tokens.jwt import (
    LONGEST_TOKEN,
    MOST_CANDIDATES,
    NOT_BEFORE_SKEW,
    TokenError,
    audiences_of,
    check_recipient,
    own_claims,
    verify_token,
)
from testing.security.certificates import ec_key, rsa_key
from testing.security.tokens import base64url, jwk, sign

NOW = 1_800_000_000.0
CLAIMS = {"sub": "somebody", "exp": NOW + 10}


def keys(*plain: dict[str, Any]) -> tuple[Jwk, ...]:
    return tuple(parse_jwks(json.dumps({"keys": plain}).encode()))


KEYS = keys(jwk(rsa_key()), jwk(ec_key(), "two"))


def compact(header: Any, claims: Any, signature: bytes = b"x") -> str:
    return ".".join((*(base64url(json.dumps(part).encode()) for part in (header, claims)), base64url(signature)))


def test_valid_tokens_of_each_key_type() -> None:
    assert verify_token(sign(CLAIMS), KEYS, NOW) == CLAIMS
    assert verify_token(sign(CLAIMS, ec_key(), kid="two"), KEYS, NOW) == CLAIMS
    edwards = ed25519.Ed25519PrivateKey.generate()
    public = {"kty": "OKP", "crv": "Ed25519", "kid": "three", "x": base64url(edwards.public_key().public_bytes_raw())}
    unsigned = compact({"alg": "EdDSA", "kid": "three"}, CLAIMS).rpartition(".")[0]
    assert verify_token(f"{unsigned}.{base64url(edwards.sign(unsigned.encode()))}", keys(public), NOW) == CLAIMS
    for forged_signature in (
        edwards.sign(b"something else"),
        ed25519.Ed25519PrivateKey.generate().sign(unsigned.encode()),
        b"x",
    ):
        with pytest.raises(TokenError, match="signature"):
            verify_token(f"{unsigned}.{base64url(forged_signature)}", keys(public), NOW)
    unsigned = compact({"alg": "PS384", "kid": "one"}, CLAIMS).rpartition(".")[0]
    digest = hashes.SHA384()
    signature = rsa_key().sign(unsigned.encode(), padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
    assert verify_token(f"{unsigned}.{base64url(signature)}", KEYS, NOW) == CLAIMS


@pytest.mark.parametrize(
    ("algorithm", "curve"),
    [
        *((f"{scheme}{size}", None) for scheme in ("RS", "PS") for size in (256, 384, 512)),
        ("ES256", ec.SECP256R1()),
        ("ES384", ec.SECP384R1()),
        ("ES512", ec.SECP521R1()),
    ],
)
def test_each_algorithm_needs_its_key_type(algorithm: str, curve: ec.EllipticCurve | None) -> None:
    private = rsa_key() if curve is None else ec.generate_private_key(curve)
    algorithm_class: Any = RSAAlgorithm if curve is None else ECAlgorithm
    key_set = keys({**algorithm_class.to_jwk(private.public_key(), as_dict=True), "kid": "one"})
    token = jwt.encode(CLAIMS, private, algorithm, headers={"kid": "one"})
    assert verify_token(token, key_set, NOW) == CLAIMS
    with pytest.raises(TokenError, match="no key of the set"):
        verify_token(token, keys(jwk(rsa_key() if curve else ec_key())), NOW)


def test_public_key_is_not_an_hmac_secret() -> None:
    public = rsa_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    unsigned = compact({"alg": "HS256", "kid": "one"}, CLAIMS).rpartition(".")[0]
    token = f"{unsigned}.{base64url(hmac.digest(public, unsigned.encode(), 'sha256'))}"
    with pytest.raises(TokenError, match="no key of the set"):
        verify_token(token, KEYS, NOW)


def test_token_without_key_id_matches_any_suitable_key() -> None:
    assert verify_token(sign(CLAIMS, kid=None), (*keys(jwk(rsa_key(3072), "zero")), *KEYS), NOW) == CLAIMS


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "invalid token"),
        ("a.b", "invalid token"),
        ("a.b.c.d", "invalid token"),
        (sign(CLAIMS) + ".", "invalid token"),
        (sign(CLAIMS).replace(".", "..", 1), "invalid token"),
        ("é.b.c", "invalid token"),
        ("\ud800.b.c", "invalid token"),
        ("x" * LONGEST_TOKEN, "invalid token"),
        ("x" * (LONGEST_TOKEN + 1), "at most 16384"),
        ("!.b.c", "base64url"),
        (f"{base64url(b'[1]')}.{base64url(b'{}')}.eA", "header of the token is not a JSON object"),
        (f"{base64url(b'[' * 5000)}.{base64url(b'{}')}.eA", "header of the token is invalid"),
        (compact({"alg": "none"}, CLAIMS, b""), "key ID and algorithm"),
        (compact({"alg": "none", "kid": "one"}, CLAIMS, b""), "key ID and algorithm"),
        (compact({"alg": "HS256", "kid": "one"}, CLAIMS), "key ID and algorithm"),
        (compact({"alg": ["RS256"], "kid": "one"}, CLAIMS), "no algorithm"),
        (compact({"kid": "one"}, CLAIMS), "no algorithm"),
        (compact({"alg": "RS256", "kid": "one", "crit": ["exp"]}, CLAIMS), "critical"),
        (sign(CLAIMS, crit=["b64"], b64=True), "critical"),
        (compact({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False}, CLAIMS), "critical"),
        (compact({"alg": "RS256", "kid": "one", "b64": False}, CLAIMS), "critical"),
        (compact({"alg": "RS256", "kid": "one"}, CLAIMS), "signature of the token is invalid"),
        (compact({"alg": "RS256", "kid": "one"}, CLAIMS) + "=", "invalid token"),
        (f"{base64url(b'{}')}.{base64url(b'{}')}.eB", "base64url"),  # e is followed by bits that are not zero
        (f"{base64url(b'{}')}.{base64url(b'{}')}\n.eA", "base64url"),
        (f"{base64url(b'{}')}.{base64url(b'???')}/.eA", "base64url"),
        (f"{base64url(b'{}')}.a.eA", "base64url"),
        (sign(CLAIMS, kid="unknown"), "key ID and algorithm"),
        (sign(CLAIMS, kid=7), "key ID and algorithm"),
        (sign(CLAIMS, ec_key(), kid="one"), "key ID and algorithm"),
        (sign(CLAIMS, rsa_key(3072)), "signature of the token is invalid"),
        (sign(CLAIMS, ec_key(9), kid="two"), "signature of the token is invalid"),
        (sign([CLAIMS]), "payload of the token is not a JSON object"),
        (sign({**CLAIMS, "exp": float("nan")}), "payload of the token is invalid"),
        (sign({"sub": "x"}), "exp claim is not a number"),
        (sign({**CLAIMS, "exp": True}), "exp claim is not a number"),
        (sign({**CLAIMS, "exp": "2030"}), "exp claim is not a number"),
        (sign({**CLAIMS, "nbf": None}), "nbf claim is not a number"),
        (sign({**CLAIMS, "exp": NOW}), "expired"),
        (sign({**CLAIMS, "nbf": NOW + NOT_BEFORE_SKEW + 1}), "not valid yet"),
    ],
)
def test_invalid_tokens(token: str, reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        verify_token(token, KEYS, NOW)


def test_cve_2026_31837_empty_key_set_accepts_no_token() -> None:
    """A key set that could not be fetched is an empty set, and nothing replaces it."""
    for token in (sign(CLAIMS), sign(CLAIMS, kid=None), sign(CLAIMS, ec_key())):
        with pytest.raises(TokenError, match="no key of the set"):
            verify_token(token, (), NOW)
    with pytest.raises(TokenError, match="no key of the set"):  # nor a key embedded in the token
        verify_token(sign(CLAIMS, rsa_key(3072), kid="mine", jwk=jwk(rsa_key(3072), "mine")), KEYS, NOW)


def test_key_is_used_only_for_its_algorithm() -> None:
    assert verify_token(sign(CLAIMS), keys(jwk(rsa_key(), alg="RS256")), NOW) == CLAIMS
    with pytest.raises(TokenError, match="no key of the set"):
        verify_token(sign(CLAIMS), keys(jwk(rsa_key(), alg="RS512")), NOW)
    with pytest.raises(TokenError, match="no key of the set"):
        verify_token(sign(CLAIMS, ec_key(), kid="one", alg="ES384"), keys(jwk(ec_key())), NOW)


@pytest.mark.parametrize(("claims", "expected"), [({}, ()), ({"aud": "a"}, ("a",)), ({"aud": ["a", "b"]}, ("a", "b"))])
def test_audiences(claims: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert audiences_of(claims) == expected


@pytest.mark.parametrize("audience", [7, ["a", 7], {"a": "b"}])
def test_invalid_audiences(audience: Any) -> None:
    with pytest.raises(TokenError, match="aud"):
        audiences_of({"aud": audience})


def test_unsuitable_keys_are_omitted() -> None:
    assert keys(jwk(rsa_key(), use="enc"), {"kty": "oct", "k": "AA"}, jwk(ec_key(), crv="secp256k1"), {}) == ()
    assert [key.id for key in keys(jwk(rsa_key(), use="sig"))] == ["one"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "invalid JSON"),
        (b"\xff", "invalid JSON"),
        (b"[" * 100_000, "invalid JSON"),
        (b"[]", "`keys` is a list"),
        (b'{"keys": {}}', "`keys` is a list"),
        (b'{"keys": [' + b",".join([b"{}"] * 300) + b"]}", "at most"),
        (b"x" * (2 << 20), "exceed the limit"),
        (b'{"keys": [7]}', r"keys\[0\]: expected an object"),
        (b'{"keys": [{}, {"kid": 7}]}', r"keys\[1\]: kid and alg"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB"}]}', r"keys\[0\]: invalid key"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB", "n": "AQAB"}]}', "invalid key"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB", "n": 7}]}', "invalid key"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB", "n": "A+/B"}]}', "not base64url"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}]}', "invalid key"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ"}]}', "invalid key"),
        (b'{"keys": [{"kty": "OKP", "crv": "Ed25519"}]}', "invalid key"),
        (b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQ"}]}', "invalid key"),
    ],
)
def test_invalid_key_sets(data: bytes, reason: str) -> None:
    with pytest.raises(JwksError, match=reason):
        parse_jwks(data)


def test_size_limits_of_key_sets_and_keys() -> None:
    assert keys(*[{}] * 256) == ()
    assert parse_jwks(b'{"keys": []}'.ljust(LARGEST_SET)) == ()
    (largest,) = keys(rsa_jwk(8192))
    assert isinstance(largest.public, rsa.RSAPublicKey)
    with pytest.raises(JwksError, match="8193 bits"):
        keys(rsa_jwk(8193))


def rsa_jwk(bits: int) -> dict[str, Any]:
    return {"kty": "RSA", "n": base64url(((1 << (bits - 1)) + 1).to_bytes(1025, "big")), "e": "AQAB"}


def test_not_before_allows_clock_skew() -> None:
    assert verify_token(sign({**CLAIMS, "nbf": NOW + NOT_BEFORE_SKEW}), KEYS, NOW)


def test_weak_keys_are_rejected() -> None:
    small = rsa.generate_private_key(65537, 1024)
    with pytest.raises(JwksError, match="1024 bits"):
        keys({"kty": "RSA", "n": base64url(small.public_key().public_numbers().n.to_bytes(128, "big")), "e": "AQAB"})


def test_signature_of_wrong_length_is_rejected() -> None:
    token = sign(CLAIMS, ec_key(), kid="two")
    head, _, signature = token.rpartition(".")
    with pytest.raises(TokenError, match="signature of the token is invalid"):
        verify_token(f"{head}.{base64url(base64.urlsafe_b64decode(signature + '==') + bytes(1))}", KEYS, NOW)


def test_private_key_in_a_set_is_read_as_its_public_key() -> None:
    (key,) = keys(jwk(rsa_key(), d=base64url(rsa_key().private_numbers().d.to_bytes(256, "big"))))
    assert isinstance(key.public, rsa.RSAPublicKey)


def test_token_without_key_id_has_a_candidate_limit() -> None:
    candidates = [Jwk(f"key-{number}", key.algorithms, key.public) for number in range(MOST_CANDIDATES) for key in KEYS]
    assert verify_token(sign(CLAIMS, kid=None), candidates, NOW) == CLAIMS
    with pytest.raises(TokenError, match="9 keys"):
        verify_token(sign(CLAIMS, kid=None), (*candidates, KEYS[0]), NOW)
    assert verify_token(sign(CLAIMS, kid="one"), (*candidates, KEYS[0]), NOW) == CLAIMS


def test_recipient_needs_issuer_and_audience() -> None:
    claims = {"iss": "i", "aud": ["a", "b"]}
    check_recipient(claims, "i", ("b", "c"))
    check_recipient(claims, "", ("a",))
    for other_claims, issuer, reason in (
        (claims, "j", "the issuer of the token is not j"),
        ({"aud": ["a"]}, "i", "the issuer of the token is not i"),
        ({"aud": "d"}, "", "the audience of the token is d, not b, c"),
        ({}, "", "the audience of the token is empty, not b, c"),
        ({"aud": 7}, "", "the aud claim is neither"),
    ):
        with pytest.raises(TokenError, match=reason):
            check_recipient(other_claims, issuer, ("b", "c"))


def test_own_claims_are_read_without_keys() -> None:
    assert own_claims(sign({"iss": "i", "exp": 1})) == {"iss": "i", "exp": 1}
    for token in ("", "a.b.c", sign([1])):
        with pytest.raises(TokenError, match="invalid token"):
            own_claims(token)
