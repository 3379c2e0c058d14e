"""A cluster in memory, and small plans of what is installed in it."""

from __future__ import annotations

from typing import Any

from pilot.install.install_plan import InstallPlan, Step
from pilot.install.installation_labels import OperatorOwner
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ResourceKey, VersionedKind, resource_key

Plain = dict[str, Any]
NOBODY = OperatorOwner("unknown", "", "default")
DEPLOYMENT, CONFIG_MAP, NAMESPACE = (
    VersionedKind("apps/v1", "Deployment"),
    VersionedKind("v1", "ConfigMap"),
    VersionedKind("v1", "Namespace"),
)


def made(kind: VersionedKind, name: str, namespace: str = "", **more: Any) -> Plain:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **more}


class Cluster:
    """Objects that are there. Applying one that `refused` names fails; one of `late` lacks what it takes that many looks to get."""

    def __init__(
        self,
        *there: Plain,
        refused: dict[str, KubeError] | None = None,
        late: dict[str, int] | None = None,
        dry_run: bool = False,
    ) -> None:
        self.there = {resource_key(plain): plain for plain in there}
        self.refused, self.late, self.dry_run = refused or {}, late or {}, dry_run
        self.applied: list[str] = []
        self.deleted: list[str] = []

    async def get(self, key: ResourceKey) -> Plain | None:
        return self._seen(key) if key in self.there else None

    async def list(self, kind: VersionedKind, selector: str = "", namespace: str = "", fields: str = "") -> list[Plain]:
        if error := self.refused.get(f"list {kind.name}"):
            raise error
        terms = [term.partition("=") for term in selector.split(",") if "=" in term]
        return [
            self._seen(key)
            for key, plain in self.there.items()
            if key.kind == kind
            and all((plain["metadata"].get("labels") or {}).get(name) == value for name, _, value in terms)
        ]

    async def apply(self, plain: Plain) -> Plain:
        key = resource_key(plain)
        if error := self.refused.get(key.name):
            raise error
        self.applied.append(str(key))
        self.there[key] = plain
        return self._seen(key)

    async def delete(self, key: ResourceKey) -> bool:
        self.deleted.append(str(key))
        return self.there.pop(key, None) is not None

    def _seen(self, key: ResourceKey) -> Plain:
        plain = self.there[key]
        if key.kind != DEPLOYMENT:
            return plain
        left = self.late[key.name] = self.late.get(key.name, 0) - 1
        return {**plain, "status": {"updatedReplicas": 1, "readyReplicas": int(left < 0)}}


def plan(*steps: Step, owner: OperatorOwner = NOBODY, network: str = "", **values: Any) -> InstallPlan:
    return InstallPlan({"spec": {"values": values}}, owner, "istio-system", network, steps)


def step(*objects: Plain, component: str = "Pilot") -> Step:
    return Step(component, "istiod", "istio-system", objects)


CONFIG, WORKLOAD = made(CONFIG_MAP, "config", "istio-system"), made(DEPLOYMENT, "istiod", "istio-system")
