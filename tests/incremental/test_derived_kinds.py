"""VirtualServices derived from another kind have the same effects as written ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.debug.pages.explain import explain_page
from pilot.derive.collection import DerivedSource
from pilot.lib.xds_types import CLUSTER, LISTENER, ROUTE
from testing.mesh.debug_server import FakeConnection, sources
from testing.mesh.derived_kind import config_map, virtual_services_of_config_maps
from testing.mesh.objects import make
from testing.mesh.problems import problems_of
from testing.mesh.world import World, proxy, rows_of

PROXIES = (
    proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web", "version": "v1"}),
    proxy("sidecar", "far-0", "far", "10.1.0.2", {"app": "far"}),
    proxy("router", "edge-0", "edge", "10.1.0.3", {"istio": "ingress"}),
)
SERVER = '{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}'
BASE = (
    *(
        make(
            "Service",
            name,
            f"{{clusterIP: 10.96.0.{n}, ports: [{{name: http, port: 80}}, {{name: tcp, port: 90}}]}}",
            ns,
        )
        for n, (name, ns) in enumerate((("api", "a"), ("web", "a"), ("hidden", "b")), 1)
    ),
    make("Gateway", "gw", f"{{selector: {{istio: ingress}}, servers: [{SERVER}]}}", "edge"),
    make("Sidecar", "default", '{egress: [{hosts: ["./*"]}]}', "a"),
)
HIDDEN = "hidden.b.svc.cluster.local"
SPECS = (
    "{hosts: [api], http: [{timeout: 3s, route: [{destination: {host: api, port: {number: 80}}}]}]}",
    f"{{hosts: [api], http: [{{route: [{{destination: {{host: {HIDDEN}, port: {{number: 80}}}}}}]}}]}}",
    "{hosts: [api], tcp: [{match: [{port: 90}], route: [{destination: {host: web, port: {number: 90}}}]}]}",
    "{hosts: [x.com], gateways: [edge/gw], http: [{route: [{destination: {host: api, port: {number: 80}}}]}]}",
    "{hosts: [x.com], gateways: [edge/none], http: [{route: [{destination: {host: ghost}}]}]}",
    "{hosts: ['*.a.svc.cluster.local'], exportTo: ['.'], http: [{match: [{sourceLabels: {version: v1}}], redirect: {uri: /r}}]}",
    "{hosts: [root.com], http: [{delegate: {name: v2, namespace: a}}]}",
    "{http: [{directResponse: {status: 418}}]}",
)
NAMES = ("v0", "v1", "v2")


@pytest.fixture(autouse=True)
def _derive_from_config_maps() -> Iterator[None]:
    sources = VIRTUAL_SERVICE.sources
    VIRTUAL_SERVICE.replace_sources(DerivedSource(virtual_services_of_config_maps))
    yield
    VIRTUAL_SERVICE.replace_sources(*sources)


def start_world() -> tuple[World, list[str]]:
    world = World()
    world.set(rows_of(BASE))
    return world, [world.connect(p) for p in PROXIES]


def snapshot(world: World, ids: list[str]) -> dict[str, Any]:
    resources = {
        f"{i} {url} {name}": r.any
        for i in ids
        for url, by_name in world.resources(i).items()
        for name, r in by_name.items()
    }
    assert not world.failures
    return resources | {"problems": problems_of(world)}


@pytest.mark.parametrize("spec", SPECS)
def test_derived_virtual_service_equals_a_written_one(spec: str) -> None:
    """Both are added to an existing mesh, and removed again."""
    derived_world, ids = start_world()
    written_world, _ = start_world()
    before = snapshot(derived_world, ids)
    assert before == snapshot(written_world, ids)
    derived_rows, written_rows = (
        rows_of([config_map("v0", spec, "a")]),
        rows_of([make("VirtualService", "v0", spec, "a")]),
    )
    derived_world.set(derived_rows)
    written_world.set(written_rows)
    after = snapshot(derived_world, ids)
    assert after == snapshot(written_world, ids)
    assert after != before or "http: [{directResponse" in spec  # an unreferenced delegate has no effect
    derived_world.set(dict.fromkeys(derived_rows))
    assert snapshot(derived_world, ids) == before


def test_derived_object_affects_resources_problems_and_explanations() -> None:
    world, ids = start_world()
    before = {url: world.resources(ids[0])[url] for url in (CLUSTER, LISTENER, ROUTE)}
    world.set(
        rows_of(
            [
                config_map("http", SPECS[1], "a"),
                config_map("tcp", SPECS[2].replace("api", "web"), "a"),
                config_map("lost", SPECS[4], "a"),
            ]
        )
    )
    after = world.resources(ids[0])
    assert f"outbound|80||{HIDDEN}" in after[CLUSTER].keys() - before[CLUSTER].keys()
    assert any(before[LISTENER].get(name) != resource for name, resource in after[LISTENER].items())
    assert before[ROUTE]["80"] != after[ROUTE]["80"]
    assert {(p.code, p.object.name) for p in problems_of(world)} == {
        ("gateway-not-found", "lost"),
        ("destination-not-found", "lost"),
    }
    debug_sources = sources(world.mesh, FakeConnection("web-0.a-1", ids[0], PROXIES[0]))
    (explanation,) = asyncio.run(
        explain_page(debug_sources, {"proxyID": "web-0", "resource": "80", "type": "rds"})
    ).make()["explanations"]
    assert ("ConfigMap", "http") in {(o["kind"], o["name"]) for o in explanation["objects"]}


def test_written_object_overrides_a_derived_one() -> None:
    world, ids = start_world()
    world.set(rows_of([config_map("v0", SPECS[0], "a")]))
    with_derived = snapshot(world, ids)
    written_rows = rows_of([make("VirtualService", "v0", SPECS[3], "a")])
    world.set(written_rows)
    reference, _ = start_world()
    reference.set(written_rows)
    assert snapshot(world, ids) == snapshot(reference, ids)
    world.set(dict.fromkeys(written_rows))
    assert snapshot(world, ids) == with_derived


@pytest.mark.parametrize("part", range(4))
def test_incremental_equals_scratch_with_both(seed: int, part: int) -> None:
    rng = random.Random(f"derived kinds {seed} {part}")
    world, ids = start_world()
    current: dict[Any, Any] = {}
    for step in range(12):
        name, spec = rng.choice(NAMES), rng.choice(SPECS)
        manifest = rng.choice(
            (config_map(name, spec, "a", step + 1), make("VirtualService", name, spec, "a", step + 1))
        )
        edit: dict[Any, Any] = {key: None if rng.random() < 0.3 else row for key, row in rows_of([manifest]).items()}
        world.set(edit)
        current = {key: row for key, row in (current | edit).items() if row is not None}
        reference, _ = start_world()
        reference.set(current)
        assert snapshot(world, ids) == snapshot(reference, ids), f"part {part} step {step}"
        world.mesh.collect()
