"""TLS contexts of servers: certificates, trusted roots, protocol versions and ciphers."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilot.lib.flags import FlagError
from pilot.lib.suggestion import choices

_VERSIONS = {"TLSV1_2": ssl.TLSVersion.TLSv1_2, "TLSV1_3": ssl.TLSVersion.TLSv1_3}
_FIPS_CIPHERS = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
)
# OpenSSL's cipher names, keyed by Go's names, which the flags of Kubernetes and Istio use:
# https://pkg.go.dev/crypto/tls#pkg-constants
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
    """A certificate chain and its private key, in PEM."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        """Return a representation that does not contain the private key."""
        return "Pair(…)"


class TlsRules(NamedTuple):
    """TLS versions and ciphers.

    `ciphers` are the OpenSSL names of the ciphers for TLS 1.2, or () for OpenSSL's defaults. `curve` is "" to allow any
    curve.
    """

    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    max_version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
    ciphers: tuple[str, ...] = ()
    curve: str = ""


def parse_rules(ciphers: Sequence[str], min_version: str, compliance: str) -> TlsRules:
    """Return the rules for --tls-cipher-suites, --tls-min-version and COMPLIANCE_POLICY. The policy overrides both
    flags.

    Raise FlagError if one of the settings is invalid.
    """
    if compliance in ("fips-140-2", "fips-140-3"):
        return TlsRules(
            ssl.TLSVersion.TLSv1_2,
            ssl.TLSVersion.TLSv1_2 if compliance == "fips-140-2" else ssl.TLSVersion.MAXIMUM_SUPPORTED,
            _FIPS_CIPHERS,
            "prime256v1",
        )
    if compliance:
        raise FlagError(
            f"COMPLIANCE_POLICY {compliance!r} is not supported on the secure port, expected fips-140-2 or fips-140-3"
        )
    if min_version and min_version not in _VERSIONS:
        raise FlagError(f"invalid argument for --tls-min-version: {min_version!r} is neither TLSV1_2 nor TLSV1_3")
    names = [*_CIPHERS, *_TLS_1_3]
    for name in ciphers:
        if name not in _CIPHERS and name not in _TLS_1_3:
            raise FlagError(
                f"invalid argument for --tls-cipher-suites: unknown cipher suite {name!r}{choices(name, names)}"
            )
    return TlsRules(
        _VERSIONS.get(min_version, ssl.TLSVersion.TLSv1_2),
        ciphers=tuple(_CIPHERS[name] for name in ciphers if name in _CIPHERS),
    )


def make_context(
    pairs: Sequence[CertificatePair],
    roots: bytes | None,
    rules: TlsRules,
    protocol: str = "h2",
    verify_mode: ssl.VerifyMode = ssl.CERT_OPTIONAL,
) -> ssl.SSLContext:
    """Return the context of a server that accepts client certificates and verifies them against PEM roots.

    `pairs` has one certificate for each type of key. The client's ciphers determine which certificate is used.
    `protocol` is offered by ALPN. If `roots` is None, clients are not asked for a certificate. Raise ssl.SSLError or
    ValueError if a certificate, key or root is invalid, or if a key does not match its certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = rules.min_version, rules.max_version
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_TICKET  # a resumed session would reuse an outdated certificate
    context.num_tickets = 0
    if rules.ciphers:
        context.set_ciphers(":".join(rules.ciphers))
    if rules.curve:
        context.set_ecdh_curve(rules.curve)
    context.set_alpn_protocols([protocol])
    for pair in pairs:
        _load(context, pair)
    if roots is not None:
        context.load_verify_locations(cadata=roots.decode("ascii"))
        context.verify_mode = verify_mode
    return context


def _load(context: ssl.SSLContext, pair: CertificatePair) -> None:
    """Load a certificate and its key. They are passed in an in-memory file, because OpenSSL accepts only files."""
    descriptor = os.memfd_create("certificate")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pair.key + b"\n" + pair.chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
