"""Mutual TLS between workloads: what PeerAuthentications ask of those who serve, and what clients infer from it.

https://istio.io/latest/docs/reference/config/security/peer_authentication/
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from pilot.derive import derived, hub
from pilot.model.config.object import Object, ObjectKey, age
from pilot.model.config.peer_authentication import MutualTLS, PeerAuthentication
from pilot.model.facets import Labels
from pilot.model.inputs import Mesh
from pilot.model.views.kinds.peer_authentications import peer_authentications
from pilot.model.views.mesh import mesh_config

Mode = Literal["UNKNOWN", "DISABLE", "PERMISSIVE", "STRICT"]


class WorkloadMtls(msgspec.Struct, frozen=True):
    """What one workload accepts: on its ports by number, and on any other."""

    mode: Mode = "PERMISSIVE"
    ports: Mapping[int, Mode] = {}

    def at(self, port: int) -> Mode:
        """On a port that the workload listens on."""
        return self.ports.get(port, self.mode)


class _Policies(msgspec.Struct, frozen=True):
    """The policies of a namespace: `default` is that without a selector, the others are by their selectors, oldest first."""

    default: MutualTLS | None = None
    present: bool = False
    selecting: tuple[tuple[Labels, ObjectKey], ...] = ()


@hub
def _policies(db: Mesh, namespace: str) -> _Policies:
    rows = [row for key in peer_authentications.keys(db, "namespace", namespace) if (row := peer_authentications.get(db, key)) is not None]
    return _arrange(sorted(rows, key=age))


def _arrange(policies: Iterable[Object[PeerAuthentication]]) -> _Policies:
    """Of policies oldest first: of several without a selector the oldest counts."""
    default: Object[PeerAuthentication] | None = None
    selecting = []
    for o in policies:
        labels = o.spec.selector.match_labels if o.spec.selector is not None else {}
        if labels:
            selecting.append((frozenset(labels.items()), o.key))
        elif default is None:
            default = o
    return _Policies(default.spec.mtls if default is not None else None, default is not None, tuple(selecting))


def _said(mtls: MutualTLS | None) -> Mode | None:
    return None if mtls is None or mtls.mode == "UNSET" else mtls.mode


@derived
def namespace_mtls(db: Mesh, namespace: str) -> Mode:
    """What clients take for granted of the workloads of a namespace; "UNKNOWN" where neither it nor the mesh has a policy.

    Policies of workloads and ports do not count here: clients learn of those by the endpoints.
    """
    root = mesh_config(db).root_namespace
    mesh = _policies(db, root)
    inherited: Mode = (_said(mesh.default) or "PERMISSIVE") if mesh.present else "UNKNOWN"
    if namespace == root:
        return inherited
    own = _policies(db, namespace)
    if not own.present:
        return inherited
    return _said(own.default) or (inherited if inherited != "UNKNOWN" else "PERMISSIVE")


@derived
def workload_mtls(db: Mesh, namespace: str, labels: Labels) -> WorkloadMtls:
    """What a workload accepts, by its labels: its own policy before that of its namespace before that of the mesh."""
    root = mesh_config(db).root_namespace
    mode = _said(_policies(db, root).default) or "PERMISSIVE"
    if namespace == root:
        return WorkloadMtls(mode)
    own = _policies(db, namespace)
    mode = _said(own.default) or mode
    key = next((key for selector, key in own.selecting if selector <= labels), None)
    row = peer_authentications.get(db, key) if key is not None else None
    if row is None:
        return WorkloadMtls(mode)
    mode = _said(row.spec.mtls) or mode
    return WorkloadMtls(mode, {port: _said(mtls) or mode for port, mtls in row.spec.port_level_mtls.items()})


def mtls_mode(db: Mesh, namespace: str, labels: Labels, port: int) -> Mode:
    """What a workload accepts on a port that it listens on. Workloads of a namespace that selects none are all alike."""
    return workload_mtls(db, namespace, labels if _policies(db, namespace).selecting else frozenset()).at(port)
