"""A life of IstioOperators: they and what they install are changed by chance while requests fail, and in the end everything is as it should be."""

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
"""What the first of several control planes takes."""
_OWNERSHIP = {COMPONENT, OWNER, OWNER_NAMESPACE, REVISION}
_POD: Plain = {"template": {"spec": {"serviceAccountName": "somebody"}}}  # replicas are the autoscaler's
_WRONG: tuple[Any, ...] = ({"nonsense": 1}, {"components": {"pilot": {"enabled": "true"}}}, {"profile": "none"}, "text")


def control_plane(choose: random.Random, revision: str, system: str) -> Plain:
    """A control plane in a state that is drawn, in a namespace of its own and without definitions."""
    values: Plain = {"global": {"istioNamespace": system}, "base": {"enableIstioConfigCRDs": False}}
    settings: Plain = {}
    if choose.random() < 0.5:
        values["pilot"] = {"autoscaleEnabled": False}
        settings["replicaCount"] = choose.randint(1, 3)
    if choose.random() < 0.5:
        settings["env"] = [{"name": "DRAWN", "value": str(choose.random())}]
    pilot = {"pilot": {"k8s": settings}} if settings else {}
    mesh = {"accessLogFile": choose.choice(("/dev/stdout", "/tmp/log"))}
    return {
        "profile": "minimal",
        "revision": revision,
        "tag": f"1.{choose.randint(0, 3)}",
        "components": pilot,
        "meshConfig": mesh,
        "values": values,
    }


def gateways(choose: random.Random, *namespaces: str) -> Plain:
    """Some gateways in some of these namespaces."""
    listed = [{"name": f"edge-{i}", "namespace": choose.choice(namespaces)} for i in range(choose.randint(0, 2))]
    return {"profile": "empty", "tag": f"1.{choose.randint(0, 3)}", "components": {"ingressGateways": listed}}


