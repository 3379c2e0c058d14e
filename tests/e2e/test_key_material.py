"""What counts as usable among certificates, keys and roots is what a stock Envoy takes: it is asked about each."""

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

CA, OTHER = Authority(), Authority("other")
ONE, TWO, STRICT = CA.issue("one"), CA.issue("two"), CA.issue("strict", must_staple=True)
OPEN = b"-----BEGIN CERTIFICATE-----\nAAAA\n"
BROKEN = OPEN + b"-----END CERTIFICATE-----\n"


def pair(chain: bytes, key: bytes, staple: bytes = b"") -> KeyPair:
    return KeyPair(Value("tls.crt", chain), Value("tls.key", key), Value("staple", staple) if staple else None)


def of_key(key: Any) -> KeyPair:
    issued = CA.issue("x", key)
    return pair(issued.chain, issued.private_key)


def roots(certificates: bytes, revoked: bytes = b"") -> Roots:
    return Roots(Value("ca.crt", certificates), Value("ca.crl", revoked) if revoked else None)


def sec1(key: Any) -> bytes:
    made = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    assert isinstance(made, bytes)
    return made


def inside(pem: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """PEM with the lines between the first and the last one changed."""
    first, *lines, last = pem.splitlines()
    return b"\n".join([first, *change(lines), last, b""])


def with_bytes(pem: bytes, old: bytes, new: bytes) -> bytes:
    """PEM with some bytes of what it encodes replaced once."""
    first, *lines, last = pem.splitlines()
    content = base64.b64decode(b"".join(lines))
    assert old in content
    return b"\n".join([first, base64.encodebytes(content.replace(old, new, 1)).strip(), last, b""])


BAD_NAME, BAD_VERSION = (b"\x0c\x04root", b"\x2c\x04root"), (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07")
PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
PAIRS = {
    "RSA of 1024 bits": of_key(rsa_key(1024)),
    "RSA of 2048 bits": of_key(rsa_key()),
    "P-256": of_key(None),
    "P-384": of_key(ec.generate_private_key(ec.SECP384R1())),
    "P-521": of_key(ec.generate_private_key(ec.SECP521R1())),
    "secp256k1": of_key(ec.generate_private_key(ec.SECP256K1())),
    "Ed25519": of_key(ed25519.Ed25519PrivateKey.generate()),
    "SEC1": pair(ONE.chain, sec1(ONE.key)),
    "SEC1 behind its parameters": pair(ONE.chain, PARAMETERS + sec1(ONE.key)),
    "the key of another": pair(ONE.chain, TWO.private_key),
    "a chain to the root": pair(ONE.chain + CA.pem, ONE.private_key),
    "text around": pair(b"hello\n" + ONE.chain + b"bye", b"hello\n" + ONE.private_key),
    "lines of DOS": pair(ONE.chain.replace(b"\n", b"\r\n"), ONE.private_key.replace(b"\n", b"\r\n")),
    "no last line break": pair(ONE.chain.strip(), ONE.private_key.strip()),
    "one long line": pair(inside(ONE.chain, lambda b: [b"".join(b)]), inside(ONE.private_key, lambda b: [b"".join(b)])),
    "an empty line inside": pair(inside(ONE.chain, lambda b: [b[0], b"", *b[1:]]), ONE.private_key),
    "a header inside": pair(inside(ONE.chain, lambda b: [b"X: y", b"", *b]), ONE.private_key),
    "a header inside the key": pair(ONE.chain, inside(ONE.private_key, lambda b: [b"X: y", b"", *b])),
    "blocks that are joined": pair(ONE.chain.strip() + CA.pem, ONE.private_key),
    "broken behind the first": pair(ONE.chain + BROKEN, ONE.private_key),
    "open behind the first": pair(ONE.chain + OPEN, ONE.private_key),
    "indented": pair(b"  " + ONE.chain.replace(b"\n", b"\n  "), ONE.private_key),
    "a broken name": pair(with_bytes(ONE.chain, *BAD_NAME), ONE.private_key),
    "a version that does not exist": pair(with_bytes(ONE.chain, *BAD_VERSION), ONE.private_key),
    "a byte order mark": pair(b"\xef\xbb\xbf" + ONE.chain, ONE.private_key),
    "expired": pair(CA.issue("x", ONE.key, end=-datetime.timedelta(hours=1)).chain, ONE.private_key),
    "stapled": pair(ONE.chain, ONE.private_key, CA.staple(ONE)),
    "stapled as it must be": pair(STRICT.chain, STRICT.private_key, CA.staple(STRICT)),
    "not stapled as it must be": pair(STRICT.chain, STRICT.private_key),
}
STAPLES = {"garbage": b"x", "of another": CA.staple(TWO), "its own": CA.staple(ONE)}
ROOTS = {
    "one": roots(CA.pem),
    "two": roots(CA.pem + OTHER.pem),
    "the same twice": roots(CA.pem + CA.pem),
    "a leaf": roots(ONE.chain),
    "text around": roots(b"hello\n" + CA.pem + b"bye"),
    "broken": roots(CA.pem + BROKEN),
    "open": roots(CA.pem + OPEN),
    "a broken name": roots(with_bytes(CA.pem, *BAD_NAME)),
    "a broken name in a list": roots(CA.pem, with_bytes(CA.crl(), *BAD_NAME)),
    "a version that does not exist": roots(with_bytes(CA.pem, *BAD_VERSION)),
    "a list": roots(CA.pem, CA.crl(ONE)),
    "two lists": roots(CA.pem, CA.crl(ONE) + OTHER.crl()),
    "a list of somebody else": roots(CA.pem, OTHER.crl()),
    "a broken list": roots(CA.pem, CA.crl() + BROKEN.replace(b"CERTIFICATE", b"X509 CRL")),
    "an open list": roots(CA.pem, CA.crl() + OPEN.replace(b"CERTIFICATE", b"X509 CRL")),
}


def envoy_takes(
    work: pathlib.Path, certificate: KeyPair, verified_by: Roots | None = None, staple: bytes = b""
) -> bool:
    """Whether a listener with this TLS is right; the secrets are in its configuration."""
    sent = build_secret("x", certificate).tls_certificate
    if staple:
        sent.ocsp_staple.inline_bytes = staple
    common: dict[str, Any] = {"tls_certificates": [json_format.MessageToDict(sent)]}
    if verified_by is not None:
        common["validation_context"] = json_format.MessageToDict(build_secret("x", verified_by).validation_context)
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
    done = subprocess.run(
        [envoy_binary(), "--mode", "validate", "-c", str(work / "envoy.json"), "-l", "error"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.parametrize("found", PAIRS.values(), ids=PAIRS)
def test_a_certificate_is_usable_if_envoy_takes_it(found: KeyPair, tmp_path: pathlib.Path) -> None:
    assert (find_flaw(found) is None) == envoy_takes(tmp_path, found)


@pytest.mark.parametrize("staple", STAPLES.values(), ids=STAPLES)
def test_a_staple_is_usable_if_envoy_takes_it(staple: bytes, tmp_path: pathlib.Path) -> None:
    found = pair(ONE.chain, ONE.private_key, staple)
    assert (find_staple_flaw(found) is None) == envoy_takes(tmp_path, found, staple=staple)


@pytest.mark.parametrize("found", ROOTS.values(), ids=ROOTS)
def test_roots_are_usable_if_envoy_takes_them(found: Roots, tmp_path: pathlib.Path) -> None:
    assert (find_flaw(found) is None) == envoy_takes(tmp_path, pair(ONE.chain, ONE.private_key), found)


def test_a_list_that_holds_no_list_is_refused_though_envoy_would_take_it(tmp_path: pathlib.Path) -> None:
    empty = roots(CA.pem, CA.pem)
    assert envoy_takes(tmp_path, pair(ONE.chain, ONE.private_key), empty)
    assert find_flaw(empty) is not None, "who revokes certificates by it would revoke none"
