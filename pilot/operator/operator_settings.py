"""Every setting of the operator, declared once: flag, environment variable, default and one sentence. Names are those of Istio's operator."""

# ruff: noqa: RUF009 (the values of setting() and section() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import section, setting
from pilot.settings.process import LogSettings

WATCHED = "WATCH_NAMESPACE"


@dataclasses.dataclass(frozen=True)
class WatchSettings:
    """Which IstioOperators are looked after."""

    namespaces: str = setting(
        "",
        "Namespaces between commas, in which IstioOperators are and install; empty: all. It must be set.",
        env=WATCHED,
    )
    revision: str = setting("", "Only IstioOperators of this spec.revision; empty: all of them.", env="REVISION")
    kubeconfig: str = setting("", "Kubeconfig; empty for the account of the pod.", flag="kubeconfig", env="KUBECONFIG")
    timeout: Duration = setting(
        parse_duration("300s"), "Time that a component gets to come up.", env="WAIT_FOR_RESOURCES_TIMEOUT"
    )


@dataclasses.dataclass(frozen=True)
class ReplicaSettings:
    """This replica, and how one of several is chosen."""

    lease_namespace: str = setting(
        "",
        "Namespace of the Lease of the replica that works; empty: all of them work.",
        env="LEADER_ELECTION_NAMESPACE",
    )
    renew_deadline: Duration = setting(
        parse_duration("10s"), "Time in which the Lease is renewed or given up.", env="RENEW_DEADLINE"
    )
    pod_name: str = setting(
        "", "Name of this pod, by which replicas tell each other apart; empty is a random one.", env="POD_NAME"
    )
    pod_namespace: str = setting("", "Namespace of this pod.", env="POD_NAMESPACE")
    deployment: str = setting(
        "istio-operator",
        "Deployment that this pod is of; what becomes of it decides about finalizers.",
        env="OPERATOR_NAME",
    )
    address: str = setting(":8383", "Address of /metrics, /healthz and /readyz.", flag="monitoringAddr")


@dataclasses.dataclass(frozen=True)
class OperatorSettings:
    """All settings of the operator."""

    watch: WatchSettings = section(WatchSettings(), "What is looked after")
    replica: ReplicaSettings = section(ReplicaSettings(), "This replica")
    log: LogSettings = section(LogSettings(), "Log")
