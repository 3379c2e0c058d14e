"""The settings of the operator: flags, environment variables, defaults and descriptions.

The flags and variables have the same names as in Istio's operator.
"""

# ruff: noqa: RUF009 (the values of setting() and section() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import section, setting
from pilot.settings.process import LogSettings

WATCH_NAMESPACE = "WATCH_NAMESPACE"


@dataclasses.dataclass(frozen=True)
class WatchSettings:
    """Selection of the IstioOperators to reconcile."""

    namespaces: str = setting(
        "",
        "Comma-separated namespaces in which the operator watches IstioOperators and installs components. The variable "
        "must be set, but may be empty to select all namespaces.",
        env=WATCH_NAMESPACE,
    )
    revision: str = setting(
        "",
        "Revision (spec.revision) of the IstioOperators to watch. If empty, all revisions are watched.",
        env="REVISION",
    )
    kubeconfig: str = setting(
        "", "Kubeconfig file. If empty, the service account of the pod is used.", flag="kubeconfig", env="KUBECONFIG"
    )
    timeout: Duration = setting(
        parse_duration("300s"),
        "Maximum time to wait for a component to become ready.",
        env="WAIT_FOR_RESOURCES_TIMEOUT",
    )


@dataclasses.dataclass(frozen=True)
class ReplicaSettings:
    """Settings of this replica, and of leader election."""

    lease_namespace: str = setting(
        "",
        "Namespace of the Lease for leader election. If empty, all replicas are active without an election.",
        env="LEADER_ELECTION_NAMESPACE",
    )
    renew_deadline: Duration = setting(
        parse_duration("10s"), "Maximum time for the leader to renew the Lease.", env="RENEW_DEADLINE"
    )
    pod_name: str = setting(
        "", "Name of this pod, which identifies the leader. If empty, a random name is used.", env="POD_NAME"
    )
    pod_namespace: str = setting("", "Namespace of this pod.", env="POD_NAMESPACE")
    deployment: str = setting(
        "istio-operator",
        "Name of the operator's Deployment. When the Deployment is deleted, the operator removes its "
        "finalizers from IstioOperators.",
        env="OPERATOR_NAME",
    )
    address: str = setting(":8383", "Address of /metrics, /healthz and /readyz.", flag="monitoringAddr")


@dataclasses.dataclass(frozen=True)
class OperatorSettings:
    """All settings of the operator."""

    watch: WatchSettings = section(WatchSettings(), "IstioOperators")
    replica: ReplicaSettings = section(ReplicaSettings(), "Replica and leader election")
    log: LogSettings = section(LogSettings(), "Logs")
