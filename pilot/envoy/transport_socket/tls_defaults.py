"""The TLS settings of the mesh config, without the names that Envoy rejects."""

from __future__ import annotations

from envoy.extensions.transport_sockets.tls.v3 import common_pb2

from pilot.config.mesh.mesh_config import TLSConfig
from pilot.config.validation.traffic.tls import CURVES, is_cipher_suite


def supported_ciphers(config: TLSConfig | None) -> tuple[str, ...]:
    """Return the cipher suites of a section that Envoy supports."""
    return tuple(name for name in config.cipher_suites if name and is_cipher_suite(name)) if config is not None else ()


def supported_curves(config: TLSConfig | None) -> tuple[str, ...]:
    """Return the curves of a section that Envoy supports."""
    return tuple(curve for curve in config.ecdh_curves if curve in CURVES) if config is not None else ()


def requires_tls_1_3(config: TLSConfig | None) -> bool:
    """Return whether a section permits only TLS 1.3.

    It does so by its version, or because Envoy supports none of its cipher suites for TLS 1.2. Envoy's defaults
    would permit more.
    """
    if config is None:
        return False
    return config.min_protocol_version == "TLSV1_3" or (bool(config.cipher_suites) and not supported_ciphers(config))


def minimum_tls_version(config: TLSConfig | None) -> common_pb2.TlsParameters.TlsProtocol:
    """Return the minimum TLS version in a section of the mesh config. It is 1.2 unless the section requires 1.3."""
    return common_pb2.TlsParameters.TLSv1_3 if requires_tls_1_3(config) else common_pb2.TlsParameters.TLSv1_2
