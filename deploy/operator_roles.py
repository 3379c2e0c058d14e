"""Which requests the operator makes of API servers, and the rules that grant these and no others: where it watches, and in the cluster."""

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
        "definitions, which are never deleted",
    ),
    ResourceAccess(
        _RBAC, "clusterroles", (*_KEEP, "bind", "escalate"), "roles that grant more than the operator itself may"
    ),
    ResourceAccess(_RBAC, "clusterrolebindings", _KEEP, "who has them"),
    ResourceAccess(_ADMISSION, "mutatingwebhookconfigurations", _KEEP, "injection"),
    ResourceAccess(_ADMISSION, "validatingwebhookconfigurations", _KEEP, "validation"),
    ResourceAccess(_ADMISSION, "validatingadmissionpolicies", _KEEP, "policies of validation"),
    ResourceAccess(_ADMISSION, "validatingadmissionpolicybindings", _KEEP, "what they apply to"),
    ResourceAccess(
        "", "namespaces", ("get", "create", "patch"), "namespaces that components go to, and the network of the mesh"
    ),
    ResourceAccess("", "pods", ("list",), "proxies that a control plane still has"),
)
IN_NAMESPACE = (
    ResourceAccess(
        "install.istio.io",
        "istiooperators",
        ("get", "list", "watch", "patch"),
        "what is to be installed, and the finalizer",
    ),
    ResourceAccess("install.istio.io", "istiooperators/status", ("patch",), "how it is"),
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
    ResourceAccess(_RBAC, "roles", (*_KEEP, "bind", "escalate"), "roles that grant more than the operator itself may"),
    ResourceAccess("", "pods", ("list",), "why a component does not come up"),
    ResourceAccess("", "events", ("list",), "the same"),
)
IN_OWN_NAMESPACE = (
    ResourceAccess("coordination.k8s.io", "leases", ("get", "create", "update"), "which replica works"),
    ResourceAccess("apps", "deployments", ("get",), "whether the operator itself goes"),
)


def operator_roles() -> dict[str, list[Plain]]:
    """Returns the rules of each role of the operator's chart."""
    return {"cluster": rules(IN_CLUSTER), "namespace": rules(IN_NAMESPACE), "own": rules(IN_OWN_NAMESPACE)}
