"""Secrets under random edits of what they are made of, who asks and who may, and how little an edit of one runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from pilot.derive import Node
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.xds_types import SECRET
from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey
from testing.mesh.objects import make
from testing.mesh.world import World, proxy, rows_of
from testing.security.credentials import Authority, config_map, data_secret, tls_secret

CA, OTHER = Authority(), Authority("other")
ONE, TWO = CA.issue("one.example.com"), CA.issue("two.example.com")
STEPS = 40
NAMES = frozenset(
    f"{scheme}{name}"
    for scheme, names in {
        "kubernetes://": ("web", "web-cacert", "edge/web", "far/web", "far/web-cacert", "clients", "absent"),
        "kubernetes-gateway://": ("edge/web", "edge/web-cacert", "far/web"),
        "configmap://": ("edge/roots", "far/roots-cacert"),
    }.items()
    for name in names
)
PROXIES = tuple(
    replace(
        proxy(kind, f"p{number}", namespace, f"10.1.0.{number}", {"istio": "ingress"}, CLUSTER_ID=cluster),
        identity=f"spiffe://cluster.local/ns/{namespace}/sa/{account}" if account else "",
    )
    for number, (kind, namespace, account, cluster) in enumerate(
        (
            ("router", "edge", "one", "Kubernetes"),
            ("router", "edge", "two", "Kubernetes"),
            ("router", "edge", "one", "west"),
            ("router", "far", "one", "Kubernetes"),
            ("sidecar", "edge", "one", "Kubernetes"),
            ("router", "edge", "", "Kubernetes"),
        ),
        1,
    )
)


def gateway(name: str, namespace: str, tls: str) -> Mapping[str, Any]:
    servers = f"[{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: ['*'], tls: {{{tls}}}}}]"
    return make("Gateway", name, f"{{selector: {{istio: ingress}}, servers: {servers}}}", namespace)


def objects(*made: Mapping[str, Any], cluster: str = "Kubernetes") -> list[Any]:
    return [rows_of([one], cluster) for one in made]


def access(*account: str) -> list[Any]:
    return [{("SecretAccess", AccountKey(*account)): allowed} for allowed in (True, False)]


SLOTS: list[list[Any]] = [
    *(
        objects(
            tls_secret("web", ONE, namespace),
            tls_secret("web", TWO, namespace, ca_crt=CA.pem, ca_crl=CA.crl(ONE)),
            data_secret("web", {"cert": ONE.chain, "key": ONE.private_key, "cacert": OTHER.pem}, namespace),
            data_secret("web", {"tls.crt": ONE.chain, "tls.key": TWO.private_key, "ca.crt": CA.pem}, namespace),
            data_secret("web", {"tls.crt": ONE.chain, "tls.key": ONE.private_key}, namespace, "helm.sh/release.v1"),
            cluster=cluster,
        )
        for namespace, cluster in (("edge", "Kubernetes"), ("far", "Kubernetes"), ("edge", "west"))
    ),
    objects(data_secret("web-cacert", {"ca.crt": CA.pem}), data_secret("web-cacert", {"x": b"y"})),
    objects(data_secret("clients", {"ca.crt": CA.pem}), tls_secret("clients", ONE, ca_crt=OTHER.pem)),
    *(
        objects(
            config_map("roots", {"cacert": CA.pem.decode()}, place),
            config_map("roots", {"ca.crt": OTHER.pem.decode()}, place),
        )
        for place in ("edge", "far")
    ),
    *(
        objects(
            gateway(name, place, "mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/web'"),
            gateway(name, place, "mode: MUTUAL, credentialName: 'kubernetes-gateway://edge/web'"),
            gateway(name, place, "mode: MUTUAL, credentialName: web, caCertCredentialName: clients"),
            gateway(name, place, "mode: SIMPLE, credentialName: clients"),
        )
        for name, place in (("one", "edge"), ("two", "edge"), ("one", "far"))
    ),
    [{("SecretAccess", EVERY_ACCOUNT): True}],
    access("Kubernetes", "edge", "one"),
    access("Kubernetes", "edge", "two"),
    access("west", "edge", "one"),
    access("Kubernetes", "far", "one"),
]


def started(rows: Mapping[Any, Any]) -> World:
    world = World()
    world.mesh.commit([(world.mesh.secret_access, EVERY_ACCOUNT, None)])
    world.set(rows)
    return world


def content(world: World) -> dict[str, Any]:
    """What each proxy gets; of one that waits for it, the reason."""
    found: dict[str, Any] = {}
    for one in PROXIES:
        node_id = world.connect(one)
        waits = SECRET not in proxy_plan(world.mesh, node_id).by_name
        found[node_id] = "waits" if waits else world.secrets(node_id, *NAMES)
    return found


@pytest.mark.parametrize("part", range(4))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    choose = random.Random(f"secrets {seed} {part}")
    now: list[Mapping[Any, Any]] = [choose.choice(variants) if choose.random() < 0.7 else {} for variants in SLOTS]
    world, served = started({key: row for rows in now for key, row in rows.items()}), 0
    for step in range(STEPS):
        edits: dict[Any, Any] = {}
        for index in choose.sample(range(len(SLOTS)), choose.randint(1, 3)):
            fresh = {} if choose.random() < 0.3 else choose.choice(SLOTS[index])
            edits |= dict.fromkeys(now[index]) | dict(fresh)
            now[index] = fresh
        world.set(edits)
        got, want = content(world), content(started({key: row for rows in now for key, row in rows.items()}))
        assert got == want, f"part {part} step {step} after {list(edits)}"
        served += sum(len(have) for have in got.values() if have != "waits")
        assert not world.failures
        world.mesh.collect()
    assert served > STEPS


def test_an_edit_of_a_secret_runs_what_is_made_of_it_alone() -> None:
    """Whatever other secrets there are, and however many proxies have the same."""
    ran: list[Counter[str]] = []
    for count in (3, 30):
        world = started({("SecretAccess", EVERY_ACCOUNT): True})
        world.set(rows_of([tls_secret(f"web-{number}", ONE, ca_crt=CA.pem) for number in range(count)]))
        names = frozenset(f"kubernetes://web-{number}{suffix}" for number in range(count) for suffix in ("", "-cacert"))
        groups = {
            group
            for one in PROXIES[:5]
            for group in proxy_plan(world.mesh, world.connect(one)).groups_of(SECRET, names) or ()
        }
        watched = [world.mesh.watch(group.fn, *group.args) for group in groups]
        before = [dict(node.value) for node in watched]
        counted: Counter[str] = Counter()

        def count_run(node: Node, counted: Counter[str] = counted) -> None:
            counted[node.fn.__name__] += 1

        world.mesh.on_run = count_run
        world.set(rows_of([tls_secret("web-0", TWO, ca_crt=CA.pem)]))
        for node, old in zip(watched, before, strict=True):
            world.mesh.refresh(node)
            assert {name for name in node.value if node.value[name] is not old.get(name)} <= {"kubernetes://web-0"}
        ran.append(counted)
    assert ran[0] == ran[1]
    assert ran[0]["secret"] > 0


def test_a_secret_that_came_again_unchanged_reaches_nobody() -> None:
    world = started({("SecretAccess", EVERY_ACCOUNT): True})
    world.apply_objects(tls_secret("web", ONE))
    (group,) = proxy_plan(world.mesh, world.connect(PROXIES[0])).groups_of(SECRET, NAMES) or ()
    world.mesh.watch(group.fn, *group.args)
    ran: list[str] = []
    world.mesh.on_run = lambda node: ran.append(str(node))
    metadata = {"name": "web", "namespace": "edge", "resourceVersion": "2", "annotations": {"a": "b"}}
    world.apply_objects(tls_secret("web", ONE) | {"metadata": metadata})
    assert ran == []
