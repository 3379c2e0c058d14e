"""gateway.networking.x-k8s.io XBackend. https://gateway-api.sigs.k8s.io/geps/gep-4731/"""

from __future__ import annotations

from pilot.config.base import Int32, Lenient
from pilot.config.gateway_api.backend_policy import BackendTLSPolicyValidation
from pilot.config.gateway_api.reference import SecretObjectReference


class ExternalHostname(Lenient, frozen=True):
    hostname: str = ""


class BackendPort(Lenient, frozen=True):
    port: Int32 = 0


class BackendTLS(Lenient, frozen=True):
    mode: str = ""
    validation: BackendTLSPolicyValidation = BackendTLSPolicyValidation()
    client_certificate_ref: SecretObjectReference | None = None


class XBackend(Lenient, frozen=True):
    """A destination outside the mesh for routes, with its connection settings."""

    type: str = ""
    external_hostname: ExternalHostname | None = None
    port: BackendPort = BackendPort()
    protocol: str = "HTTP"
    tls: BackendTLS | None = None
