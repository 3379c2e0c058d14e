"""Random edits of IstioOperators and of their installed objects while requests fail.

In the end the state must be correct.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pilot.install.installation_labels import COMPONENT, OWNER, OWNER_NAMESPACE, REVISION
from pilot.kube.api_errors import KubeError
from testing.control_planes.running_operator import OperatorCluster, expected
from testing.kube.installations import SYSTEM, Plain, State
from testing.kube.kube_access import until

TEAMS = ("team-a", "team-b")
FOREIGN = "foreign"
_UNORDERED = (
    "MutatingWebhookConfiguration/istio-revision-tag-default",
    "ValidatingWebhookConfiguration/istiod-default-validator",
)
"""Objects owned by the first of several control planes."""
_OWNERSHIP = {COMPONENT, OWNER, OWNER_NAMESPACE, REVISION}
_POD: Plain = {"template": {"spec": {"serviceAccountName": "other"}}}  # the autoscaler owns the replicas
_INVALID_SPECS: tuple[Any, ...] = (
    {"nonsense": 1},
    {"components": {"pilot": {"enabled": "true"}}},
    {"profile": "none"},
    "text",
)


def control_plane(rng: random.Random, revision: str, system: str) -> Plain:
    """Return a random control plane in its own namespace, without CustomResourceDefinitions."""
    values: Plain = {"global": {"istioNamespace": system}, "base": {"enableIstioConfigCRDs": False}}
    settings: Plain = {}
    if rng.random() < 0.5:
        values["pilot"] = {"autoscaleEnabled": False}
        settings["replicaCount"] = rng.randint(1, 3)
    if rng.random() < 0.5:
        settings["env"] = [{"name": "DRAWN", "value": str(rng.random())}]
    pilot = {"pilot": {"k8s": settings}} if settings else {}
    mesh = {"accessLogFile": rng.choice(("/dev/stdout", "/tmp/log"))}
    return {
        "profile": "minimal",
        "revision": revision,
        "tag": f"1.{rng.randint(0, 3)}",
        "components": pilot,
        "meshConfig": mesh,
        "values": values,
    }


def gateways(rng: random.Random, *namespaces: str) -> Plain:
    """Return random gateways in some of these namespaces."""
    entries = [{"name": f"edge-{i}", "namespace": rng.choice(namespaces)} for i in range(rng.randint(0, 2))]
    return {"profile": "empty", "tag": f"1.{rng.randint(0, 3)}", "components": {"ingressGateways": entries}}


class OperatorEdits:
    """Random edits of an operator's cluster.

    `specs` are the current IstioOperators by namespace and name; None means deleted.
    """

    def __init__(self, cluster: OperatorCluster, rng: random.Random) -> None:
        self._cluster, self._rng = cluster, rng
        self.specs: dict[tuple[str, str], Any] = {}

    def _random_spec(self, key: tuple[str, str]) -> Any:
        if self._rng.random() < 0.15:
            return self._rng.choice(_INVALID_SPECS)
        match key:
            case (_, "first"):
                return control_plane(self._rng, "r1", SYSTEM)
            case (_, "second"):
                return control_plane(self._rng, "r2", "team-a")
            case _:
                return gateways(self._rng, *TEAMS) if key[1] == "edges" else gateways(self._rng, SYSTEM)

    async def create_all(self) -> None:
        """Create all IstioOperators."""
        for key in ((SYSTEM, "first"), ("team-a", "second"), ("team-b", "edges"), (SYSTEM, "gates")):
            await self._write(key, self._random_spec(key))

    async def _write(self, key: tuple[str, str], spec: Any) -> None:
        self.specs[key] = spec
        await self._cluster.write(*key, spec)

    async def edit(self) -> None:
        """Make a random change: of an IstioOperator, of an installed object, or a fault."""
        rng, draw = self._rng, self._rng.random()
        if draw < 0.25:
            key = rng.choice(sorted(self.specs))
            await self._write(key, self._random_spec(key))
        elif draw < 0.30:
            key = rng.choice(sorted(self.specs))
            self.specs[key] = None
            await self._cluster.remove(*key)
            await until(lambda: self._cluster.resource(*key) is None, 60)
        elif draw < 0.75:
            await self._change_installed_object()
        else:
            await self._inject_fault()

    async def _change_installed_object(self) -> None:
        """Change or delete an installed object."""
        installed = [
            plain
            for _, plain in sorted(self._cluster.installed().items())
            if plain["metadata"].get("namespace") != FOREIGN
        ]
        if not installed:
            return
        plain = self._rng.choice(installed)
        try:
            match self._rng.randrange(4):
                case 0:
                    await self._cluster.delete(plain)
                case 1:  # without ownership labels, an object would survive if the operator restarts with new settings
                    labels = sorted(plain["metadata"]["labels"].keys() - _OWNERSHIP)
                    await self._cluster.patch(plain, {"metadata": {"labels": {self._rng.choice(labels): None}}})
                case 2:
                    await self._cluster.patch(
                        plain, {"metadata": {"labels": {"app.kubernetes.io/part-of": "something"}}}
                    )
                case _:
                    part = next(
                        (name for name in ("spec", "data", "rules", "subjects", "webhooks") if name in plain), ""
                    )
                    content = (
                        {"selector": {"app": "x"}}
                        if plain["kind"] == "Service"
                        else _POD
                        if plain["kind"] == "Deployment"
                        else {}
                    )
                    if content:
                        await self._cluster.patch(plain, {part: content})
                    elif part in ("rules", "subjects", "webhooks"):
                        await self._cluster.patch(plain, {part: []})
                    elif part == "data":
                        await self._cluster.patch(plain, {part: dict.fromkeys(plain[part], "changed")})
        except KubeError:  # this request hit an injected fault
            pass

    async def _inject_fault(self) -> None:
        rng, server = self._rng, self._cluster.server
        match rng.randrange(6):
            case 0:
                server.faults.refuse(rng.choice((429, 500, 503)), times=rng.randint(1, 8))
            case 1:
                server.faults.refuse(
                    rng.choice((403, 409, 500)),
                    times=rng.randint(1, 4),
                    matching=lambda info: info.verb == "patch",
                )
            case 2:
                server.faults.end_watches(rng.choice(("close", "abort", "half a line", "expired")))
            case 3:
                server.store.compact()
            case 4:
                await server.stop()
                await asyncio.sleep(0.01)
                await server.start()
            case _:
                await self._cluster.stop()
                await self._cluster.start()

    # -- final state ---------------------------------------------------------------------------------------------------

    async def check_final_state(self, seconds: float = 60.0) -> None:
        """Stop the faults, wait until the state is correct, and raise AssertionError with the differences if it never
        is.
        """
        self._cluster.server.faults.clear()
        expected_state = self._expected()
        try:
            await until(lambda: not self._differences(expected_state), seconds)
        except TimeoutError:
            raise AssertionError(self._differences(expected_state)[:5]) from None

    def _expected(self) -> State:
        state: State = {}
        for key, spec in self.specs.items():
            if spec is not None and not self._is_invalid(spec):
                state |= expected(*key, spec)
        return state

    def _is_invalid(self, spec: Any) -> bool:
        return spec in _INVALID_SPECS

    def _differences(self, expected_state: State) -> list[str]:
        """Return the differences in objects and statuses.

        Objects that revisions share remain when one revision is deleted.
        """
        invalid = {name for (_, name), spec in self.specs.items() if spec is not None and self._is_invalid(spec)}
        installed = {
            name: plain
            for name, plain in self._cluster.installed().items()
            if name not in _UNORDERED
            and plain["metadata"].get("namespace") != FOREIGN
            and plain["metadata"]["labels"].get(OWNER) not in invalid
        }
        lines = [
            f"{name}: surplus"
            for name, plain in installed.items()
            if name not in expected_state and plain["metadata"]["labels"].get(COMPONENT) != "Base"
        ]
        lines += [f"{name}: missing" for name in expected_state if name not in installed]
        lines += [
            f"{name}: {difference(installed[name], expected_state[name])}"
            for name in expected_state
            if name in installed and installed[name] != expected_state[name]
        ]
        for key, spec in self.specs.items():
            status = self._cluster.status(*key).get("status")
            if spec is not None and status != ("ERROR" if self._is_invalid(spec) else "HEALTHY"):
                lines.append(f"the status of {key} is {self._cluster.status(*key)}")
        return lines


def difference(one: Any, other: Any, path: str = "") -> str:
    """Return the path and the values of the first difference."""
    if isinstance(one, dict) and isinstance(other, dict):
        key = next(key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key))
        return difference(one.get(key), other.get(key), f"{path}.{key}")
    return f"{path} is {one}, not {other}"


def foreign_object() -> Plain:
    """Return an object in an unwatched namespace, labelled like a leftover of an installation."""
    labels = {
        "operator.istio.io/managed": "Reconcile",
        "operator.istio.io/component": "Pilot",
        "istio.io/rev": "r1",
        "install.operator.istio.io/owning-resource": "first",
        "install.operator.istio.io/owning-resource-namespace": SYSTEM,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "foreign", "namespace": FOREIGN, "labels": labels},
        "data": {"a": "b"},
    }


async def run_random_edits(watched: str, edits: int, seed: int) -> int:
    """Run random edits, and return the number of requests.

    Raise AssertionError if the final state is wrong or an object in another namespace was changed.
    """
    rng = random.Random(seed)
    async with OperatorCluster(watched, SYSTEM, *TEAMS, FOREIGN) as cluster:
        foreign = foreign_object()
        if not watched:  # an operator for all namespaces prunes in all of them
            del foreign["metadata"]["labels"]
        revision = cluster.server.put(foreign).revision
        operator_edits = OperatorEdits(cluster, rng)
        await operator_edits.create_all()
        for _ in range(edits):
            await operator_edits.edit()
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.02, 0.1)))
        await operator_edits.check_final_state()
        current = cluster.server.store.get(("", "configmaps"), (FOREIGN, "foreign"))
        assert current is not None
        assert current.revision == revision
        collections = [
            cluster.server.store.collection(resource.id) for resource in cluster.server.resources if resource.namespaced
        ]
        assert [name for collection in collections for name in collection.objects if name[0] == FOREIGN] == [
            (FOREIGN, "foreign")
        ]
        return len(cluster.server.requests)
