"""Checks that the workloads that policies and Sidecars select can apply them."""

from __future__ import annotations

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects, texts
from pilot.cli.ctl.analyzers.analyzer import (
    AUTHORIZATION_POLICY,
    DATAPLANE_MODE,
    INJECTION,
    NAMESPACE,
    POD,
    REQUEST_AUTHENTICATION,
    REVISION,
    SIDECAR,
    TELEMETRY,
    WASM_PLUGIN,
    Analyzer,
    Reports,
)
from pilot.config.problem import warning
from pilot.lib.labels import REDIRECTION

_GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
_POLICIES = (AUTHORIZATION_POLICY, REQUEST_AUTHENTICATION, TELEMETRY, WASM_PLUGIN)


def _check_policies(objects: AnalyzedObjects) -> Reports:
    for kind in _POLICIES:
        for one in objects.of(kind.id):
            selector = texts(one.value("spec", "selector", "matchLabels"))
            if not selector or one.value("spec", "targetRef") or one.value("spec", "targetRefs"):
                continue
            gateways = {
                pod.labels[_GATEWAY_NAME]
                for pod in objects.by_namespace(POD.id, one.namespace)
                if _GATEWAY_NAME in pod.labels and selector.items() <= pod.labels.items()
            }
            if gateways:
                text = f"it selects Pods of the Gateway {', '.join(sorted(gateways))}, to which only targetRefs apply"
                yield one, warning("selector-on-gateway", "spec.selector", text)


def _check_sidecars(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(SIDECAR.id):
        if selector := texts(one.value("spec", "workloadSelector", "labels")):
            if any(
                pod.annotations.get(REDIRECTION) == "enabled" and selector.items() <= pod.labels.items()
                for pod in objects.by_namespace(POD.id, one.namespace)
            ):
                text = "a selected Pod is in ambient mode and has no sidecar, so the Sidecar has no effect on it"
                yield one, warning("sidecar-in-ambient-mode", "spec.workloadSelector", text)
        elif _is_ambient(objects.get(NAMESPACE.id, "", one.namespace)):
            text = "the namespace is in ambient mode and has no sidecars, so the Sidecar has no effect"
            yield one, warning("sidecar-in-ambient-mode", "metadata.namespace", text)


def _is_ambient(namespace: AnalyzedObject | None) -> bool:
    return (
        namespace is not None
        and namespace.labels.get(DATAPLANE_MODE) == "ambient"
        and namespace.labels.get(INJECTION) != "enabled"
        and not namespace.labels.get(REVISION)
    )


GATEWAY_SELECTORS = Analyzer("k8sgateway.SelectorAnalyzer", (*_POLICIES, POD), _check_policies)
AMBIENT_SIDECARS = Analyzer("sidecar.SelectorAnalyzer", (SIDECAR, POD, NAMESPACE), _check_sidecars)
