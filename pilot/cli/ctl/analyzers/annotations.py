"""Checks the annotations of Istio on namespaces, Services, Pods and workloads with a template of Pods."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObjects, texts
from pilot.cli.ctl.analyzers.analyzer import (
    DAEMON_SET,
    DEPLOYMENT,
    INJECT,
    JOB,
    NAMESPACE,
    POD,
    SERVICE,
    STATEFUL_SET,
    Analyzer,
    Reports,
)
from pilot.config.problem import Problems, info, warning
from pilot.lib.suggestion import did_you_mean
from webhook.inject.annotations import annotation_fault

_WORKLOADS = (DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB)
_TEMPLATED = frozenset(kind.name for kind in _WORKLOADS)
_KINDS = (NAMESPACE, SERVICE, POD, *_WORKLOADS)
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_IGNORED = frozenset(("sidecar.istio.io/status", "gateway.istio.io/controller-version", "istio.io/rev"))
"""Annotations that controllers set."""
_ANY = frozenset(("galley.istio.io/analyze-suppress",))
"""Annotations of objects of any kind."""


def _named(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for name in names)


_BY_KIND: Mapping[str, tuple[str, ...]] = {
    "AuthorizationPolicy": ("istio.io/dry-run",),
    "Gateway": (
        *_named("gateway.istio.io/", "name-override", "service-account"),
        "networking.istio.io/service-type",
        "ambient.istio.io/waypoint-inbound-binding",
    ),
    "GatewayClass": ("ambient.istio.io/waypoint-inbound-binding",),
    "Ingress": (_INGRESS_CLASS,),
    "Namespace": (
        "networking.istio.io/traffic-distribution",
        "topology.istio.io/controlPlaneClusters",
        "istio.io/use-waypoint-canary-weight",
    ),
    "Pod": (
        *_named("ambient.istio.io/", "bypass-inbound-capture", "dns-capture", "redirection"),
        "inject.istio.io/templates",
        "istio.io/reroute-virtual-interfaces",
        "prometheus.istio.io/merge-metrics",
        *_named("proxy.istio.io/", "config", "overrides"),
        *_named(
            "readiness.status.sidecar.istio.io/",
            *("applicationPorts", "failureThreshold", "initialDelaySeconds", "periodSeconds"),
        ),
        *_named(
            "sidecar.istio.io/",
            *("agentLogLevel", "bootstrapOverride", "componentLogLevel", "discoveryAddress", "extraStatTags"),
            *("inject", "interceptionMode", "logLevel", "nativeSidecar", "proxyCPU", "proxyCPULimit", "proxyImage"),
            *("proxyImageType", "proxyMemory", "proxyMemoryLimit", "rewriteAppHTTPProbers", "statsCompression"),
            *("statsEvictionInterval", "statsFlushInterval", "statsHistogramBins", "statsHistogramBuckets"),
            *("statsInclusionPrefixes", "statsInclusionRegexps", "statsInclusionSuffixes", "userVolume"),
            "userVolumeMount",
        ),
        "status.sidecar.istio.io/port",
        *_named(
            "traffic.sidecar.istio.io/",
            *("excludeInboundPorts", "excludeInterfaces", "excludeOutboundIPRanges", "excludeOutboundPorts"),
            *("includeInboundPorts", "includeOutboundIPRanges", "includeOutboundPorts", "kubevirtInterfaces"),
        ),
    ),
    "Service": (
        *_named("alpha.istio.io/", "canonical-serviceaccounts", "kubernetes-serviceaccounts"),
        *_named("networking.istio.io/", "exportTo", "traffic-distribution"),
        "traffic.istio.io/nodeSelector",
        "istio.io/use-waypoint-canary-weight",
    ),
    "ServiceEntry": ("networking.istio.io/traffic-distribution", "istio.io/use-waypoint-canary-weight"),
    "WorkloadEntry": (
        *_named("istio.io/", "autoRegistrationGroup", "connectedAt", "disconnectedAt", "workloadController"),
    ),
}
"""The annotations of the Istio API, by kind of object. https://istio.io/latest/docs/reference/config/annotations/"""
_DEPRECATED = frozenset(
    (
        INJECT,
        *_named("alpha.istio.io/", "canonical-serviceaccounts", "kubernetes-serviceaccounts"),
        *_named("sidecar.istio.io/", "discoveryAddress", "extraStatTags", "statsCompression"),
        *_named("sidecar.istio.io/", "statsInclusionPrefixes", "statsInclusionRegexps", "statsInclusionSuffixes"),
        "traffic.sidecar.istio.io/kubevirtInterfaces",
    )
)


def _kinds_by_annotation() -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for kind, names in _BY_KIND.items():
        for name in names:
            kinds.setdefault(name, []).append(kind)
    return kinds


_KINDS_OF = _kinds_by_annotation()


def _check(objects: AnalyzedObjects) -> Reports:
    for kind in _KINDS:
        for one in objects.of(kind.id):
            for problem in _problems(kind.name, one.labels, one.annotations):
                yield one, problem
    for kind in _WORKLOADS:
        for one in objects.of(kind.id):
            metadata = one.part("spec", "template", "metadata")
            labels, annotations = texts(metadata.get("labels")), texts(metadata.get("annotations"))
            for problem in _problems(POD.name, labels, annotations, "spec.template."):
                yield one, problem


def _problems(kind: str, labels: Mapping[str, str], annotations: Mapping[str, str], prefix: str = "") -> Problems:
    """Yield the problems with the annotations of an object of a kind. `prefix` precedes the path of its metadata."""
    for name, value in annotations.items():
        if not (name == _INGRESS_CLASS or name.partition("/")[0].endswith("istio.io")) or name in _IGNORED | _ANY:
            continue
        path = f"{prefix}metadata.annotations[{name}]"
        if name not in _KINDS_OF:
            suggestion = did_you_mean(name, _KINDS_OF)
            yield warning("unknown-annotation", path, f"Istio has no annotation of this name{suggestion}")
            continue
        if name in _DEPRECATED and not (name == INJECT and INJECT in labels):
            instead = f"; use the label {INJECT}" if name == INJECT else ""
            yield info("deprecated-annotation", path, f"the annotation is deprecated{instead}")
        if kind not in _KINDS_OF[name]:
            kinds = ", ".join(_KINDS_OF[name])
            move = "; move it to spec.template.metadata" if kind in _TEMPLATED and POD.name in _KINDS_OF[name] else ""
            yield warning("misplaced-annotation", path, f"the annotation has an effect only on: {kinds}{move}")
        elif fault := annotation_fault(name, value):
            yield warning("bad-annotation", path, fault)


ANNOTATIONS = Analyzer("annotations.K8sAnalyzer", _KINDS, _check)
