"""What handshakes of a port are done with: its certificate, whom it trusts, and which versions and ciphers it takes."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilot.lib.flags import FlagError

_VERSIONS = {"TLSV1_2": ssl.TLSVersion.TLSv1_2, "TLSV1_3": ssl.TLSVersion.TLSv1_3}
_FIPS_CIPHERS = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
)
# Go's names, which Kubernetes' and Istio's flags use, in OpenSSL's words: https://pkg.go.dev/crypto/tls#pkg-constants
_CIPHERS: Mapping[str, str] = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
_TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})


class CertificatePair(NamedTuple):
    """A certificate with its chain, and its private key, in PEM."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        """Returns a text without the key."""
        return "Pair(…)"


class TlsRules(NamedTuple):
    """Which TLS is spoken. `ciphers` are those up to TLS 1.2 in OpenSSL's words, none for its defaults; `curve` is "" for any."""

    oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
    ciphers: tuple[str, ...] = ()
    curve: str = ""


def parse_rules(ciphers: Sequence[str], oldest: str, compliance: str) -> TlsRules:
    """Returns what the flags --tls-cipher-suites and --tls-min-version and a compliance policy, which comes before both, say. FlagError where
    one of them is not known."""
    if compliance in ("fips-140-2", "fips-140-3"):
        return TlsRules(
            ssl.TLSVersion.TLSv1_2,
            ssl.TLSVersion.TLSv1_2 if compliance == "fips-140-2" else ssl.TLSVersion.MAXIMUM_SUPPORTED,
            _FIPS_CIPHERS,
            "prime256v1",
        )
    if compliance:
        raise FlagError(
            f"COMPLIANCE_POLICY {compliance!r} cannot be kept on the port with TLS; fips-140-2 and fips-140-3 can"
        )
    if oldest and oldest not in _VERSIONS:
        raise FlagError(f"invalid argument for --tls-min-version: {oldest!r} is neither TLSV1_2 nor TLSV1_3")
    for name in ciphers:
        if name not in _CIPHERS and name not in _TLS_1_3:
            raise FlagError(f"invalid argument for --tls-cipher-suites: {name!r} is not known")
    return TlsRules(
        _VERSIONS.get(oldest, ssl.TLSVersion.TLSv1_2),
        ciphers=tuple(_CIPHERS[name] for name in ciphers if name in _CIPHERS),
    )


def make_context(
    pairs: Sequence[CertificatePair], roots: bytes, rules: TlsRules, protocol: str = "h2"
) -> ssl.SSLContext:
    """Returns the context of a server that verifies a client certificate with the roots, in PEM, where it is shown one. It has a pair for each kind
    of key; the peer says which of them it takes. `protocol` is what is spoken then; clients of HTTP/1.1 are asked for no certificate.
    ssl.SSLError or ValueError where certificate, key or roots are none, or do not belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = rules.oldest, rules.newest
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_TICKET  # a resumed session would bring the certificate of back then
    context.num_tickets = 0
    if rules.ciphers:
        context.set_ciphers(":".join(rules.ciphers))
    if rules.curve:
        context.set_ecdh_curve(rules.curve)
    context.set_alpn_protocols([protocol])
    for pair in pairs:
        _load(context, pair)
    if protocol != "http/1.1":
        context.load_verify_locations(cadata=roots.decode("ascii"))
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _load(context: ssl.SSLContext, pair: CertificatePair) -> None:
    """Loads certificate and key, which OpenSSL takes from files alone, from a file in memory."""
    number = os.memfd_create("certificate")
    try:
        with open(number, "wb", closefd=False) as file:
            file.write(pair.key + b"\n" + pair.chain)
        context.load_cert_chain(f"/proc/self/fd/{number}")
    finally:
        os.close(number)
