"""The operator's requests to API servers, and the RBAC rules that allow only these requests."""

from __future__ import annotations

from typing import Any

from deploy.rbac import ResourceAccess, rules

Plain = dict[str, Any]
_KEEP = ("get", "list", "watch", "create", "patch", "delete")
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
IN_CLUSTER = (
    ResourceAccess(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        ("get", "list", "watch", "create", "patch"),
        "CRDs, which are never deleted",
    ),
    ResourceAccess(
        _RBAC, "clusterroles", (*_KEEP, "bind", "escalate"), "roles with permissions that the operator lacks"
    ),
    ResourceAccess(_RBAC, "clusterrolebindings", _KEEP, "bindings of these roles"),
    ResourceAccess(_ADMISSION, "mutatingwebhookconfigurations", _KEEP, "injection webhooks"),
    ResourceAccess(_ADMISSION, "validatingwebhookconfigurations", _KEEP, "validation webhooks"),
    ResourceAccess(_ADMISSION, "validatingadmissionpolicies", _KEEP, "validation policies"),
    ResourceAccess(_ADMISSION, "validatingadmissionpolicybindings", _KEEP, "bindings of validation policies"),
    ResourceAccess(
        "", "namespaces", ("get", "create", "patch"), "namespaces of components, and the network of the mesh"
    ),
    ResourceAccess("", "pods", ("list",), "proxies that are still connected to a control plane"),
)
IN_NAMESPACE = (
    ResourceAccess(
        "install.istio.io",
        "istiooperators",
        ("get", "list", "watch", "patch"),
        "IstioOperators and their finalizers",
    ),
    ResourceAccess("install.istio.io", "istiooperators/status", ("patch",), "the status of IstioOperators"),
    *(
        ResourceAccess(group, plural, _KEEP, "objects of components")
        for group, plural in (
            ("", "configmaps"),
            ("", "resourcequotas"),
            ("", "serviceaccounts"),
            ("", "services"),
            ("apps", "daemonsets"),
            ("apps", "deployments"),
            ("autoscaling", "horizontalpodautoscalers"),
            ("discovery.k8s.io", "endpointslices"),
            ("k8s.cni.cncf.io", "network-attachment-definitions"),
            ("networking.istio.io", "envoyfilters"),
            ("networking.k8s.io", "networkpolicies"),
            ("policy", "poddisruptionbudgets"),
            (_RBAC, "rolebindings"),
        )
    ),
    ResourceAccess(_RBAC, "roles", (*_KEEP, "bind", "escalate"), "roles with permissions that the operator lacks"),
    ResourceAccess("", "pods", ("list",), "diagnosis of components that do not start"),
    ResourceAccess("", "events", ("list",), "diagnosis of components that do not start"),
)
IN_OWN_NAMESPACE = (
    ResourceAccess("coordination.k8s.io", "leases", ("get", "create", "update"), "leader election"),
    ResourceAccess("apps", "deployments", ("get",), "deletion of the operator itself"),
)


def operator_roles() -> dict[str, list[Plain]]:
    """Return the rules of each role in the operator's chart."""
    return {"cluster": rules(IN_CLUSTER), "namespace": rules(IN_NAMESPACE), "own": rules(IN_OWN_NAMESPACE)}
