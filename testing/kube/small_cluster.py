"""An in-memory cluster, and small install plans."""

from __future__ import annotations

from typing import Any

from pilot.install.install_plan import InstallPlan, Step
from pilot.install.installation_labels import OperatorOwner
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ResourceKey, VersionedKind, resource_key

Plain = dict[str, Any]
NO_OWNER = OperatorOwner("unknown", "", "default")
DEPLOYMENT, CONFIG_MAP, NAMESPACE = (
    VersionedKind("apps/v1", "Deployment"),
    VersionedKind("v1", "ConfigMap"),
    VersionedKind("v1", "Namespace"),
)


def make_object(kind: VersionedKind, name: str, namespace: str = "", **more: Any) -> Plain:
    """Return an object of a kind."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **more}


class FakeCluster:
    """A cluster with objects.

    `errors` maps names to the error of their apply. `delays` maps Deployments to the number of reads before they are
    ready.
    """

    def __init__(
        self,
        *objects: Plain,
        errors: dict[str, KubeError] | None = None,
        delays: dict[str, int] | None = None,
        dry_run: bool = False,
    ) -> None:
        self.objects = {resource_key(plain): plain for plain in objects}
        self.errors, self.delays, self.dry_run = errors or {}, delays or {}, dry_run
        self.applied: list[str] = []
        self.deleted: list[str] = []

    async def get(self, key: ResourceKey) -> Plain | None:
        return self._with_status(key) if key in self.objects else None

    async def list(self, kind: VersionedKind, selector: str = "", namespace: str = "", fields: str = "") -> list[Plain]:
        if error := self.errors.get(f"list {kind.name}"):
            raise error
        terms = [term.partition("=") for term in selector.split(",") if "=" in term]
        return [
            self._with_status(key)
            for key, plain in self.objects.items()
            if key.kind == kind
            and all((plain["metadata"].get("labels") or {}).get(name) == value for name, _, value in terms)
        ]

    async def apply(self, plain: Plain) -> Plain:
        key = resource_key(plain)
        if error := self.errors.get(key.name):
            raise error
        self.applied.append(str(key))
        self.objects[key] = plain
        return self._with_status(key)

    async def delete(self, key: ResourceKey) -> bool:
        self.deleted.append(str(key))
        return self.objects.pop(key, None) is not None

    def _with_status(self, key: ResourceKey) -> Plain:
        plain = self.objects[key]
        if key.kind != DEPLOYMENT:
            return plain
        remaining = self.delays[key.name] = self.delays.get(key.name, 0) - 1
        return {**plain, "status": {"updatedReplicas": 1, "readyReplicas": int(remaining < 0)}}


def plan(*steps: Step, owner: OperatorOwner = NO_OWNER, network: str = "", **values: Any) -> InstallPlan:
    """Return an install plan."""
    return InstallPlan({"spec": {"values": values}}, owner, "istio-system", network, steps)


def step(*objects: Plain, component: str = "Pilot") -> Step:
    """Return an install step."""
    return Step(component, "istiod", "istio-system", objects)


CONFIG, WORKLOAD = make_object(CONFIG_MAP, "config", "istio-system"), make_object(DEPLOYMENT, "istiod", "istio-system")
