"""Tokens count only where a key of the set has signed them, and only for as long as they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from pilot.lib.jwks import Jwk, JwksError, decode_base64url, parse_jwks
from pilot.lib.jwt import LONGEST_TOKEN, NOT_BEFORE_SKEW, TokenError, audiences_of, verify_token
from tests.support.certificates import ec_key, rsa_key
from tests.support.tokens import base64url, jwk, sign

NOW = 1_800_000_000.0
CLAIMS = {"sub": "somebody", "exp": NOW + 10}


def keys(*plain: dict[str, Any]) -> tuple[Jwk, ...]:
    return tuple(parse_jwks(json.dumps({"keys": plain}).encode()))


KEYS = keys(jwk(rsa_key()), jwk(ec_key(), "two"))


def compact(header: Any, claims: Any, signature: bytes = b"x") -> str:
    return ".".join((*(base64url(json.dumps(part).encode()) for part in (header, claims)), base64url(signature)))


def test_a_token_of_each_kind_of_key_is_verified() -> None:
    assert verify_token(sign(CLAIMS), KEYS, NOW) == CLAIMS
    assert verify_token(sign(CLAIMS, ec_key(), kid="two"), KEYS, NOW) == CLAIMS
    edwards = ed25519.Ed25519PrivateKey.generate()
    public = {"kty": "OKP", "crv": "Ed25519", "kid": "three", "x": base64url(edwards.public_key().public_bytes_raw())}
    unsigned = compact({"alg": "EdDSA", "kid": "three"}, CLAIMS).rpartition(".")[0]
    assert verify_token(f"{unsigned}.{base64url(edwards.sign(unsigned.encode()))}", keys(public), NOW) == CLAIMS
    for other in (edwards.sign(b"something else"), ed25519.Ed25519PrivateKey.generate().sign(unsigned.encode()), b"x"):
        with pytest.raises(TokenError, match="signature"):
            verify_token(f"{unsigned}.{base64url(other)}", keys(public), NOW)
    unsigned = compact({"alg": "PS384", "kid": "one"}, CLAIMS).rpartition(".")[0]
    digest = hashes.SHA384()
    signature = rsa_key().sign(unsigned.encode(), padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
    assert verify_token(f"{unsigned}.{base64url(signature)}", KEYS, NOW) == CLAIMS


def test_without_a_key_id_any_key_that_fits_may_have_signed() -> None:
    assert verify_token(sign(CLAIMS, kid=None), (*keys(jwk(rsa_key(3072), "zero")), *KEYS), NOW) == CLAIMS


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "three parts"),
        ("a.b", "three parts"),
        ("a.b.c.d", "three parts"),
        ("é.b.c", "three parts"),
        ("x" * (LONGEST_TOKEN + 1), "more than"),
        ("!.b.c", "header of the token cannot be read"),
        (f"{base64url(b'[1]')}.b.c", "header of the token is no object"),
        (f"{base64url(b'[' * 5000)}.b.c", "cannot be read"),
        (compact({"alg": "none"}, CLAIMS, b""), "algorithm"),
        (compact({"alg": "HS256", "kid": "one"}, CLAIMS), "algorithm"),
        (compact({"alg": ["RS256"], "kid": "one"}, CLAIMS), "algorithm"),
        (compact({"kid": "one"}, CLAIMS), "algorithm"),
        (compact({"alg": "RS256", "kid": "one", "crit": ["exp"]}, CLAIMS), "critical"),
        (compact({"alg": "RS256", "kid": "one"}, CLAIMS), "signature of the token is wrong"),
        (compact({"alg": "RS256", "kid": "one"}, CLAIMS) + "=", "signature of the token is no base64url"),
        (sign(CLAIMS, kid="unknown"), "no known key"),
        (sign(CLAIMS, kid=7), "no known key"),
        (sign(CLAIMS, ec_key(), kid="one"), "no known key"),
        (sign(CLAIMS, rsa_key(3072)), "signature of the token is wrong"),
        (sign(CLAIMS, ec_key(9), kid="two"), "signature of the token is wrong"),
        (sign([CLAIMS]), "payload of the token is no object"),
        (sign({"sub": "x"}), "exp is no number"),
        (sign({**CLAIMS, "exp": True}), "exp is no number"),
        (sign({**CLAIMS, "exp": "2030"}), "exp is no number"),
        (sign({**CLAIMS, "nbf": None}), "nbf is no number"),
        (sign({**CLAIMS, "exp": NOW}), "expired"),
        (sign({**CLAIMS, "nbf": NOW + NOT_BEFORE_SKEW + 1}), "not valid yet"),
    ],
)
def test_every_other_token_is_refused_with_a_reason(token: str, reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        verify_token(token, KEYS, NOW)


def test_cve_2026_31837_without_keys_no_token_is_accepted_whoever_signed_it() -> None:
    """A set of keys that could not be had is an empty set: nothing stands in for it."""
    for token in (sign(CLAIMS), sign(CLAIMS, kid=None), sign(CLAIMS, ec_key())):
        with pytest.raises(TokenError, match="no known key"):
            verify_token(token, (), NOW)
    with pytest.raises(TokenError, match="no known key"):  # nor a key that the token brings itself
        verify_token(sign(CLAIMS, rsa_key(3072), kid="mine", jwk=jwk(rsa_key(3072), "mine")), KEYS, NOW)


def test_a_key_is_used_for_its_own_algorithm_alone() -> None:
    assert verify_token(sign(CLAIMS), keys(jwk(rsa_key(), alg="RS256")), NOW) == CLAIMS
    with pytest.raises(TokenError, match="no known key"):
        verify_token(sign(CLAIMS), keys(jwk(rsa_key(), alg="RS512")), NOW)
    with pytest.raises(TokenError, match="no known key"):
        verify_token(sign(CLAIMS, ec_key(), kid="one", alg="ES384"), keys(jwk(ec_key())), NOW)


@pytest.mark.parametrize(("claims", "expected"), [({}, ()), ({"aud": "a"}, ("a",)), ({"aud": ["a", "b"]}, ("a", "b"))])
def test_audiences(claims: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert audiences_of(claims) == expected


@pytest.mark.parametrize("wrong", [7, ["a", 7], {"a": "b"}])
def test_audiences_are_texts(wrong: Any) -> None:
    with pytest.raises(TokenError, match="aud"):
        audiences_of({"aud": wrong})


def test_keys_for_other_uses_and_of_other_kinds_are_left_out() -> None:
    assert keys(jwk(rsa_key(), use="enc"), {"kty": "oct", "k": "AA"}, jwk(ec_key(), crv="secp256k1"), {}) == ()
    assert [key.id for key in keys(jwk(rsa_key(), use="sig"))] == ["one"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "list `keys`"),
        (b'{"keys": {}}', "list `keys`"),
        (b'{"keys": [' + b",".join([b"{}"] * 300) + b"]}", "at most"),
        (b"x" * (2 << 20), "more than"),
        (b'{"keys": [7]}', r"keys\[0\]: an object"),
        (b'{"keys": [{}, {"kid": 7}]}', r"keys\[1\]: kid and alg"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB"}]}', r"keys\[0\]: the key is broken"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB", "n": "AQAB"}]}', "the key is broken"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB", "n": 7}]}', "the key is broken"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}]}', "the key is broken"),
        (b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQ"}]}', "the key is broken"),
    ],
)
def test_a_set_of_keys_that_cannot_be_read_says_where(data: bytes, reason: str) -> None:
    with pytest.raises(JwksError, match=reason):
        parse_jwks(data)


def test_weak_keys_are_no_keys() -> None:
    small = rsa.generate_private_key(65537, 1024)
    with pytest.raises(JwksError, match="1024 bits"):
        keys({"kty": "RSA", "n": base64url(small.public_key().public_numbers().n.to_bytes(128, "big")), "e": "AQAB"})


@pytest.mark.parametrize("text", ["YQ==", "Y+", "Y/", "Y", "é"])
def test_base64url_is_taken_as_it_must_be_written(text: str) -> None:
    with pytest.raises(ValueError, match="no base64url"):
        decode_base64url(text)
    assert decode_base64url("YQ") == b"a"


def test_a_signature_of_another_length_is_wrong() -> None:
    token = sign(CLAIMS, ec_key(), kid="two")
    head, _, signature = token.rpartition(".")
    with pytest.raises(TokenError, match="signature of the token is wrong"):
        verify_token(f"{head}.{base64url(decode_base64url(signature) + bytes(1))}", KEYS, NOW)
    assert isinstance(ec_key().curve, ec.SECP256R1)
