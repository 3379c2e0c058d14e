"""XBackend, BackendTLSPolicy and XBackendTrafficPolicy.

https://gateway-api.sigs.k8s.io/api-types/backendtlspolicy/
https://gateway-api.sigs.k8s.io/geps/gep-3388/
https://gateway-api.sigs.k8s.io/geps/gep-4731/
"""

from __future__ import annotations

from typing import Any

import msgspec

from pilot.config.base import Int32, Lenient
from pilot.config.gateway_api.reference import LocalObjectReference, LocalPolicyTargetReference, SecretObjectReference
from pilot.lib.duration import Duration


class SubjectAltName(Lenient, frozen=True):
    type: str = ""
    hostname: str = ""
    uri: str = ""


class BackendTLSPolicyValidation(Lenient, frozen=True):
    ca_certificate_refs: tuple[LocalObjectReference, ...] = ()
    well_known_ca_certificates: str | None = msgspec.field(default=None, name="wellKnownCACertificates")
    hostname: str = ""
    subject_alt_names: tuple[SubjectAltName, ...] = ()


class BackendTLSPolicy(Lenient, frozen=True):
    """Requires verified TLS for connections to its targets."""

    target_refs: tuple[LocalPolicyTargetReference, ...] = ()
    validation: BackendTLSPolicyValidation = BackendTLSPolicyValidation()


class RetryBudget(Lenient, frozen=True):
    percent: Int32 | None = None
    interval: Duration | None = None


class RequestRate(Lenient, frozen=True):
    count: Int32 | None = None


class RetryConstraint(Lenient, frozen=True):
    budget: RetryBudget = RetryBudget()
    min_retry_rate: RequestRate | None = None


class XBackendTrafficPolicy(Lenient, frozen=True):
    """Limits the proportion of retries in the traffic to its targets."""

    target_refs: tuple[LocalPolicyTargetReference, ...] = ()
    retry_constraint: RetryConstraint | None = None
    session_persistence: dict[str, Any] | None = None


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
