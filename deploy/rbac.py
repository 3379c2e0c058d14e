"""The control plane's requests to API servers, and the RBAC rules that allow only these requests.

An API server denies requests that are not listed here, so code that makes a new request must add it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import GATEWAY_API, MULTICLUSTER, plural_of
from pilot.mesh.status.object_status import AMBIENT_KINDS, KINDS

Plain = dict[str, Any]


class ResourceAccess(NamedTuple):
    """Requests for a resource.

    group: The API group, or "" for the core group.
    resource: The plural name, or plural/subresource.
    reason: The purpose, for readers of the code.
    names: The names of the objects, or () for all. An API server cannot restrict lists and creations by name.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    reason: str
    names: tuple[str, ...] = ()


WATCH = ("list", "watch")
ROOT_MAPS = ("istio-ca-root-cert", "istio-ca-crl")
"""The default names of the ConfigMaps in every namespace. The chart replaces them by the names in its values."""
CA_SECRETS = ("istio-ca-secret", "cacerts")
SHARED_LOCKS = (
    "istio-analyze-leader",
    "istio-ip-autoallocate",
    "istio-leader",
    "istio-namespace-controller-election",
    "istio-node-untaint",
    "istio-serviceexport-controller-election",
)
"""The ConfigMaps that all revisions use for leader election."""
_ADMISSION, _NETWORKING = "admissionregistration.k8s.io", "networking.istio.io"
CLUSTER = (
    ResourceAccess("", "configmaps", ("create",), "the root certificate in every namespace"),
    ResourceAccess("", "configmaps", ("patch",), "changes of the root certificate", ROOT_MAPS),
    ResourceAccess("apiextensions.k8s.io", "customresourcedefinitions", WATCH, "the kinds that the cluster has"),
    ResourceAccess(
        _ADMISSION, "mutatingwebhookconfigurations", (*WATCH, "patch"), "the CA bundle of injection webhooks"
    ),
    ResourceAccess(
        _ADMISSION,
        "validatingwebhookconfigurations",
        (*WATCH, "patch"),
        "the CA bundle of validation webhooks",
    ),
    *(
        ResourceAccess(kind.group, resource, verbs, why)
        for kind in (*KINDS, *AMBIENT_KINDS)
        for resource, verbs, why in (
            (plural_of(kind), ("get",), "the current status of an object"),
            (f"{plural_of(kind)}/status", ("patch",), "the status of an object"),
        )
    ),
    ResourceAccess(GATEWAY_API, "gatewayclasses", ("create",), "the default GatewayClasses"),
    ResourceAccess(_NETWORKING, "serviceentries/status", ("patch",), "allocated addresses"),
    ResourceAccess(
        _NETWORKING, "workloadentries", ("get", "create", "patch", "delete"), "automatic registration of workloads"
    ),
    ResourceAccess(_NETWORKING, "workloadentries/status", ("patch",), "the health of registered workloads"),
    ResourceAccess(_NETWORKING, "workloadgroups", ("get",), "the WorkloadGroup of a registered workload"),
    ResourceAccess("authentication.k8s.io", "tokenreviews", ("create",), "authentication of proxies by their tokens"),
    ResourceAccess(
        "authorization.k8s.io", "subjectaccessreviews", ("create",), "authorization of proxies to receive Secrets"
    ),
)
GATEWAYS = (
    *(
        ResourceAccess(
            group, resource, (*WATCH, "get", "create", "patch", "delete"), "automated deployment of Gateways"
        )
        for group, resource in (
            ("apps", "deployments"),
            ("", "services"),
            ("", "serviceaccounts"),
            ("autoscaling", "horizontalpodautoscalers"),
            ("policy", "poddisruptionbudgets"),
        )
    ),
    ResourceAccess(GATEWAY_API, "gateways", ("patch",), "the version of the control plane that manages a Gateway"),
    ResourceAccess("", "services", ("create", "patch"), "the Service of an InferencePool"),
)
OWN_NAMESPACE = (
    ResourceAccess("", "secrets", ("create",), "the CA key"),
    ResourceAccess("", "secrets", ("get", "update"), "the CA key", CA_SECRETS),
    ResourceAccess("", "configmaps", ("create",), "leader election"),
    ResourceAccess("", "configmaps", ("get", "update"), "leader election", SHARED_LOCKS),
    ResourceAccess("coordination.k8s.io", "leases", ("get", "create", "update"), "leader election within a revision"),
    ResourceAccess(
        _NETWORKING, "gateways", ("create",), "a dry run that checks whether the validation webhook is called"
    ),
)
SIGNING = (
    ResourceAccess(
        "certificates.k8s.io",
        "certificatesigningrequests",
        ("create", "get", "watch", "delete"),
        "certificates from the API server's signers",
    ),
    ResourceAccess(
        "certificates.k8s.io", "certificatesigningrequests/approval", ("update",), "approval of certificate requests"
    ),
)
BUNDLES = (
    ResourceAccess(
        "certificates.k8s.io",
        "clustertrustbundles",
        (*WATCH, "create", "update"),
        "the root certificates for Pods in all namespaces",
    ),
)
EXPORTS = (ResourceAccess(MULTICLUSTER, "serviceexports", ("create",), "Services that are exported to all clusters"),)
REMOTE_CLUSTER = (
    ResourceAccess("apiextensions.k8s.io", "customresourcedefinitions", WATCH, "the kinds that the cluster has"),
    ResourceAccess(
        "authentication.k8s.io", "tokenreviews", ("create",), "authentication of the cluster's proxies by their tokens"
    ),
    ResourceAccess(
        "authorization.k8s.io",
        "subjectaccessreviews",
        ("create",),
        "authorization of the cluster's gateways to receive Secrets",
    ),
)


