"""Random edits of Secrets, gateways and access, and the cost of an edit of a Secret."""

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


def objects(*manifests: Mapping[str, Any], cluster: str = "Kubernetes") -> list[Any]:
    return [rows_of([manifest], cluster) for manifest in manifests]


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
            config_map("roots", {"cacert": CA.pem.decode()}, namespace),
            config_map("roots", {"ca.crt": OTHER.pem.decode()}, namespace),
        )
        for namespace in ("edge", "far")
    ),
    *(
        objects(
            gateway(name, namespace, "mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/web'"),
            gateway(name, namespace, "mode: MUTUAL, credentialName: 'kubernetes-gateway://edge/web'"),
            gateway(name, namespace, "mode: MUTUAL, credentialName: web, caCertCredentialName: clients"),
            gateway(name, namespace, "mode: SIMPLE, credentialName: clients"),
        )
        for name, namespace in (("one", "edge"), ("two", "edge"), ("one", "far"))
    ),
    [{("SecretAccess", EVERY_ACCOUNT): True}],
    access("Kubernetes", "edge", "one"),
    access("Kubernetes", "edge", "two"),
    access("west", "edge", "one"),
    access("Kubernetes", "far", "one"),
]


def start_world(rows: Mapping[Any, Any]) -> World:
    world = World()
    world.mesh.commit([(world.mesh.secret_access, EVERY_ACCOUNT, None)])
    world.set(rows)
    return world


def secrets_by_proxy(world: World) -> dict[str, Any]:
    """Return the secrets of each proxy, or "waits" if its access is unknown."""
    contents: dict[str, Any] = {}
    for client in PROXIES:
        node_id = world.connect(client)
        is_waiting = SECRET not in proxy_plan(world.mesh, node_id).by_name
        contents[node_id] = "waits" if is_waiting else world.secrets(node_id, *NAMES)
    return contents


@pytest.mark.parametrize("part", range(4))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    rng = random.Random(f"secrets {seed} {part}")
    current: list[Mapping[Any, Any]] = [rng.choice(variants) if rng.random() < 0.7 else {} for variants in SLOTS]
    world, total = start_world({key: row for rows in current for key, row in rows.items()}), 0
    for step in range(STEPS):
        edits: dict[Any, Any] = {}
        for index in rng.sample(range(len(SLOTS)), rng.randint(1, 3)):
            replacement = {} if rng.random() < 0.3 else rng.choice(SLOTS[index])
            edits |= dict.fromkeys(current[index]) | dict(replacement)
            current[index] = replacement
        world.set(edits)
        actual, expected = (
            secrets_by_proxy(world),
            secrets_by_proxy(start_world({key: row for rows in current for key, row in rows.items()})),
        )
        assert actual == expected, f"part {part} step {step} after {list(edits)}"
        total += sum(len(secrets) for secrets in actual.values() if secrets != "waits")
        assert not world.failures
        world.mesh.collect()
    assert total > STEPS


def test_cost_of_a_secret_edit_is_constant() -> None:
    """The cost does not depend on the number of other secrets."""
    runs: list[Counter[str]] = []
    for count in (3, 30):
        world = start_world({("SecretAccess", EVERY_ACCOUNT): True})
        world.set(rows_of([tls_secret(f"web-{number}", ONE, ca_crt=CA.pem) for number in range(count)]))
        names = frozenset(f"kubernetes://web-{number}{suffix}" for number in range(count) for suffix in ("", "-cacert"))
        groups = {
            group
            for client in PROXIES[:5]
            for group in proxy_plan(world.mesh, world.connect(client)).groups_of(SECRET, names) or ()
        }
        watched = [world.mesh.watch(group.fn, *group.args) for group in groups]
        before = [dict(node.value) for node in watched]
        counts: Counter[str] = Counter()

        def count_run(node: Node, counts: Counter[str] = counts) -> None:
            counts[node.fn.__name__] += 1

        world.mesh.on_run = count_run
        world.set(rows_of([tls_secret("web-0", TWO, ca_crt=CA.pem)]))
        for node, old in zip(watched, before, strict=True):
            world.mesh.refresh(node)
            assert {name for name in node.value if node.value[name] is not old.get(name)} <= {"kubernetes://web-0"}
        runs.append(counts)
    assert runs[0] == runs[1]
    assert runs[0]["secret"] > 0


def test_unchanged_secret_causes_no_runs() -> None:
    world = start_world({("SecretAccess", EVERY_ACCOUNT): True})
    world.apply_objects(tls_secret("web", ONE))
    (group,) = proxy_plan(world.mesh, world.connect(PROXIES[0])).groups_of(SECRET, NAMES) or ()
    world.mesh.watch(group.fn, *group.args)
    runs: list[str] = []
    world.mesh.on_run = lambda node: runs.append(str(node))
    metadata = {"name": "web", "namespace": "edge", "resourceVersion": "2", "annotations": {"a": "b"}}
    world.apply_objects(tls_secret("web", ONE) | {"metadata": metadata})
    assert runs == []
