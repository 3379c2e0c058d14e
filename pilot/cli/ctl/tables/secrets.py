"""Secrets: certificates and roots, with their names and validity periods."""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Iterable
from typing import Any

from cryptography import x509

from pilot.cli.ctl.tables.filters import Filters

HEAD = ("NAME", "TYPE", "STATUS", "VALID CERT", "SERIAL NUMBER", "NOT AFTER", "NOT BEFORE", "IDENTITIES")
FORM = "%Y-%m-%dT%H:%M:%SZ"

FILTERS = ("name",)


def select(resources: Iterable[dict[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return the resource with the name, or all of them."""
    return [resource for resource in resources if filters.name in ("", resource.get("name", ""))]


def rows(secrets: Iterable[dict[str, Any]], now: datetime.datetime | None = None) -> list[tuple[str, ...]]:
    """Return a row for each certificate in each secret, with the leaf first."""
    time = now or datetime.datetime.now(datetime.UTC)
    return [row for secret in sorted(secrets, key=lambda s: str(s.get("name"))) for row in _rows(secret, time)]


def _rows(secret: dict[str, Any], now: datetime.datetime) -> list[tuple[str, ...]]:
    if secret.keys() <= {"name"}:
        return [(secret.get("name", ""), "-", "WARMING", "no", "-", "-", "-", "Envoy has not received it")]
    name, kind = secret.get("name", ""), "Cert Chain" if _chain(secret) else "CA"
    if not (certificates := read_certificates(secret)):
        return [(name, kind, "ACTIVE", "no", "-", "-", "-", "contains no certificate")]
    return [(name, kind, "ACTIVE", *_cells(certificate, now)) for certificate in certificates]


def read_certificates(secret: dict[str, Any]) -> list[x509.Certificate]:
    """Return the certificate chain or the roots in a secret, or [] if it contains no valid certificate."""
    context = secret.get("validationContext") or secret.get("combinedValidationContext", {}).get(
        "defaultValidationContext", {}
    )
    try:
        return x509.load_pem_x509_certificates(_content(_chain(secret) or context.get("trustedCa", {})))
    except (ValueError, binascii.Error):
        return []


def _chain(secret: dict[str, Any]) -> dict[str, Any]:
    chain: dict[str, Any] = secret.get("tlsCertificate", {}).get("certificateChain", {})
    return chain


def _content(source: dict[str, Any]) -> bytes:
    """Return the inline content of a data source, or b"" if the source is a file."""
    return (
        base64.b64decode(source["inlineBytes"]) if "inlineBytes" in source else source.get("inlineString", "").encode()
    )


def _cells(certificate: x509.Certificate, now: datetime.datetime) -> tuple[str, ...]:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    valid = "yes" if begins <= now <= ends else "not yet" if now < begins else "no"
    return (
        valid,
        f"{certificate.serial_number:x}",
        ends.strftime(FORM),
        begins.strftime(FORM),
        ",".join(_names(certificate)) or "-",
    )


def _names(certificate: x509.Certificate) -> list[str]:
    """Return the subject alternative names, or the subject if there are none."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [certificate.subject.rfc4514_string()]
    return [str(name.value) for name in names]
