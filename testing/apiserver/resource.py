"""The resources that an API server serves: built-in ones and those of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Resource(NamedTuple):
    """One resource.

    `versions` are the served ones, the storage version first. `create_only` resources are answered but not stored.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    scale: bool = False
    short_names: tuple[str, ...] = ()
    create_only: bool = False
    schemas: Mapping[str, Any] = {}
    columns: Mapping[str, Any] = {}

    @property
    def id(self) -> tuple[str, str]:
        return self.group, self.plural

    def api_version(self, version: str = "") -> str:
        """Return the apiVersion of objects in a version, by default the storage version."""
        return f"{self.group}/{version or self.versions[0]}".removeprefix("/")

    def path(self, namespace: str = "", version: str = "") -> str:
        """Return the path of the collection, in one namespace or over all of them."""
        base = f"/apis/{self.api_version(version)}" if self.group else f"/api/{self.api_version(version)}"
        return f"{base}/namespaces/{namespace}/{self.plural}" if namespace else f"{base}/{self.plural}"


def _cluster(group: str, version: str, plural: str, kind: str, **more: Any) -> Resource:
    return Resource(group, (version,), plural, kind, namespaced=False, **more)


def _in_namespace(group: str, version: str, plural: str, kind: str, **more: Any) -> Resource:
    return Resource(group, (version,), plural, kind, **more)


RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
NAMESPACES = ("", "namespaces")
BUILT_IN = (
    _cluster("", "v1", "namespaces", "Namespace", status=True, short_names=("ns",)),
    _cluster("", "v1", "nodes", "Node", status=True, short_names=("no",)),
    _in_namespace("", "v1", "pods", "Pod", status=True, short_names=("po",)),
    _in_namespace("", "v1", "services", "Service", status=True, short_names=("svc",)),
    _in_namespace("", "v1", "secrets", "Secret"),
    _in_namespace("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    _in_namespace("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",)),
    _in_namespace("", "v1", "events", "Event", short_names=("ev",)),
    _in_namespace("", "v1", "resourcequotas", "ResourceQuota", status=True, short_names=("quota",)),
    _in_namespace("apps", "v1", "deployments", "Deployment", status=True, scale=True, short_names=("deploy",)),
    _in_namespace("apps", "v1", "replicasets", "ReplicaSet", status=True, scale=True, short_names=("rs",)),
    _in_namespace("apps", "v1", "statefulsets", "StatefulSet", status=True, scale=True, short_names=("sts",)),
    _in_namespace("apps", "v1", "daemonsets", "DaemonSet", status=True, short_names=("ds",)),
    _in_namespace("batch", "v1", "jobs", "Job", status=True),
    _in_namespace("batch", "v1", "cronjobs", "CronJob", status=True, short_names=("cj",)),
    # Older kubectl versions use the older API versions for `describe`. The fields that they read are the same.
    Resource(
        "policy", ("v1", "v1beta1"), "poddisruptionbudgets", "PodDisruptionBudget", status=True, short_names=("pdb",)
    ),
    Resource(
        "autoscaling",
        ("v2", "v1"),
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        status=True,
        short_names=("hpa",),
    ),
    _in_namespace("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    _in_namespace("coordination.k8s.io", "v1", "leases", "Lease"),
    _in_namespace("networking.k8s.io", "v1", "ingresses", "Ingress", status=True, short_names=("ing",)),
    _in_namespace("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",)),
    _cluster("networking.k8s.io", "v1", "ingressclasses", "IngressClass"),
    _in_namespace(RBAC, "v1", "roles", "Role"),
    _in_namespace(RBAC, "v1", "rolebindings", "RoleBinding"),
    _cluster(RBAC, "v1", "clusterroles", "ClusterRole"),
    _cluster(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding"),
    _cluster(ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    _cluster(ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    _cluster(ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", status=True),
    _cluster(ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    _cluster(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        status=True,
        short_names=("crd",),
    ),
    _cluster(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        status=True,
        short_names=("csr",),
    ),
    _cluster("certificates.k8s.io", "v1beta1", "clustertrustbundles", "ClusterTrustBundle"),
    _cluster("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", create_only=True),
    _cluster("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", create_only=True),
    _cluster("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", create_only=True),
)


class Resources:
    """All resources that are served now."""

    def __init__(self, resources: Iterable[Resource] = BUILT_IN) -> None:
        self._by_id = {resource.id: resource for resource in resources}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_id.values())

    def find(self, group: str, plural: str, version: str = "") -> Resource | None:
        resource = self._by_id.get((group, plural))
        return resource if resource is not None and (not version or version in resource.versions) else None

    def of_object(self, plain: Mapping[str, Any]) -> Resource:
        """Return the resource of an object by its apiVersion and kind. Raise KeyError if none is served."""
        group = plain["apiVersion"].rpartition("/")[0]
        for resource in self:
            if (resource.group, resource.kind) == (group, plain["kind"]):
                return resource
        raise KeyError(f"{plain['apiVersion']} {plain['kind']}")

    def add(self, resource: Resource) -> None:
        self._by_id[resource.id] = resource

    def remove(self, group: str, plural: str) -> None:
        self._by_id.pop((group, plural), None)


def resource_of_crd(definition: Mapping[str, Any]) -> Resource:
    """Return the resource that a CustomResourceDefinition defines."""
    spec = definition["spec"]
    served_versions = [version for version in spec["versions"] if version.get("served", True)]
    served_versions.sort(key=lambda version: not version.get("storage", False))
    names = spec["names"]
    return Resource(
        spec["group"],
        tuple(version["name"] for version in served_versions),
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        status=any("status" in version.get("subresources", {}) for version in served_versions),
        short_names=tuple(names.get("shortNames", ())),
        schemas={version["name"]: version.get("schema", {}).get("openAPIV3Schema") for version in served_versions},
        columns={version["name"]: version.get("additionalPrinterColumns", []) for version in served_versions},
    )
