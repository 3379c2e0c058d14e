"""A client for labelled objects, and makers of such objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilot.install.injectors import MUTATING
from pilot.install.installation_labels import COMPONENT, OWNER, OWNER_NAMESPACE, REVISION, TAG
from pilot.install.prune import CLUSTER_KINDS, NAMESPACED_KINDS
from pilot.kube.object_client import ResourceKey, VersionedKind

Plain = dict[str, Any]


class LabelledCluster:
    """A client for labelled objects. `queries` are the selectors and namespaces of list requests."""

    def __init__(self, *objects: Plain) -> None:
        self.objects = list(objects)
        self.queries: list[tuple[str, str, str]] = []
        self.deleted: list[ResourceKey] = []

    async def list(
        self, kind: VersionedKind, selector: str = "", namespace: str = "", fields: str = ""
    ) -> Sequence[Plain]:
        self.queries.append((kind.name, selector, namespace))
        terms = [term.partition("=") for term in selector.split(",") if term and not term.startswith("!")]

        def is_selected(plain: Plain) -> bool:
            metadata = plain["metadata"]
            labels = metadata.get("labels") or {}
            has_labels = all(labels.get(key) == value if equals else key in labels for key, equals, value in terms)
            involved_name = fields.removeprefix("involvedObject.name=")
            is_involved = not fields or plain["involvedObject"]["name"] == involved_name
            return has_labels and is_involved and namespace in ("", metadata.get("namespace"))

        return [
            p for p in self.objects if (p["apiVersion"], p["kind"]) == (kind.api_version, kind.name) and is_selected(p)
        ]

    async def delete(self, key: ResourceKey) -> bool:
        if key in self.deleted:
            return False
        self.deleted.append(key)
        return True


def make_object(kind: VersionedKind, name: str, namespace: str = "", **labels: str) -> Plain:
    metadata: Plain = {"name": name, "labels": {KEYS[key]: value for key, value in labels.items()}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {**metadata, **({"namespace": namespace} if namespace else {})},
    }


KEYS = {"component": COMPONENT, "revision": REVISION, "tag": TAG, "owner": OWNER, "owner_namespace": OWNER_NAMESPACE}
DEPLOYMENT = next(kind for kind in NAMESPACED_KINDS if kind.name == "Deployment")
CONFIG_MAP = next(kind for kind in NAMESPACED_KINDS if kind.name == "ConfigMap")
ROLE = next(kind for kind in CLUSTER_KINDS if kind.name == "ClusterRole")


def injector(name: str, revision: str = "", tag: str = "", **selectors: Plain) -> Plain:
    plain = make_object(MUTATING, name, **({"revision": revision} if revision else {}), **({"tag": tag} if tag else {}))
    return {**plain, "webhooks": [{"name": "rev.namespace.sidecar-injector.istio.io", **selectors}]}