def watched_kinds(catalogue: Catalogue = CATALOGUE, every: bool = True) -> Iterator[ResourceAccess]:
    """Yield the requests that watch kinds. Without `every`, yield only those for kinds that are read from every
    cluster."""
    for kind in catalogue:
        if every or kind.per_cluster:
            yield ResourceAccess(
                kind.id.group,
                plural_of(kind.id),
                WATCH,
                "services and workloads" if kind.per_cluster else "configuration",
            )


def status_access(catalogue: Catalogue = CATALOGUE) -> Iterator[ResourceAccess]:
    """Yield the requests that write problems, and conditions about deliveries, into the status of objects.

    Both features are disabled by default.
    """
    for kind in catalogue:
        if kind.is_istio:
            yield ResourceAccess(
                kind.id.group,
                f"{plural_of(kind.id)}/status",
                ("patch",),
                "problems in an object, and its delivery",
            )
            yield ResourceAccess(
                kind.id.group,
                plural_of(kind.id),
                ("get",),
                "the generation and the status of an object",
            )


def rules(requests: Iterable[ResourceAccess]) -> list[Plain]:
    """Return the rules that allow some requests. Resources with the same group, verbs and names share a rule."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for request in requests:
        verbs.setdefault((request.group, request.resource, request.names), set()).update(request.verbs)
    rows = sorted((group, tuple(sorted(granted)), names, kind) for (group, kind, names), granted in verbs.items())
    return [
        {
            "apiGroups": [group],
            "resources": [resource for *_, resource in group_rows],
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(granted),
        }
        for (group, granted, names), group_rows in groupby(rows, key=lambda row: row[:3])
    ]


def roles() -> dict[str, list[Plain]]:
    """Return the rules of each role in the chart.

    `cluster` and `namespace` are always granted. `reader` is granted in remote clusters, and `gateways` if gateways are
    deployed automatically. The others extend `cluster` if their feature is enabled: `analysis`, `signing` by the API
    server's signers, `bundles` of roots, and `exports` of Services.
    """
    return {
        "cluster": rules([*watched_kinds(), *CLUSTER]),
        "namespace": rules(OWN_NAMESPACE),
        "reader": rules([*watched_kinds(every=False), *REMOTE_CLUSTER]),
        "gateways": rules(GATEWAYS),
        "analysis": rules(status_access()),
        "signing": rules(SIGNING),
        "bundles": rules(BUNDLES),
        "exports": rules(EXPORTS),
    }
