"""Validation of certificates, keys and roots agrees with a stock Envoy, which checks each of them."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from google.protobuf import json_format

from pilot.config.key_material import KeyPair, Roots, Value
from pilot.config.validation.key_material import find_flaw, find_staple_flaw
from pilot.envoy.secret import build_secret
from testing.processes.process import envoy_binary
from testing.security.credentials import Authority, rsa_key
from testing.security.der import certificate, rsa_key_of, rsa_private_key

CA, OTHER = Authority(), Authority("other")
ONE, TWO, STRICT = CA.issue("one"), CA.issue("two"), CA.issue("strict", must_staple=True)
UNTERMINATED = b"-----BEGIN CERTIFICATE-----\nAAAA\n"
BROKEN = UNTERMINATED + b"-----END CERTIFICATE-----\n"


def pair(chain: bytes, key: bytes, staple: bytes = b"") -> KeyPair:
    return KeyPair(Value("tls.crt", chain), Value("tls.key", key), Value("staple", staple) if staple else None)


def pair_for_key(key: Any) -> KeyPair:
    issued = CA.issue("x", key)
    return pair(issued.chain, issued.private_key)


def roots(certificates: bytes, crl: bytes = b"") -> Roots:
    return Roots(Value("ca.crt", certificates), Value("ca.crl", crl) if crl else None)


def sec1(key: Any) -> bytes:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    assert isinstance(pem, bytes)
    return pem


def edit_lines(pem: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """Return PEM with its inner lines changed."""
    first, *lines, last = pem.splitlines()
    return b"\n".join([first, *change(lines), last, b""])


def replace_bytes(pem: bytes, old: bytes, new: bytes) -> bytes:
    """Return PEM with some of its encoded bytes replaced once."""
    first, *lines, last = pem.splitlines()
    content = base64.b64decode(b"".join(lines))
    assert old in content
    return b"\n".join([first, base64.encodebytes(content.replace(old, new, 1)).strip(), last, b""])


def rsa_pair(**changed: int) -> KeyPair:
    """Return a certificate and its private RSA key, some of whose numbers are changed."""
    names = ("d", "p", "q", "dmp1", "dmq1", "iqmp")
    numbers = {name: getattr(RSA, name) for name in names} | changed
    public = RSA.public_numbers
    return pair(CA.issue("x", rsa_key()).chain, rsa_private_key(public.n, public.e, **numbers))


def large_pair(p: int, q: int) -> KeyPair:
    private, public = rsa_key_of(p, q)
    return pair(certificate(public), private)


RSA = rsa_key().private_numbers()
BAD_NAME, BAD_VERSION = (b"\x0c\x04root", b"\x2c\x04root"), (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07")
PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
PAIRS = {
    "RSA of 1024 bits": pair_for_key(rsa_key(1024)),
    "RSA of 2048 bits": pair_for_key(rsa_key()),
    "RSA numbers": rsa_pair(),
    "RSA with another private exponent": rsa_pair(d=RSA.d + 2),
    "RSA with another factor": rsa_pair(p=RSA.p + 2),
    "RSA with another first exponent": rsa_pair(dmp1=RSA.dmp1 + 2),
    "RSA with another second exponent": rsa_pair(dmq1=RSA.dmq1 + 2),
    "RSA with a first exponent that is not reduced": rsa_pair(dmp1=RSA.dmp1 + RSA.p - 1),
    "RSA with another coefficient": rsa_pair(iqmp=RSA.iqmp + 2),
    "RSA with a coefficient that is not reduced": rsa_pair(iqmp=RSA.iqmp + RSA.p),
    "RSA of 7640 bits": large_pair(2**3217 - 1, 2**4423 - 1),
    "P-256": pair_for_key(None),
    "P-384": pair_for_key(ec.generate_private_key(ec.SECP384R1())),
    "P-521": pair_for_key(ec.generate_private_key(ec.SECP521R1())),
    "secp256k1": pair_for_key(ec.generate_private_key(ec.SECP256K1())),
    "Ed25519": pair_for_key(ed25519.Ed25519PrivateKey.generate()),
    "SEC1": pair(ONE.chain, sec1(ONE.key)),
    "SEC1 after its parameters": pair(ONE.chain, PARAMETERS + sec1(ONE.key)),
    "the key of another certificate": pair(ONE.chain, TWO.private_key),
    "a chain to the root": pair(ONE.chain + CA.pem, ONE.private_key),
    "surrounding text": pair(b"hello\n" + ONE.chain + b"bye", b"hello\n" + ONE.private_key),
    "CRLF line ends": pair(ONE.chain.replace(b"\n", b"\r\n"), ONE.private_key.replace(b"\n", b"\r\n")),
    "no last line break": pair(ONE.chain.strip(), ONE.private_key.strip()),
    "one long line": pair(
        edit_lines(ONE.chain, lambda b: [b"".join(b)]), edit_lines(ONE.private_key, lambda b: [b"".join(b)])
    ),
    "an empty line inside": pair(edit_lines(ONE.chain, lambda b: [b[0], b"", *b[1:]]), ONE.private_key),
    "a header inside": pair(edit_lines(ONE.chain, lambda b: [b"X: y", b"", *b]), ONE.private_key),
    "a header inside the key": pair(ONE.chain, edit_lines(ONE.private_key, lambda b: [b"X: y", b"", *b])),
    "joined blocks": pair(ONE.chain.strip() + CA.pem, ONE.private_key),
    "broken after the first block": pair(ONE.chain + BROKEN, ONE.private_key),
    "unterminated after the first block": pair(ONE.chain + UNTERMINATED, ONE.private_key),
    "indented": pair(b"  " + ONE.chain.replace(b"\n", b"\n  "), ONE.private_key),
    "a broken name": pair(replace_bytes(ONE.chain, *BAD_NAME), ONE.private_key),
    "a version that does not exist": pair(replace_bytes(ONE.chain, *BAD_VERSION), ONE.private_key),
    "a byte order mark": pair(b"\xef\xbb\xbf" + ONE.chain, ONE.private_key),
    "expired": pair(CA.issue("x", ONE.key, end=-datetime.timedelta(hours=1)).chain, ONE.private_key),
    "stapled": pair(ONE.chain, ONE.private_key, CA.staple(ONE)),
    "must-staple with a staple": pair(STRICT.chain, STRICT.private_key, CA.staple(STRICT)),
    "must-staple without a staple": pair(STRICT.chain, STRICT.private_key),
}
STAPLES = {"garbage": b"x", "of another certificate": CA.staple(TWO), "of this certificate": CA.staple(ONE)}
ROOTS = {
    "one": roots(CA.pem),
    "two": roots(CA.pem + OTHER.pem),
    "the same twice": roots(CA.pem + CA.pem),
    "a leaf": roots(ONE.chain),
    "surrounding text": roots(b"hello\n" + CA.pem + b"bye"),
    "broken": roots(CA.pem + BROKEN),
    "unterminated": roots(CA.pem + UNTERMINATED),
    "a broken name": roots(replace_bytes(CA.pem, *BAD_NAME)),
    "a broken name in a revocation list": roots(CA.pem, replace_bytes(CA.crl(), *BAD_NAME)),
    "a version that does not exist": roots(replace_bytes(CA.pem, *BAD_VERSION)),
    "a revocation list": roots(CA.pem, CA.crl(ONE)),
    "two revocation lists": roots(CA.pem, CA.crl(ONE) + OTHER.crl()),
    "a revocation list of another CA": roots(CA.pem, OTHER.crl()),
    "a broken revocation list": roots(CA.pem, CA.crl() + BROKEN.replace(b"CERTIFICATE", b"X509 CRL")),
    "an unterminated revocation list": roots(CA.pem, CA.crl() + UNTERMINATED.replace(b"CERTIFICATE", b"X509 CRL")),
}


def envoy_accepts(work: pathlib.Path, certificate: KeyPair, roots: Roots | None = None, staple: bytes = b"") -> bool:
    """Return whether Envoy accepts a listener with these inline secrets."""
    certificate_message = build_secret("x", certificate).tls_certificate
    if staple:
        certificate_message.ocsp_staple.inline_bytes = staple
    common: dict[str, Any] = {"tls_certificates": [json_format.MessageToDict(certificate_message)]}
    if roots is not None:
        common["validation_context"] = json_format.MessageToDict(build_secret("x", roots).validation_context)
    tls = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": common,
    }
    tcp = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "x",
        "cluster": "x",
    }
    chain = {
        "filters": [{"name": "tcp", "typed_config": tcp}],
        "transport_socket": {"name": "tls", "typed_config": tls},
    }
    listener = {
        "name": "x",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
        "filter_chains": [chain],
    }
    (work / "envoy.json").write_text(
        json.dumps({"static_resources": {"listeners": [listener], "clusters": [{"name": "x"}]}})
    )
    result = subprocess.run(
        [envoy_binary(), "--mode", "validate", "-c", str(work / "envoy.json"), "-l", "error"],
        capture_output=True,
        check=False,
    )
    return result.returncode == 0


@pytest.mark.parametrize("key_pair", PAIRS.values(), ids=PAIRS)
def test_certificates(key_pair: KeyPair, tmp_path: pathlib.Path) -> None:
    assert (find_flaw(key_pair) is None) == envoy_accepts(tmp_path, key_pair)


@pytest.mark.parametrize("staple", STAPLES.values(), ids=STAPLES)
def test_ocsp_staples(staple: bytes, tmp_path: pathlib.Path) -> None:
    key_pair = pair(ONE.chain, ONE.private_key, staple)
    assert (find_staple_flaw(key_pair) is None) == envoy_accepts(tmp_path, key_pair, staple=staple)


@pytest.mark.parametrize("bundle", ROOTS.values(), ids=ROOTS)
def test_roots(bundle: Roots, tmp_path: pathlib.Path) -> None:
    assert (find_flaw(bundle) is None) == envoy_accepts(tmp_path, pair(ONE.chain, ONE.private_key), bundle)


def test_empty_revocation_list_is_rejected_although_envoy_accepts_it(tmp_path: pathlib.Path) -> None:
    empty = roots(CA.pem, CA.pem)
    assert envoy_accepts(tmp_path, pair(ONE.chain, ONE.private_key), empty)
    assert find_flaw(empty) is not None, "an empty list would revoke nothing"
