"""Which requests the operator makes of API servers, and the rules that grant these and no others: where it watches, and in the cluster."""
from __future__ import annotations

from typing import Any

from deploy.rbac import Request, rules

Plain = dict[str, Any]
_KEEP = ("get", "list", "watch", "create", "patch", "delete")
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
IN_CLUSTER = (
    Request("apiextensions.k8s.io", "customresourcedefinitions", ("get", "list", "watch", "create", "patch"), "definitions, which are never deleted"),
    Request(_RBAC, "clusterroles", (*_KEEP, "bind", "escalate"), "roles that grant more than the operator itself may"),
    Request(_RBAC, "clusterrolebindings", _KEEP, "who has them"),
    Request(_ADMISSION, "mutatingwebhookconfigurations", _KEEP, "injection"),
    Request(_ADMISSION, "validatingwebhookconfigurations", _KEEP, "validation"),
    Request(_ADMISSION, "validatingadmissionpolicies", _KEEP, "policies of validation"),
    Request(_ADMISSION, "validatingadmissionpolicybindings", _KEEP, "what they apply to"),
    Request("", "namespaces", ("get", "create", "patch"), "namespaces that components go to, and the network of the mesh"),
    Request("", "pods", ("list",), "proxies that a control plane still has"),
)
IN_NAMESPACE = (
    Request("install.istio.io", "istiooperators", ("get", "list", "watch", "patch"), "what is to be installed, and the finalizer"),
    Request("install.istio.io", "istiooperators/status", ("patch",), "how it is"),
    *(
        Request(group, plural, _KEEP, "objects of components")
        for group, plural in (
            ("", "configmaps"), ("", "resourcequotas"), ("", "serviceaccounts"), ("", "services"), ("apps", "daemonsets"), ("apps", "deployments"),
            ("autoscaling", "horizontalpodautoscalers"), ("discovery.k8s.io", "endpointslices"),
            ("k8s.cni.cncf.io", "network-attachment-definitions"), ("networking.istio.io", "envoyfilters"),
            ("networking.k8s.io", "networkpolicies"), ("policy", "poddisruptionbudgets"), (_RBAC, "rolebindings"),
        )
    ),
    Request(_RBAC, "roles", (*_KEEP, "bind", "escalate"), "roles that grant more than the operator itself may"),
    Request("", "pods", ("list",), "why a component does not come up"),
    Request("", "events", ("list",), "the same"),
)  # fmt: skip
IN_OWN_NAMESPACE = (
    Request("coordination.k8s.io", "leases", ("get", "create", "update"), "which replica works"),
    Request("apps", "deployments", ("get",), "whether the operator itself goes"),
)


def operator_roles() -> dict[str, list[Plain]]:
    """Returns the rules of each role of the operator's chart."""
    return {"cluster": rules(IN_CLUSTER), "namespace": rules(IN_NAMESPACE), "own": rules(IN_OWN_NAMESPACE)}