class Life:
    """`said` is what each IstioOperator says now, by namespace and name; None for one that is not there."""

    def __init__(self, operated: OperatorCluster, choose: random.Random) -> None:
        self._o, self._choose = operated, choose
        self.said: dict[tuple[str, str], Any] = {}

    def _drawn(self, key: tuple[str, str]) -> Any:
        if self._choose.random() < 0.15:
            return self._choose.choice(_WRONG)
        match key:
            case (_, "first"):
                return control_plane(self._choose, "r1", SYSTEM)
            case (_, "second"):
                return control_plane(self._choose, "r2", "team-a")
            case _:
                return gateways(self._choose, *TEAMS) if key[1] == "edges" else gateways(self._choose, SYSTEM)

    async def begin(self) -> None:
        """Write all of them."""
        for key in ((SYSTEM, "first"), ("team-a", "second"), ("team-b", "edges"), (SYSTEM, "gates")):
            await self._write(key, self._drawn(key))

    async def _write(self, key: tuple[str, str], spec: Any) -> None:
        self.said[key] = spec
        await self._o.write(*key, spec)

    async def edit(self) -> None:
        """Change something by chance: an IstioOperator, an object that one installed, or what goes wrong."""
        choose, draw = self._choose, self._choose.random()
        if draw < 0.25:
            key = choose.choice(sorted(self.said))
            await self._write(key, self._drawn(key))
        elif draw < 0.30:
            key = choose.choice(sorted(self.said))
            self.said[key] = None
            await self._o.remove(*key)
            await until(lambda: self._o.resource(*key) is None, 60)
        elif draw < 0.75:
            await self._meddle()
        else:
            await self._disturb()

    async def _meddle(self) -> None:
        """Change or deletes an object that is installed."""
        there = [
            plain for _, plain in sorted(self._o.installed().items()) if plain["metadata"].get("namespace") != FOREIGN
        ]
        if not there:
            return
        plain = self._choose.choice(there)
        try:
            match self._choose.randrange(4):
                case 0:
                    await self._o.delete(plain)
                case 1:  # who takes off what says whose it is, while the operator restarts and its settings change, keeps the object
                    labels = sorted(plain["metadata"]["labels"].keys() - _OWNERSHIP)
                    await self._o.patch(plain, {"metadata": {"labels": {self._choose.choice(labels): None}}})
                case 2:
                    await self._o.patch(plain, {"metadata": {"labels": {"app.kubernetes.io/part-of": "something"}}})
                case _:
                    part = next(
                        (name for name in ("spec", "data", "rules", "subjects", "webhooks") if name in plain), ""
                    )
                    changed = (
                        {"selector": {"app": "x"}}
                        if plain["kind"] == "Service"
                        else _POD
                        if plain["kind"] == "Deployment"
                        else {}
                    )
                    if changed:
                        await self._o.patch(plain, {part: changed})
                    elif part in ("rules", "subjects", "webhooks"):
                        await self._o.patch(plain, {part: []})
                    elif part == "data":
                        await self._o.patch(plain, {part: dict.fromkeys(plain[part], "changed")})
        except KubeError:  # a fault has met this request
            pass

    async def _disturb(self) -> None:
        choose, server = self._choose, self._o.server
        match choose.randrange(6):
            case 0:
                server.faults.refuse(choose.choice((429, 500, 503)), times=choose.randint(1, 8))
            case 1:
                server.faults.refuse(
                    choose.choice((403, 409, 500)),
                    times=choose.randint(1, 4),
                    matching=lambda asked: asked.verb == "patch",
                )
            case 2:
                server.faults.end_watches(choose.choice(("close", "abort", "half a line", "expired")))
            case 3:
                server.store.compact()
            case 4:
                await server.stop()
                await asyncio.sleep(0.01)
                await server.start()
            case _:
                await self._o.stop()
                await self._o.start()

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self, seconds: float = 60.0) -> None:
        """End all faults, and waits until everything is as it should be; says what is not."""
        self._o.server.faults.clear()
        wanted = self._wanted()
        try:
            await until(lambda: not self._differing(wanted), seconds)
        except TimeoutError:
            raise AssertionError(self._differing(wanted)[:5]) from None

    def _wanted(self) -> State:
        found: State = {}
        for key, spec in self.said.items():
            if spec is not None and not self._is_wrong(spec):
                found |= expected(*key, spec)
        return found

    def _is_wrong(self, spec: Any) -> bool:
        return spec in _WRONG

    def _differing(self, wanted: State) -> list[str]:
        """What is not as it should be: objects, and what statuses say. What all revisions share stays when one goes."""
        wrong_ones = {name for (_, name), spec in self.said.items() if spec is not None and self._is_wrong(spec)}
        there = {
            name: plain
            for name, plain in self._o.installed().items()
            if name not in _UNORDERED
            and plain["metadata"].get("namespace") != FOREIGN
            and plain["metadata"]["labels"].get(OWNER) not in wrong_ones
        }
        found = [
            f"{name}: surplus"
            for name, plain in there.items()
            if name not in wanted and plain["metadata"]["labels"].get(COMPONENT) != "Base"
        ]
        found += [f"{name}: missing" for name in wanted if name not in there]
        found += [
            f"{name}: {difference(there[name], wanted[name])}"
            for name in wanted
            if name in there and there[name] != wanted[name]
        ]
        for key, spec in self.said.items():
            status = self._o.status(*key).get("status")
            if spec is not None and status != ("ERROR" if self._is_wrong(spec) else "HEALTHY"):
                found.append(f"the status of {key} is {self._o.status(*key)}")
        return found


def difference(one: Any, other: Any, path: str = "") -> str:
    """Where two values differ first."""
    if isinstance(one, dict) and isinstance(other, dict):
        key = next(key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key))
        return difference(one.get(key), other.get(key), f"{path}.{key}")
    return f"{path} is {one}, not {other}"


def foreign_object() -> Plain:
    """An object of a namespace that is not watched, labelled as if it were installed and left over."""
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
        "metadata": {"name": "of-others", "namespace": FOREIGN, "labels": labels},
        "data": {"a": "b"},
    }


async def live(watched: str, edits: int, seed: int) -> int:
    """Lives through some edits; returns how many requests there were. AssertionError where something is not as it should be in the end, or an
    object of another namespace was touched."""
    choose = random.Random(seed)
    async with OperatorCluster(watched, SYSTEM, *TEAMS, FOREIGN) as operated:
        foreign = foreign_object()
        if not watched:  # who watches all namespaces prunes in all of them
            del foreign["metadata"]["labels"]
        before = operated.server.put(foreign).revision
        life = Life(operated, choose)
        await life.begin()
        for _ in range(edits):
            await life.edit()
            await asyncio.sleep(choose.choice((0.0, 0.0, 0.02, 0.1)))
        await life.settle()
        after = operated.server.store.get(("", "configmaps"), (FOREIGN, "of-others"))
        assert after is not None
        assert after.revision == before
        collections = [
            operated.server.store.collection(resource.id)
            for resource in operated.server.resources
            if resource.namespaced
        ]
        assert [name for each in collections for name in each.objects if name[0] == FOREIGN] == [(FOREIGN, "of-others")]
        return len(operated.server.requests)
