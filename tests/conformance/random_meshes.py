"""Random meshes: crossings of scenarios, with random edits of their configuration."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pilot.config.problem import Severity
from pilot.ingest.decode import decode_document
from tests.conformance.scenario import Plain, Scenario, ScenarioProxy, Step, identity

MAX_PROXIES = 6
_MAX_DEPTH = 20
_CONFIGURED_GROUPS = ("istio.io", "gateway.networking.k8s.io", "networking.k8s.io")
Path = tuple[str | int, ...]


class RandomMeshes:
    """A source of random meshes, which consist of valid objects.

    A mesh consists of one scenario, and of some objects and proxies of a second one. Its edits remove objects and
    fields, copy objects, and take values from objects of the same kind in any scenario. Patches of EnvoyFilters are only
    added and removed as a whole if `whole_patches` is set, because others are often invalid.
    """

    def __init__(self, scenarios: Sequence[Scenario], rng: random.Random, whole_patches: bool = False) -> None:
        self._rng, self._scenarios, self._whole_patches = rng, scenarios, whole_patches
        self._donors: dict[str, list[Plain]] = defaultdict(list)
        for scenario in scenarios:
            for plain in (*scenario.objects, *(o for step in scenario.steps for o in step.objects)):
                if _is_configuration(plain):
                    self._donors[plain["kind"]].append(plain)

    def mesh(self, edits: int) -> Scenario:
        """Return a crossing of two scenarios with a number of edits."""
        first, second = self._rng.sample(self._scenarios, 2)
        second = _renumbered(second)
        objects = {identity(o): copy.deepcopy(o) for o in self._stepped(second)}
        share = self._rng.choice((0.0, 0.3, 1.0))
        objects = {key: o for key, o in objects.items() if o["kind"] == "Namespace" or self._rng.random() < share}
        objects |= {identity(o): copy.deepcopy(o) for o in self._stepped(first)}
        proxies = {proxy.name: proxy for proxy in (*second.proxies, *first.proxies)} if share == 1.0 else {}
        proxies |= {proxy.name: proxy for proxy in first.proxies}
        mesh = dataclasses.replace(
            first, objects=[*objects.values()], proxies=self._some(list(proxies.values())), steps=[]
        )
        for _ in range(edits):
            mesh = self.edit(mesh)
        return mesh

    def edit(self, mesh: Scenario) -> Scenario:
        """Return a mesh with one more edit. It is the same mesh if the edit makes an object invalid."""
        objects = list(mesh.objects)
        places = [i for i, o in enumerate(objects) if _is_configuration(o)]
        if not places:
            return mesh
        place = self._rng.choice(places)
        kind = self._rng.randrange(6)
        if kind == 0:
            del objects[place]
            return dataclasses.replace(mesh, objects=objects)
        plain = copy.deepcopy(objects[place])
        if kind == 1:
            plain["metadata"]["name"] = f"{plain['metadata']['name'][:40]}-{self._rng.randrange(100)}"
        if kind == 2:
            plain = self._relocated(plain, mesh)
        for _ in range(self._rng.randint(1, 2)):
            self._change(plain)
        if not is_valid(plain):
            return mesh
        others = objects if kind in (1, 2) else [*objects[:place], *objects[place + 1 :]]
        return dataclasses.replace(mesh, objects=[o for o in others if identity(o) != identity(plain)] + [plain])

    def _stepped(self, scenario: Scenario) -> list[Plain]:
        """Return the objects of a scenario after a random number of its steps."""
        objects, steps = list(scenario.objects), list[Step](scenario.steps)
        for step in steps[: self._rng.randint(0, len(steps))]:
            objects = step.apply(objects)
        return objects

    def _some(self, proxies: list[ScenarioProxy]) -> list[ScenarioProxy]:
        return proxies if len(proxies) <= MAX_PROXIES else self._rng.sample(proxies, MAX_PROXIES)

    def _relocated(self, plain: Plain, mesh: Scenario) -> Plain:
        """Return an object in the namespace of a random proxy."""
        if "namespace" in plain["metadata"]:
            plain["metadata"]["namespace"] = self._rng.choice(mesh.proxies).node["metadata"]["NAMESPACE"]
        return plain

    def _change(self, plain: Plain) -> None:
        """Remove a field of an object, or take a value from another object of its kind."""
        depth = 2 if self._whole_patches and plain["kind"] == "EnvoyFilter" else _MAX_DEPTH
        paths = [path for path in _paths(plain.get("spec")) if len(path) <= depth]
        if not paths:
            return
        if self._rng.random() < 0.4:
            path = self._rng.choice(paths)
            parent = _at(plain["spec"], path[:-1])
            del parent[path[-1]]
            return
        donor = self._rng.choice(self._donors[plain["kind"]])
        shared = [p for p in _paths(donor.get("spec")) if len(p) <= depth and _has(plain["spec"], p[:-1])]
        if shared:
            path = self._rng.choice(shared)
            parent, value = _at(plain["spec"], path[:-1]), copy.deepcopy(_at(donor["spec"], path))
            if isinstance(parent, dict) and isinstance(path[-1], str):
                parent[path[-1]] = value
            elif isinstance(parent, list):
                parent.insert(self._rng.randint(0, len(parent)), value)


def _renumbered(scenario: Scenario) -> Scenario:
    """Return a scenario with other addresses in 10.0.0.0/8, so that a crossing has no address twice."""

    def other(match: re.Match[str]) -> str:
        first, second, third = (int(part) for part in match.groups())
        return (
            f"10.{first}.{(second + 100) % 256}.{third}"
            if first == 96
            else f"10.{(first + 100) % 256}.{second}.{third}"
        )

    def convert(value: Any) -> Any:
        return json.loads(re.sub(r"\b10\.(\d+)\.(\d+)\.(\d+)\b", other, json.dumps(value, default=str)))

    kubernetes = [o for o in scenario.objects if o["metadata"]["name"] == "kubernetes"]
    objects = [convert(o) for o in scenario.objects if o not in kubernetes] + kubernetes
    proxies = [dataclasses.replace(proxy, node=convert(proxy.node)) for proxy in scenario.proxies]
    steps = [Step(step.name, convert(step.objects)) for step in scenario.steps]
    return dataclasses.replace(scenario, objects=objects, proxies=proxies, steps=steps)


def is_valid(plain: Plain) -> bool:
    """Return whether an object has no errors. Unknown fields are errors."""
    decoded = decode_document(plain, strict=True)
    return not any(problem.severity is Severity.ERROR for problem in decoded.problems)


def _is_configuration(plain: Plain) -> bool:
    return bool(plain["apiVersion"].partition("/")[0].endswith(_CONFIGURED_GROUPS))


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values in plain data."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _has(value: Any, path: Path) -> bool:
    try:
        return isinstance(_at(value, path), dict | list)
    except (KeyError, IndexError, TypeError):
        return False
