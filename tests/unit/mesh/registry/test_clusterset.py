"""Multi-cluster services: exports, the clusterset hostname, and visibility of endpoints."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug.application import application
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, NAME_TABLE, ROUTE
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import refs_by_hostname, refs_in_namespace, service, service_refs
from testing.mesh.debug_server import sources
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy, rows_of
from tests.unit.mesh.registry.test_clusters import ALPHA, HOME, WEST, mesh

SHARED = ServiceRef("alpha.a.svc.clusterset.local", "a")
EXPORT = make("ServiceExport", "alpha")
DISCOVERY = {"ENABLE_MCS_SERVICE_DISCOVERY": "true"}
HOSTS = {**DISCOVERY, "ENABLE_MCS_HOST": "true"}
IPS = {"Kubernetes": b"10.1.0.1", "west": b"10.2.0.1"}


def service_import(*ips: str) -> Plain:
    return make("ServiceImport", "alpha", f"{{type: ClusterSetIP, ips: [{', '.join(ips)}], ports: [{{port: 80}}]}}")


def visible_clusters(harness: World, hostname: str) -> dict[str, set[str]]:
    """Return, for a client in each cluster, the clusters whose endpoints it receives."""
    visible = {}
    for cluster in IPS:
        resources = harness.resources(
            harness.connect(proxy("sidecar", f"web-{cluster}", "a", "10.1.0.9", CLUSTER_ID=cluster))
        )
        any_ = resources[ENDPOINT][f"outbound|80||{hostname}"].any
        visible[cluster] = {name for name, ip in IPS.items() if ip in any_}
    return visible


BOTH = {"Kubernetes", "west"}
APART = {"Kubernetes": {"Kubernetes"}, "west": {"west"}}


@pytest.mark.parametrize(
    ("environ", "home", "west", "expected"),
    [
        ({}, [], [], {"Kubernetes": BOTH, "west": BOTH}),
        (DISCOVERY, [], [], APART),
        (DISCOVERY, [], [EXPORT], {"Kubernetes": BOTH, "west": {"west"}}),
        (DISCOVERY, [EXPORT], [EXPORT], {"Kubernetes": BOTH, "west": BOTH}),
        ({**HOSTS, "ENABLE_MCS_CLUSTER_LOCAL": "true"}, [EXPORT], [EXPORT], APART),
        ({**DISCOVERY, "ENABLE_MCS_CLUSTER_LOCAL": "true"}, [EXPORT], [EXPORT], {"Kubernetes": BOTH, "west": BOTH}),
        ({"ENABLE_MCS_HOST": "true"}, [EXPORT], [], {"Kubernetes": BOTH, "west": BOTH}),
    ],
)
def test_endpoints_are_visible_across_clusters_when_exported(
    environ: dict[str, str], home: list[Plain], west: list[Plain], expected: dict[str, set[str]]
) -> None:
    harness = mesh([*HOME, *home], [*WEST, *west], **environ)
    assert visible_clusters(harness, ALPHA.hostname) == expected
    assert service(harness.mesh, SHARED) is None


def test_export_changes_take_effect() -> None:
    harness = mesh(HOME, WEST, **DISCOVERY)
    assert visible_clusters(harness, ALPHA.hostname) == APART
    harness.set(dict(rows_of([EXPORT], "west")))
    assert visible_clusters(harness, ALPHA.hostname) == {"Kubernetes": BOTH, "west": {"west"}}
    harness.set(dict.fromkeys(rows_of([EXPORT], "west"), None))
    assert visible_clusters(harness, ALPHA.hostname) == APART


def test_imported_service_has_a_clusterset_hostname() -> None:
    harness = mesh(
        [*HOME, EXPORT, service_import("10.99.0.1")],
        [*WEST, EXPORT, service_import("10.99.0.2")],
        **HOSTS,
        ENABLE_MCS_CLUSTER_LOCAL="true",
    )
    imported_service = service(harness.mesh, SHARED)
    assert imported_service is not None
    assert [imported_service.addresses_in(cluster) for cluster in ("Kubernetes", "west")] == [
        ("10.99.0.1",),
        ("10.99.0.2",),
    ]
    assert [p.number for p in imported_service.ports] == [80, 9000]
    assert set(service_refs(harness.mesh)) == set(refs_in_namespace(harness.mesh, "a")) == {ALPHA, SHARED}
    assert refs_by_hostname(harness.mesh, SHARED.hostname) == (SHARED,)
    assert visible_clusters(harness, SHARED.hostname) == {"Kubernetes": BOTH, "west": BOTH}
    assert visible_clusters(harness, ALPHA.hostname) == APART
    resources = harness.resources(harness.connect(proxy("sidecar", "web-0", "a", "10.1.0.9", DNS_CAPTURE="true")))
    assert f"outbound|80||{SHARED.hostname}" in resources[CLUSTER]
    assert "10.99.0.1_9000" in resources[LISTENER]
    assert SHARED.hostname.encode() in resources[ROUTE]["80"].any
    (names,) = resources[NAME_TABLE].values()
    assert SHARED.hostname.encode() in names.any
    assert not harness.failures


async def test_mcsz_page() -> None:
    harness = mesh([*HOME, EXPORT, service_import("10.99.0.1")], [*WEST, service_import()], **HOSTS)
    async with (
        TestClient(TestServer(application(sources(harness.mesh)))) as client,
        client.get("/debug/mcsz") as response,
    ):
        page = await response.json()
    everywhere, at_home = (
        dict.fromkeys([ALPHA.hostname, SHARED.hostname], way)
        for way in ("AlwaysDiscoverable", "DiscoverableFromSameCluster")
    )
    common = {"Name": "alpha", "Namespace": "a", "Imported": True}
    assert page == [
        {
            **common,
            "Cluster": "Kubernetes",
            "Exported": True,
            "ClusterSetVIP": "10.99.0.1",
            "Discoverability": everywhere,
        },
        {**common, "Cluster": "west", "Exported": False, "ClusterSetVIP": "", "Discoverability": at_home},
    ]


@pytest.mark.parametrize(
    ("home", "hosts"),
    [
        ([service_import()], False),
        ([service_import("10.99.0.1")], True),
        ([make("ServiceImport", "beta", "{ips: [10.99.0.1]}")], False),
        ([EXPORT], False),
    ],
    ids=["no address", "an address", "no service", "only an export"],
)
def test_clusterset_hostname_requires_an_address_and_a_service(home: list[Plain], hosts: bool) -> None:
    harness = mesh([*HOME, *home], WEST, **HOSTS)
    assert (SHARED in service_refs(harness.mesh), refs_by_hostname(harness.mesh, SHARED.hostname) == (SHARED,)) == (
        hosts,
        hosts,
    )
    assert ServiceRef("beta.a.svc.clusterset.local", "a") not in service_refs(harness.mesh)
    harness.set(dict.fromkeys(rows_of(home), None))
    assert service_refs(harness.mesh) == (ALPHA,)


def test_unexported_clusterset_service_is_reachable_only_locally() -> None:
    harness = mesh([*HOME, service_import("10.99.0.1")], [*WEST, service_import("10.99.0.2")], **HOSTS)
    assert visible_clusters(harness, SHARED.hostname) == APART
