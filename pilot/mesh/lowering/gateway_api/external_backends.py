"""XBackends, an alpha kind, converted to ServiceEntries and TLS settings."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pilot.config.gateway_api.backend import XBackend
from pilot.config.kinds.gateway_api import BACKEND
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.config.networking.service_entry import ServiceEntry, ServicePort
from pilot.config.object import Object, ObjectKey, Origin
from pilot.config.problem import ObjectRef, Severity
from pilot.config.validation.traffic.service_entry import validate_service_entry
from pilot.derive import Gather, derived
from pilot.mesh.gateway_api.generated_names import backend_entry
from pilot.mesh.lowering.gateway_api.policy_tls import NO_CREDENTIAL, find_roots, subject_names
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

EXTERNAL = "ExternalHostname"
_PROTOCOLS = {"HTTP": "HTTP", "HTTP11": "HTTP", "HTTP2": "HTTP2", "H2C": "HTTP2", "GRPC": "GRPC", "MCP": "HTTP"}
_NO_TLS = ("None", "")


class ExternalBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A converted XBackend. `host` is "" if the XBackend is invalid.

    `resolved` and `accepted` are the faults that its conditions ResolvedRefs and Accepted report.
    """

    created: str
    host: str
    port: int
    protocol: str
    tls: ClientTLSSettings | None = None
    resolved: Fault | None = None
    accepted: Fault | None = None


@derived
def external_backend(db: Mesh, key: ObjectKey) -> ExternalBackend | None:
    """Return a converted XBackend, or None if it does not exist or alpha kinds are disabled."""
    row = BACKEND.get(db, key) if db.settings.gateway_api.alpha else None
    if row is None:
        return None
    spec = row.spec
    host = spec.external_hostname.hostname.lower() if spec.external_hostname is not None else ""
    port, protocol = spec.port.port, _PROTOCOLS.get(spec.protocol, "TCP")
    if fault := _fault(db, row, host, _service_entry(key, row.created, host, port, protocol)):
        return ExternalBackend(created=row.created, host="", port=port, protocol=protocol, accepted=fault)
    tls, resolved, accepted = _tls(db, row, host)
    return ExternalBackend(
        created=row.created, host=host, port=port, protocol=protocol, tls=tls, resolved=resolved, accepted=accepted
    )


def _fault(db: Mesh, row: Object[XBackend], host: str, entry: Object[ServiceEntry]) -> Fault | None:
    """Return the reason why a backend is invalid, or None if it is valid."""
    if row.spec.type != EXTERNAL:
        return Fault("Invalid", f"unsupported backend type: {row.spec.type}")
    if (domain := _cluster_domain(db, host)) is not None:
        return Fault("Invalid", f"externalHostname.hostname is in the cluster domain {domain}")
    error = next((error for error in validate_service_entry(entry) if error.severity is Severity.ERROR), None)
    if error is None:
        return None
    return Fault("Invalid", f"{'port.port' if 'ports' in error.path else 'externalHostname.hostname'}: {error.message}")


def _cluster_domain(db: Mesh, host: str) -> str | None:
    """Return the cluster domain that a host is in, or None if the host is external.

    Hosts in a cluster domain are rejected, because a backend must not claim the host name of a Service.
    """
    return next(
        (
            domain
            for domain in (f"svc.{db.settings.registry.domain}", "svc.clusterset.local")
            if host.endswith(f".{domain}")
        ),
        None,
    )


def _tls(db: Mesh, row: Object[XBackend], host: str) -> tuple[ClientTLSSettings | None, Fault | None, Fault | None]:
    """Return the TLS settings of a backend, and the faults of its ResolvedRefs and Accepted conditions.

    If the requested TLS mode or roots are unavailable, all connections fail. They are never sent in plaintext.
    """
    tls_config = row.spec.tls
    if tls_config is None or tls_config.mode in _NO_TLS:
        return None, None, None
    if tls_config.mode != "ServerOnly":
        is_mutual = tls_config.mode == "ClientAndServer"
        message = (
            "unsupported ClientAndServer TLS mode: Istio does not support client certificates on backend"
            if is_mutual
            else None
        )
        fault = Fault("Invalid", message or f'unsupported TLS mode: "{tls_config.mode}"')
        return ClientTLSSettings(mode="SIMPLE", sni=host, credential_name=NO_CREDENTIAL), None, fault
    roots = find_roots(db, tls_config.validation, row.namespace)
    names = subject_names(tls_config.validation)
    tls = ClientTLSSettings(
        mode="SIMPLE",
        sni=tls_config.validation.hostname or host,
        subject_alt_names=names,
        credential_name=roots.credential,
    )
    return tls, roots.resolved, roots.accepted


# -- ServiceEntries ----------------------------------------------------------------------------------------------------


@derived
def backend_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    """Return the keys of all XBackends."""
    return BACKEND.all_keys(db)


@derived
def _entry(db: Mesh, key: ObjectKey) -> Object[ServiceEntry] | None:
    external = external_backend(db, key)
    if external is None or not external.host:
        return None
    return _service_entry(key, external.created, external.host, external.port, external.protocol)


def _service_entry(key: ObjectKey, created: str, host: str, port: int, protocol: str) -> Object[ServiceEntry]:
    ports = (ServicePort(number=port, protocol=protocol, name=protocol),)
    spec = ServiceEntry(hosts=(host,), ports=ports, location="MESH_EXTERNAL", resolution="DNS")
    origin = Origin(semantics="gateway", parents=(ObjectRef(BACKEND.id, *key),))
    return Object(SERVICE_ENTRY.id, key.namespace, backend_entry(key.name), spec, created=created, origin=origin)


_entries: Gather[ObjectKey, [], Object[ServiceEntry]] = Gather("service_entries_by_backend", backend_keys, _entry)


@derived
def service_entries_of_backends(db: Mesh) -> Mapping[ObjectKey, Object[ServiceEntry]]:
    """Return the ServiceEntries that all XBackends are converted to."""
    return {entry.key: entry for entry in _entries(db).values()}
