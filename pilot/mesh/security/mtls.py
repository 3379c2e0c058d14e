"""Mutual TLS between workloads: what PeerAuthentications ask of those who serve, and what clients infer from it.

https://istio.io/latest/docs/reference/config/security/peer_authentication/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from pilot.config.kinds.istio import PEER_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.config.security.peer_authentication import MutualTLS, PeerAuthentication
from pilot.derive import derived
from pilot.mesh.model.facets import Labels, PolicySubjectKey
from pilot.mesh.security.policies import attachments, policy_keys
from pilot.mesh.tables.database import Mesh

Mode = Literal["UNKNOWN", "DISABLE", "PERMISSIVE", "STRICT"]


class WorkloadMtls(msgspec.Struct, frozen=True):
    """A workload accepts `mode` on its ports, but for those that `ports` has by number."""

    mode: Mode = "PERMISSIVE"
    ports: Mapping[int, Mode] = {}

    def at(self, port: int) -> Mode:
        """Returns the mode of a port that the workload listens on."""
        return self.ports.get(port, self.mode)


def _said(mtls: MutualTLS | None) -> Mode | None:
    return None if mtls is None or mtls.mode == "UNSET" else mtls.mode


def _specs(db: Mesh, policies: tuple[ObjectKey, ...]) -> Iterator[PeerAuthentication]:
    return (row.spec for key in policies if (row := PEER_AUTHENTICATION.get(db, key)) is not None)


@derived
def namespace_mtls(db: Mesh, namespace: str) -> Mode:
    """Returns what clients take for granted of the workloads of a namespace; "UNKNOWN" where neither it nor the mesh has a policy.

    Policies of workloads and ports do not count here: clients learn of those by the endpoints.
    """
    policies = policy_keys(db, PEER_AUTHENTICATION.id.name, PolicySubjectKey(namespace))
    return accepted(db, policies).mode if policies else "UNKNOWN"


@derived
def accepted(db: Mesh, policies: tuple[ObjectKey, ...]) -> WorkloadMtls:
    """Returns what a workload accepts under PeerAuthentications, each of which comes before those that stand before it."""
    mode: Mode = "PERMISSIVE"
    ports: Mapping[int, Mode] = {}
    for spec in _specs(db, policies):
        mode = _said(spec.mtls) or mode
        if spec.selector is not None and spec.selector.match_labels:
            ports = {port: _said(mtls) or mode for port, mtls in spec.port_level_mtls.items()}
    return WorkloadMtls(mode, ports)


@derived
def _workload_mtls(db: Mesh, namespace: str, labels: Labels) -> WorkloadMtls:
    return accepted(db, policy_keys(db, PEER_AUTHENTICATION.id.name, PolicySubjectKey(namespace, labels)))


def mtls_mode(db: Mesh, namespace: str, labels: Labels, port: int) -> Mode:
    """Returns what a workload accepts on a port that it listens on. Workloads of a namespace that selects none are all alike."""
    selects = any(a.selects for a in attachments(db, PEER_AUTHENTICATION.id.name, namespace))
    return _workload_mtls(db, namespace, labels if selects else frozenset()).at(port)
