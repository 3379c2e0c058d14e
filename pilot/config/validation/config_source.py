"""Validation of the mesh config's `configSources`."""

from __future__ import annotations

from pilot.config.mesh.mesh_config import ConfigSource
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.config.problem import Problems, below, error, warning
from pilot.config.source_address import AddressFault, parse_source_address
from pilot.config.validation.traffic.tls import validate_client_tls


def validate_config_source(source: ConfigSource) -> Problems:
    try:
        scheme = parse_source_address(source.address).scheme
    except AddressFault as fault:
        yield (warning if fault.unknown else error)(
            "bad-source", "address", str(fault) + ("; the source is ignored" if fault.unknown else "")
        )
        return
    if source.tls_settings is None:
        return
    if scheme != "xds":
        yield warning("no-effect", "tlsSettings", f"{scheme} sources do not use TLS")
    yield from below("tlsSettings", _validate_tls(source.tls_settings))


def _validate_tls(tls: ClientTLSSettings) -> Problems:
    if tls.mode == "ISTIO_MUTUAL":
        yield error("not-supported", "mode", "ISTIO_MUTUAL is not supported; use DISABLE, SIMPLE or MUTUAL")
        return
    yield from validate_client_tls(tls, "")
    if tls.mode == "DISABLE":
        return
    if not (tls.ca_certificates or tls.credential_name):
        yield error(
            "tls-certificates",
            "caCertificates",
            f"{tls.mode} requires the server's root certificates: set caCertificates or credentialName",
        )
    if tls.insecure_skip_verify:
        yield error("not-supported", "insecureSkipVerify", "the server must be verified")
    if len(tls.subject_alt_names) > 1 or any("://" in name for name in tls.subject_alt_names):
        yield error("not-supported", "subjectAltNames", "must be a single DNS name")
