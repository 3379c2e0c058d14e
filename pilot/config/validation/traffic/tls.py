"""Validation of the TLS settings of servers and clients."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.config.base import json_name
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.problem import Problem, Problems, error, warning

# Cipher suites of BoringSSL:
# https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/transport_sockets/tls/v3/common.proto
CIPHER_SUITES = frozenset(
    {
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-CHACHA20-POLY1305",
        "ECDHE-ECDSA-AES128-SHA",
        "ECDHE-RSA-AES128-SHA",
        "ECDHE-ECDSA-AES256-SHA",
        "ECDHE-RSA-AES256-SHA",
        "AES128-GCM-SHA256",
        "AES256-GCM-SHA384",
        "AES128-SHA",
        "AES256-SHA",
        "DES-CBC3-SHA",
    }
)
CURVES = frozenset({"P-256", "P-384", "P-521", "X25519", "X25519MLKEM768"})
"""Curves that Envoy supports."""
TLS_1_3_SUITES = "TLS_"
"""Prefix of the cipher suites of TLS 1.3. Envoy always offers all of them, and rejects their names."""
CONFIG_MAP = "configmap://"


def is_cipher_suite(name: str) -> bool:
    """Return whether Envoy supports a cipher suite.

    Names that start with a symbol, such as `[` or `-`, are expressions. They are accepted without a check.
    """
    return name in ("", "ALL") or not name[0].isalnum() or name in CIPHER_SUITES


def validate_server_tls(tls: ServerTLSSettings) -> Problems:
    yield from _check_ciphers(tls)
    if tls.mode == "ISTIO_MUTUAL":
        for field in _certificate_fields(tls, crl=False):
            yield error("tls-certificates", field, f"ISTIO_MUTUAL uses the mesh's certificates and cannot have {field}")
        return
    if tls.mode in ("PASSTHROUGH", "AUTO_PASSTHROUGH"):
        for field in _certificate_fields(tls, crl=True):
            yield warning("tls-certificates", field, f"{tls.mode} does not use certificates; {field} is ignored")
    files = bool(tls.server_certificate and tls.private_key)
    if files + bool(tls.credential_name) + bool(tls.credential_names) + bool(tls.tls_certificates) > 1:
        fields = "credentialName, credentialNames, serverCertificate with privateKey, and tlsCertificates"
        yield error("exclusive-fields", "", f"only one of {fields} may be set")
    terminates = tls.mode in ("SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL")
    if terminates and not (tls.credential_name or tls.credential_names):
        yield from _check_files(tls)
        if tls.ca_crl and tls.mode == "SIMPLE":
            yield error("tls-certificates", "caCrl", "SIMPLE does not request client certificates")


def _check_ciphers(tls: ServerTLSSettings) -> Iterator[Problem]:
    if tls.min_protocol_version in ("TLSV1_0", "TLSV1_1") and not tls.cipher_suites:
        yield warning(
            "cipher-suites-needed",
            "minProtocolVersion",
            "no default cipher suite supports TLS below 1.2; set cipherSuites",
        )
    names: set[str] = set()
    for index, name in enumerate(tls.cipher_suites):
        if not is_cipher_suite(name):
            yield warning("bad-cipher-suite", f"cipherSuites[{index}]", f"unknown cipher suite {name!r} is ignored")
        elif name in names:
            yield warning("bad-cipher-suite", f"cipherSuites[{index}]", f"duplicate {name!r}")
        names.add(name)


def _certificate_fields(tls: ServerTLSSettings, crl: bool) -> list[str]:
    fields = {
        "serverCertificate": tls.server_certificate,
        "privateKey": tls.private_key,
        "caCertificates": tls.ca_certificates,
        "tlsCertificates": tls.tls_certificates,
        "credentialName": tls.credential_name,
        "credentialNames": tls.credential_names,
        "caCrl": tls.ca_crl if crl else "",
    }
    return [field for field, value in fields.items() if value]


_SECRET = "; to use a Secret, set credentialName"


def _check_files(tls: ServerTLSSettings) -> Iterator[Problem]:
    if tls.mode != "SIMPLE" and not tls.ca_certificates:
        yield error("tls-certificates", "caCertificates", f"{tls.mode} requires the clients' root certificates")
    if len(tls.tls_certificates) > 2:
        yield warning("tls-certificates", "tlsCertificates", "only two server certificates are used")
    pairs = [
        (f"tlsCertificates[{i}].", c.server_certificate, c.private_key) for i, c in enumerate(tls.tls_certificates)
    ]
    for prefix, certificate, key in pairs or [("", tls.server_certificate, tls.private_key)]:
        if not certificate:
            yield error(
                "tls-certificates", f"{prefix}serverCertificate", f"{tls.mode} requires a server certificate{_SECRET}"
            )
        if not key:
            yield error("tls-certificates", f"{prefix}privateKey", f"{tls.mode} requires a private key{_SECRET}")


def validate_client_tls(tls: ClientTLSSettings, namespace: str) -> Problems:
    """Yield the problems of a client's TLS settings.

    `namespace` is the object's namespace. A ConfigMap that contains roots must be in the same namespace.
    """
    if tls.credential_name.startswith(CONFIG_MAP):
        place, slash, name = tls.credential_name[len(CONFIG_MAP) :].partition("/")
        if not name if slash else not place:
            yield error("bad-credential-name", "credentialName", f"{tls.credential_name!r} does not name a ConfigMap")
        elif slash and place != namespace:
            yield error("bad-credential-name", "credentialName", "the ConfigMap must be in the namespace of the object")
    if len(tls.sni.encode()) > 255:
        yield error("bad-host", "sni", "must be at most 255 characters")
    if tls.insecure_skip_verify:
        verification = tls.ca_certificates or tls.subject_alt_names or (tls.mode == "SIMPLE" and tls.credential_name)
        if tls.mode in ("SIMPLE", "MUTUAL") and verification:
            yield error(
                "exclusive-fields", "insecureSkipVerify", "cannot be combined with settings that verify the server"
            )
    if tls.mode in ("SIMPLE", "MUTUAL") and tls.credential_name:
        fields = ("client_certificate", "private_key", "ca_certificates", "ca_crl")
        for field in (json_name(field) for field in fields if getattr(tls, field)):
            yield error("exclusive-fields", field, f"only one of credentialName and {field} may be set")
    elif tls.mode == "MUTUAL":
        if not tls.client_certificate:
            yield error("tls-certificates", "clientCertificate", f"MUTUAL requires a client certificate{_SECRET}")
        if not tls.private_key:
            yield error("tls-certificates", "privateKey", f"MUTUAL requires a private key{_SECRET}")
    else:
        yield from _check_unused(tls)


def _check_unused(tls: ClientTLSSettings) -> Iterator[Problem]:
    """Yield a warning for each certificate or key that a client does not use."""
    fields: tuple[str, ...] = ("client_certificate", "private_key")
    if tls.mode == "ISTIO_MUTUAL":
        fields, why = (*fields, "ca_certificates", "credential_name"), "uses the mesh's certificates"
    elif tls.mode == "SIMPLE":
        why = "sends no client certificate"
    else:
        return
    for field in (json_name(field) for field in fields if getattr(tls, field)):
        text = f"{tls.mode} {why}, so {field} is ignored: write mode: MUTUAL to use it"
        yield warning("tls-certificates", field, text)
