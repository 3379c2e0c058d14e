"""Certificates, keys and roots that are expensive to check."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from pilot.config.key_material import Flaw, KeyPair, Roots, Value, find_key_pair, split_certificates, split_pem
from pilot.config.validation.key_material import find_authority_flaw, find_flaw, find_staple_flaw
from testing.security.credentials import Authority, rsa_key
from testing.security.der import certificate, dsa_private_key, name_of, revocation_list, rsa_key_of, rsa_public_key

CA = Authority()
WEB = CA.issue("web.example.com", rsa_key())
MERSENNE = 2**9941 - 1, 2**11213 - 1
"""Two primes. OpenSSL needs minutes to prove that they are."""
MEGABYTE = 1 << 20


def flaw_of_pair(chain: bytes, key: bytes, staple: bytes = b"") -> Flaw | None:
    return find_flaw(
        KeyPair(Value("tls.crt", chain), Value("tls.key", key), Value("staple", staple) if staple else None)
    )


def flaw_of_roots(certificates: bytes, crl: bytes = b"") -> Flaw | None:
    return find_flaw(Roots(Value("ca.crt", certificates), Value("ca.crl", crl) if crl else None))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of each call that loads a private key."""
    calls: list[dict[str, Any]] = []
    load = serialization.load_pem_private_key

    def record(data: bytes, password: None, **options: Any) -> Any:
        calls.append(options)
        return load(data, password, **options)

    monkeypatch.setattr(serialization, "load_pem_private_key", record)
    return calls


def test_rsa_key_of_two_mersenne_primes_is_rejected_before_its_key_is_loaded(loads: list[dict[str, Any]]) -> None:
    private, public = rsa_key_of(*MERSENNE)
    flaw = flaw_of_pair(certificate(public), private)
    assert flaw == Flaw("data[tls.crt]", "has an RSA key of 21154 bits; at most 8192 are supported")
    assert loads == []


def test_large_rsa_key_for_a_small_certificate_is_rejected_without_primality_tests() -> None:
    flaw = flaw_of_pair(WEB.chain, rsa_key_of(*MERSENNE)[0])
    assert flaw == Flaw("data[tls.key]", "does not match the certificate in data[tls.crt]")


def test_supported_rsa_key_is_loaded_without_primality_tests(loads: list[dict[str, Any]]) -> None:
    assert flaw_of_pair(WEB.chain, WEB.private_key) is None
    assert loads == [{"unsafe_skip_rsa_key_validation": True}]


@pytest.mark.parametrize("bits", [2_000, 40_000])
def test_dsa_key_is_rejected_before_its_public_key_is_calculated(bits: int, loads: list[dict[str, Any]]) -> None:
    key = dsa_private_key((1 << bits) - 1, 5, 3, (1 << bits) - 5)
    flaw = flaw_of_pair(WEB.chain, key)
    assert flaw == Flaw("data[tls.key]", "does not contain a valid unencrypted PEM private key")
    assert loads == []


def test_oversized_private_key_is_rejected_before_it_is_loaded(loads: list[dict[str, Any]]) -> None:
    flaw = flaw_of_pair(WEB.chain, rsa_key_of(2**44497 - 1, 2**86243 - 1)[0])
    assert flaw == Flaw("data[tls.key]", "does not contain a valid unencrypted PEM private key")
    assert loads == []


def test_certificate_with_a_modulus_of_a_megabyte_is_rejected() -> None:
    flaw = flaw_of_pair(certificate(rsa_public_key((1 << 5_000_000) | 1, 3)), WEB.private_key)
    assert flaw == Flaw("data[tls.crt]", "has an RSA key of 5000001 bits; at most 8192 are supported")


UNCLOSED = (
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----BEGIN X509 CRL-----\n",
    b"-----BEGIN A-----\n",
    b"-----BEGIN A-----\n-----END B-----\n",
)


@pytest.mark.parametrize("line", UNCLOSED)
def test_unclosed_pem_blocks_are_split_in_linear_time(line: bytes) -> None:
    pem = line * (32 * MEGABYTE // len(line))
    assert split_certificates(pem.decode()) == ()
    with pytest.raises(ValueError, match="not closed"):
        split_pem(pem)


@pytest.mark.parametrize("line", UNCLOSED)
def test_unclosed_pem_blocks_around_a_private_key_are_split_in_linear_time(line: bytes) -> None:
    pem = line * (32 * MEGABYTE // len(line))
    pair = find_key_pair({"tls.crt": pem + WEB.private_key, "tls.key": WEB.private_key})
    assert isinstance(pair, KeyPair)
    assert pair.chain.content == b""


def many(content: bytes) -> bytes:
    return content * 1001


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (lambda: flaw_of_roots(many(CA.pem)), "contains 1001 PEM blocks; at most 1000 are supported"),
        (lambda: flaw_of_roots(CA.pem, many(CA.crl())), "contains 1001 PEM blocks; at most 1000 are supported"),
        (
            lambda: flaw_of_pair(many(WEB.chain), WEB.private_key),
            "contains 1001 PEM blocks; at most 1000 are supported",
        ),
        (lambda: flaw_of_pair(WEB.chain, many(CA.pem)), "contains 1001 PEM blocks; at most 1000 are supported"),
        (lambda: flaw_of_roots(b"x" * MEGABYTE + CA.pem), "bytes; at most 1048576 are supported"),
        (
            lambda: flaw_of_roots(certificate(names=name_of(30_000))),
            "has names with 60001 attributes; at most 5000 are supported",
        ),
        (
            lambda: flaw_of_roots(certificate(names=name_of(100)) * 25),
            "has names with 5025 attributes; at most 5000 are supported",
        ),
    ],
)
def test_oversized_bundle_is_rejected(check: Callable[[], Flaw | None], reason: str) -> None:
    flaw = check()
    assert flaw is not None
    assert reason in flaw.reason


def test_bundle_of_many_certificates_is_accepted() -> None:
    assert flaw_of_roots(CA.pem * 500) is None
    assert find_authority_flaw((CA.pem * 500).decode()) is None


def test_large_revocation_list_is_accepted_without_an_object_for_each_entry() -> None:
    crl = revocation_list(30_000)
    tracemalloc.start()
    assert flaw_of_roots(CA.pem, crl) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(crl)


def test_oversized_ocsp_response_is_rejected() -> None:
    chain = Value("tls.crt", WEB.chain)
    pair = KeyPair(chain, Value("tls.key", WEB.private_key), Value("staple", b"x" * 65_537))
    assert find_staple_flaw(pair) == Flaw("data[staple]", "has 65537 bytes; at most 65536 are supported")
