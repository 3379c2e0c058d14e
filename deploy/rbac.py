"""Which requests the control plane makes of API servers, and the rules that grant these and no others.

A request that is not in a table here is refused in a cluster: whoever writes code that makes one adds its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import GATEWAY_API, MULTICLUSTER, plural_of
from pilot.mesh.status.objects import AMBIENT_KINDS, KINDS

Plain = dict[str, Any]


class ResourceAccess(NamedTuple):
    """Requests of one resource: `plural` or `plural/subresource` of an API group, "" for the core one. `why` is for people."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str


FOLLOW = ("list", "watch")
_ADMISSION, _NETWORKING = "admissionregistration.k8s.io", "networking.istio.io"
ANYWHERE = (
    ResourceAccess("", "configmaps", ("create", "patch"), "the root certificate in every namespace"),
    ResourceAccess("apiextensions.k8s.io", "customresourcedefinitions", FOLLOW, "which kinds there are"),
    ResourceAccess(
        _ADMISSION, "mutatingwebhookconfigurations", (*FOLLOW, "patch"), "the root certificate in webhooks of injection"
    ),
    ResourceAccess(
        _ADMISSION,
        "validatingwebhookconfigurations",
        (*FOLLOW, "patch"),
        "the root certificate in webhooks of validation",
    ),
    *(
        ResourceAccess(kind.group, resource, verbs, why)
        for kind in (*KINDS, *AMBIENT_KINDS)
        for resource, verbs, why in (
            (plural_of(kind), ("get",), "the status that an object has"),
            (f"{plural_of(kind)}/status", ("patch",), "what becomes of an object, for its author"),
        )
    ),
    ResourceAccess(GATEWAY_API, "gatewayclasses", ("create",), "the classes that exist without any object"),
    ResourceAccess(_NETWORKING, "serviceentries/status", ("patch",), "addresses that are allocated"),
    ResourceAccess(
        _NETWORKING, "workloadentries", ("get", "create", "patch", "delete"), "workloads that register themselves"
    ),
    ResourceAccess(_NETWORKING, "workloadentries/status", ("patch",), "their health"),
    ResourceAccess(_NETWORKING, "workloadgroups", ("get",), "the group that a workload registers with"),
    ResourceAccess("authentication.k8s.io", "tokenreviews", ("create",), "whose token a proxy has"),
    ResourceAccess("authorization.k8s.io", "subjectaccessreviews", ("create",), "which Secrets a proxy may be given"),
)
GATEWAYS = (
    *(
        ResourceAccess(group, resource, (*FOLLOW, "get", "create", "patch", "delete"), "what is deployed for a Gateway")
        for group, resource in (
            ("apps", "deployments"),
            ("", "services"),
            ("", "serviceaccounts"),
            ("autoscaling", "horizontalpodautoscalers"),
            ("policy", "poddisruptionbudgets"),
        )
    ),
    ResourceAccess(GATEWAY_API, "gateways", ("patch",), "which version of control planes deploys a Gateway"),
    ResourceAccess("", "services", ("create", "patch"), "the Service of an InferencePool"),
)
OWN_NAMESPACE = (
    ResourceAccess("", "secrets", ("get", "create", "update"), "the key of the authority"),
    ResourceAccess("", "configmaps", ("get", "create", "update"), "which replica leads"),
    ResourceAccess(
        "coordination.k8s.io", "leases", ("get", "create", "update"), "which replica leads, in matters of one revision"
    ),
    ResourceAccess(_NETWORKING, "gateways", ("create",), "a dry run that tells whether validation is called"),
)
SIGNING = (
    ResourceAccess(
        "certificates.k8s.io",
        "certificatesigningrequests",
        ("create", "get", "watch", "delete"),
        "certificates of signers of the API server",
    ),
    ResourceAccess("certificates.k8s.io", "certificatesigningrequests/approval", ("update",), "their approval"),
)
BUNDLES = (
    ResourceAccess(
        "certificates.k8s.io",
        "clustertrustbundles",
        (*FOLLOW, "create", "update"),
        "the root certificate for pods of any namespace",
    ),
)
EXPORTS = (ResourceAccess(MULTICLUSTER, "serviceexports", ("create",), "Services that all clusters are to see"),)
OF_OTHER_CLUSTERS = (
    ResourceAccess("apiextensions.k8s.io", "customresourcedefinitions", FOLLOW, "which kinds there are"),
    ResourceAccess("authentication.k8s.io", "tokenreviews", ("create",), "whose token a proxy of that cluster has"),
    ResourceAccess(
        "authorization.k8s.io",
        "subjectaccessreviews",
        ("create",),
        "which of its Secrets a gateway of that cluster may be given",
    ),
)


def read(catalogue: Catalogue = CATALOGUE, every: bool = True) -> Iterator[ResourceAccess]:
    """Yields the requests that follow the kinds of the catalogue; unless `every`, of those that each cluster has its own of."""
    for kind in catalogue:
        if every or kind.per_cluster:
            yield ResourceAccess(
                kind.id.group,
                plural_of(kind.id),
                FOLLOW,
                "configuration" if not kind.per_cluster else "what runs in the cluster",
            )


def statuses(catalogue: Catalogue = CATALOGUE) -> Iterator[ResourceAccess]:
    """Yields the requests that write what is wrong with configuration into its status, which is off unless an installation asks for it."""
    for kind in catalogue:
        if kind.is_istio:
            yield ResourceAccess(
                kind.id.group,
                f"{plural_of(kind.id)}/status",
                ("patch",),
                "what is wrong with an object, for its author",
            )
            yield ResourceAccess(
                kind.id.group,
                plural_of(kind.id),
                ("get",),
                "whether an object is still the one that the messages are about",
            )


def rules(requests: Iterable[ResourceAccess]) -> list[Plain]:
    """Returns the rules of a role that grants requests, resources of one group with equal verbs together."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for request in requests:
        verbs.setdefault((request.group, request.resource), set()).update(request.verbs)
    rows = sorted((group, tuple(sorted(granted)), resource) for (group, resource), granted in verbs.items())
    return [
        {"apiGroups": [group], "resources": [resource for _, _, resource in found], "verbs": list(granted)}
        for (group, granted), found in groupby(rows, key=lambda row: row[:2])
    ]


def roles() -> dict[str, list[Plain]]:
    """Returns the rules of each role of the chart: `cluster`, `namespace`, `reader` (of another cluster), `gateways` (to deploy them), and those that
    `cluster` has too where that is switched on: `analysis`, `signing` by signers of the API server, `bundles` of roots,
    and `exports` of Services."""
    return {
        "cluster": rules([*read(), *ANYWHERE]),
        "namespace": rules(OWN_NAMESPACE),
        "reader": rules([*read(every=False), *OF_OTHER_CLUSTERS]),
        "gateways": rules(GATEWAYS),
        "analysis": rules(statuses()),
        "signing": rules(SIGNING),
        "bundles": rules(BUNDLES),
        "exports": rules(EXPORTS),
    }
