"""The mutual TLS modes that PeerAuthentications set for servers, and that clients infer.

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
    """The mutual TLS mode of a workload. `ports` contains the ports that have a different mode, and their modes."""

    mode: Mode = "PERMISSIVE"
    ports: Mapping[int, Mode] = {}

    def at(self, port: int) -> Mode:
        """Return the mode of a port that the workload listens on."""
        return self.ports.get(port, self.mode)


def _mode(mtls: MutualTLS | None) -> Mode | None:
    return None if mtls is None or mtls.mode == "UNSET" else mtls.mode


def _specs(db: Mesh, policies: tuple[ObjectKey, ...]) -> Iterator[PeerAuthentication]:
    return (row.spec for key in policies if (row := PEER_AUTHENTICATION.get(db, key)) is not None)


@derived
def namespace_mtls(db: Mesh, namespace: str) -> Mode:
    """Return the mode that clients assume for the workloads in a namespace.

    Return "UNKNOWN" if no policy applies to the namespace or the mesh. Policies for workloads and ports are ignored,
    because clients learn their effect from the endpoints.
    """
    policies = policy_keys(db, PEER_AUTHENTICATION.id.name, PolicySubjectKey(namespace))
    return accepted(db, policies).mode if policies else "UNKNOWN"


@derived
def accepted(db: Mesh, policies: tuple[ObjectKey, ...]) -> WorkloadMtls:
    """Return the modes that a workload accepts. Later policies take precedence over earlier ones."""
    mode: Mode = "PERMISSIVE"
    ports: Mapping[int, Mode] = {}
    for spec in _specs(db, policies):
        mode = _mode(spec.mtls) or mode
        if spec.selector is not None and spec.selector.match_labels:
            ports = {port: _mode(mtls) or mode for port, mtls in spec.port_level_mtls.items()}
    return WorkloadMtls(mode, ports)


@derived
def _workload_mtls(db: Mesh, namespace: str, labels: Labels) -> WorkloadMtls:
    return accepted(db, policy_keys(db, PEER_AUTHENTICATION.id.name, PolicySubjectKey(namespace, labels)))


def mtls_mode(db: Mesh, namespace: str, labels: Labels, port: int) -> Mode:
    """Return the mode that a workload accepts on a port. Not memoised itself.

    All workloads in a namespace share one memoised result if no policy in the namespace has a selector.
    """
    selects = any(a.selects for a in attachments(db, PEER_AUTHENTICATION.id.name, namespace))
    return _workload_mtls(db, namespace, labels if selects else frozenset()).at(port)
