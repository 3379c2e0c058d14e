"""The declaration of an analyzer, and the kinds that analyzers read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects
from pilot.config.group_kind import GroupKind
from pilot.config.problem import Problem

Report = tuple[AnalyzedObject, Problem]
Reports = Iterator[Report]


class ReadKind(NamedTuple):
    """A kind to read from an API server, optionally only objects that a label selector and a field selector match."""

    api_version: str
    name: str
    label: str = ""
    fields: str = ""

    @property
    def id(self) -> GroupKind:
        return GroupKind(self.api_version.rpartition("/")[0], self.name)


class Analyzer(NamedTuple):
    """An analyzer. `check` yields problems, each with the object that it is a problem of.

    `name` is istioctl's name. `kinds` are the kinds of the objects that `check` reads.
    """

    name: str
    kinds: tuple[ReadKind, ...]
    check: Callable[[AnalyzedObjects], Reports]


NAMESPACE = ReadKind("v1", "Namespace")
POD = ReadKind("v1", "Pod")
SERVICE = ReadKind("v1", "Service")
INJECTOR_CONFIG = ReadKind("v1", "ConfigMap", "istio.io/rev")
CLUSTER_SECRET = ReadKind("v1", "Secret", "istio/multiCluster=true")
DEPLOYMENT = ReadKind("apps/v1", "Deployment")
STATEFUL_SET = ReadKind("apps/v1", "StatefulSet")
DAEMON_SET = ReadKind("apps/v1", "DaemonSet")
JOB = ReadKind("batch/v1", "Job")
MUTATING_WEBHOOKS = ReadKind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
VALIDATING_WEBHOOKS = ReadKind("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
DEFINITION = ReadKind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
DESTINATION_RULE = ReadKind("networking.istio.io/v1", "DestinationRule")
ENVOY_FILTER = ReadKind("networking.istio.io/v1alpha3", "EnvoyFilter")
GATEWAY = ReadKind("networking.istio.io/v1", "Gateway")
SERVICE_ENTRY = ReadKind("networking.istio.io/v1", "ServiceEntry")
SIDECAR = ReadKind("networking.istio.io/v1", "Sidecar")
VIRTUAL_SERVICE = ReadKind("networking.istio.io/v1", "VirtualService")
WORKLOAD_ENTRY = ReadKind("networking.istio.io/v1", "WorkloadEntry")
AUTHORIZATION_POLICY = ReadKind("security.istio.io/v1", "AuthorizationPolicy")
REQUEST_AUTHENTICATION = ReadKind("security.istio.io/v1", "RequestAuthentication")
TELEMETRY = ReadKind("telemetry.istio.io/v1", "Telemetry")
WASM_PLUGIN = ReadKind("extensions.istio.io/v1alpha1", "WasmPlugin")
KUBERNETES_GATEWAY = ReadKind("gateway.networking.k8s.io/v1", "Gateway")
HTTP_ROUTE = ReadKind("gateway.networking.k8s.io/v1", "HTTPRoute")
GRPC_ROUTE = ReadKind("gateway.networking.k8s.io/v1", "GRPCRoute")

REVISION = "istio.io/rev"
INJECT = "sidecar.istio.io/inject"
INJECTION = "istio-injection"
DATAPLANE_MODE = "istio.io/dataplane-mode"
PROXY = "istio-proxy"


def is_component(one: AnalyzedObject) -> bool:
    """Return whether an object belongs to an installation of Istio, by its labels."""
    return "istio" in one.labels or one.labels.get("release") == "istio" or one.labels.get("app") == "istiod"
