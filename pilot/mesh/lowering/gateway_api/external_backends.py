"""XBackends, an alpha kind: the ServiceEntry that each becomes, the TLS that it asks for, and what is wrong with it."""

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
from pilot.mesh.gateway_api.names import backend_entry
from pilot.mesh.lowering.gateway_api.policy_tls import NO_CREDENTIAL, find_roots, subject_names
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

EXTERNAL = "ExternalHostname"
_PROTOCOLS = {"HTTP": "HTTP", "HTTP11": "HTTP", "HTTP2": "HTTP2", "H2C": "HTTP2", "GRPC": "GRPC", "MCP": "HTTP"}
_NO_TLS = ("None", "")


class ExternalBackend(msgspec.Struct, frozen=True, kw_only=True):
    """An XBackend as it is meant. `host` is "" where it leads nowhere; `resolved`, `accepted`: what is wrong with it."""

    created: str
    host: str
    port: int
    protocol: str
    tls: ClientTLSSettings | None = None
    resolved: Fault | None = None
    accepted: Fault | None = None


@derived
def external_backend(db: Mesh, key: ObjectKey) -> ExternalBackend | None:
    """Returns an XBackend; None where there is none, or alpha kinds are off."""
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
    """Returns why a backend leads nowhere; None where it leads to a host outside."""
    if row.spec.type != EXTERNAL:
        return Fault("Invalid", f"unsupported backend type: {row.spec.type}")
    if (domain := _cluster_domain(db, host)) is not None:
        return Fault("Invalid", f"externalHostname.hostname is a name of the cluster, in {domain}")
    wrong = next((problem for problem in validate_service_entry(entry) if problem.severity is Severity.ERROR), None)
    if wrong is None:
        return None
    return Fault("Invalid", f"{'port.port' if 'ports' in wrong.path else 'externalHostname.hostname'}: {wrong.message}")


def _cluster_domain(db: Mesh, host: str) -> str | None:
    """Returns the domain of Services that a host is in, None for one outside: whoever writes a backend must not take what is a Service's."""
    return next(
        (
            domain
            for domain in (f"svc.{db.settings.registry.domain}", "svc.clusterset.local")
            if host.endswith(f".{domain}")
        ),
        None,
    )


def _tls(db: Mesh, row: Object[XBackend], host: str) -> tuple[ClientTLSSettings | None, Fault | None, Fault | None]:
    """Returns the TLS of a backend, and what is wrong with its references and with the backend. Where TLS is asked for that cannot be had,
    nothing gets through: it would get through in plain text otherwise."""
    said = row.spec.tls
    if said is None or said.mode in _NO_TLS:
        return None, None, None
    if said.mode != "ServerOnly":
        known = said.mode == "ClientAndServer"
        why = (
            "unsupported ClientAndServer TLS mode: Istio does not support client certificates on backend"
            if known
            else None
        )
        fault = Fault("Invalid", why or f'unsupported TLS mode: "{said.mode}"')
        return ClientTLSSettings(mode="SIMPLE", sni=host, credential_name=NO_CREDENTIAL), None, fault
    roots = find_roots(db, said.validation, row.namespace)
    names = subject_names(said.validation)
    tls = ClientTLSSettings(
        mode="SIMPLE", sni=said.validation.hostname or host, subject_alt_names=names, credential_name=roots.credential
    )
    return tls, roots.resolved, roots.accepted


# -- the ServiceEntries ----------------------------------------------------------------------------------------------------


@derived
def backend_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    """Returns every XBackend."""
    return BACKEND.all_keys(db)


@derived
def _entry(db: Mesh, key: ObjectKey) -> Object[ServiceEntry] | None:
    found = external_backend(db, key)
    if found is None or not found.host:
        return None
    return _service_entry(key, found.created, found.host, found.port, found.protocol)


def _service_entry(key: ObjectKey, created: str, host: str, port: int, protocol: str) -> Object[ServiceEntry]:
    ports = (ServicePort(number=port, protocol=protocol, name=protocol),)
    spec = ServiceEntry(hosts=(host,), ports=ports, location="MESH_EXTERNAL", resolution="DNS")
    origin = Origin(semantics="gateway", parents=(ObjectRef(BACKEND.id, *key),))
    return Object(SERVICE_ENTRY.id, key.namespace, backend_entry(key.name), spec, created=created, origin=origin)


_entries: Gather[ObjectKey, [], Object[ServiceEntry]] = Gather("service_entries_by_backend", backend_keys, _entry)


@derived
def service_entries_of_backends(db: Mesh) -> Mapping[ObjectKey, Object[ServiceEntry]]:
    """Returns the ServiceEntries of all XBackends."""
    return {made.key: made for made in _entries(db).values()}
