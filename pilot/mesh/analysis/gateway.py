"""Checks that Gateways select existing routers and use existing ports and credentials."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from pilot.config.kinds.istio import GATEWAY
from pilot.config.networking.gateway import Gateway, ServerTLSSettings
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import MAX_PROBLEMS, Problem, Problems, below, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.credential import check_credential
from pilot.mesh.analysis.selector import Labels, check_selector, check_selector_anywhere, selected_anywhere
from pilot.mesh.registry.service_targets import selecting_ports
from pilot.mesh.security.credential_access import certificate_fields, root_fields
from pilot.mesh.tables.database import Mesh


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return GATEWAY.all_keys(db)


@derived
def gateway_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a Gateway and other objects, except conflicts with other servers of a router."""
    gateway = GATEWAY.get(db, key)
    if gateway is None:
        return ()
    problems = itertools.islice(_check(db, gateway), MAX_PROBLEMS + 1)  # all of them are warnings
    return attribute(gateway, below("spec", problems))


GATEWAYS = Check("Gateway", _keys, gateway_problems)


def _check(db: Mesh, o: Object[Gateway]) -> Problems:
    if not o.spec.selector:
        return
    own = db.settings.gateways.scope_to_namespace
    routers = [
        (n, labels) for n, labels in selected_anywhere(db, o.spec.selector, o.namespace) if not own or n == o.namespace
    ]
    if not routers:
        if own:
            yield from below("selector", check_selector(db, o.namespace, o.spec.selector))
        else:
            yield from below("selector", check_selector_anywhere(db, o.spec.selector, o.namespace))
        return
    ports = _ports(db, routers)
    for index, server in enumerate(o.spec.servers):
        if ports and server.port is not None and server.port.number not in ports:
            yield warning(
                "port-not-found",
                f"servers[{index}].port.number",
                f"no Service of the workloads that this Gateway selects has port {server.port.number}",
            )
        if server.tls is not None:
            yield from below(f"servers[{index}].tls", _check_credentials(db, server.tls, {n for n, _ in routers}))


def _ports(db: Mesh, routers: Iterable[tuple[str, Labels]]) -> set[int]:
    """Return the ports and target ports of the Services that select the routers."""
    return {port for namespace, labels in dict.fromkeys(routers) for port in selecting_ports(db, namespace, labels)}


def _check_credentials(db: Mesh, tls: ServerTLSSettings, namespaces: set[str]) -> Problems:
    """Yield the problems of a server's credentials for routers in the given namespaces."""
    several = bool(tls.credential_names)
    for index, name in enumerate(certificate_fields(tls)):
        yield from check_credential(
            db, f"credentialNames[{index}]" if several else "credentialName", name, namespaces, roots=False
        )
    for name in root_fields(tls):
        path = (
            "caCertCredentialName"
            if tls.ca_cert_credential_name
            else "credentialNames[0]"
            if several
            else "credentialName"
        )
        yield from check_credential(db, path, name, namespaces, roots=True)
