"""Multi-cluster services: who exports one, the name that all clusters share, and where endpoints are seen."""

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


def imported(*ips: str) -> Plain:
    return make("ServiceImport", "alpha", f"{{type: ClusterSetIP, ips: [{', '.join(ips)}], ports: [{{port: 80}}]}}")


def seen(made: World, hostname: str) -> dict[str, set[str]]:
    """The clusters whose endpoints a client of each cluster is sent."""
    found = {}
    for cluster in IPS:
        sent = made.resources(made.connect(proxy("sidecar", f"web-{cluster}", "a", "10.1.0.9", CLUSTER_ID=cluster)))
        any_ = sent[ENDPOINT][f"outbound|80||{hostname}"].any
        found[cluster] = {name for name, ip in IPS.items() if ip in any_}
    return found


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
def test_endpoints_are_seen_in_other_clusters_where_theirs_exports_them(
    environ: dict[str, str], home: list[Plain], west: list[Plain], expected: dict[str, set[str]]
) -> None:
    made = mesh([*HOME, *home], [*WEST, *west], **environ)
    assert seen(made, ALPHA.hostname) == expected
    assert service(made.mesh, SHARED) is None


def test_an_export_that_comes_and_goes_changes_what_others_see() -> None:
    made = mesh(HOME, WEST, **DISCOVERY)
    assert seen(made, ALPHA.hostname) == APART
    made.set(dict(rows_of([EXPORT], "west")))
    assert seen(made, ALPHA.hostname) == {"Kubernetes": BOTH, "west": {"west"}}
    made.set(dict.fromkeys(rows_of([EXPORT], "west"), None))
    assert seen(made, ALPHA.hostname) == APART


def test_a_service_that_is_imported_has_a_name_that_all_clusters_share() -> None:
    made = mesh(
        [*HOME, EXPORT, imported("10.99.0.1")],
        [*WEST, EXPORT, imported("10.99.0.2")],
        **HOSTS,
        ENABLE_MCS_CLUSTER_LOCAL="true",
    )
    found = service(made.mesh, SHARED)
    assert found is not None
    assert [found.addresses_in(cluster) for cluster in ("Kubernetes", "west")] == [("10.99.0.1",), ("10.99.0.2",)]
    assert [p.number for p in found.ports] == [80, 9000]
    assert set(service_refs(made.mesh)) == set(refs_in_namespace(made.mesh, "a")) == {ALPHA, SHARED}
    assert refs_by_hostname(made.mesh, SHARED.hostname) == (SHARED,)
    assert seen(made, SHARED.hostname) == {"Kubernetes": BOTH, "west": BOTH}
    assert seen(made, ALPHA.hostname) == APART
    sent = made.resources(made.connect(proxy("sidecar", "web-0", "a", "10.1.0.9", DNS_CAPTURE="true")))
    assert f"outbound|80||{SHARED.hostname}" in sent[CLUSTER]
    assert "10.99.0.1_9000" in sent[LISTENER]
    assert SHARED.hostname.encode() in sent[ROUTE]["80"].any
    (names,) = sent[NAME_TABLE].values()
    assert SHARED.hostname.encode() in names.any
    assert not made.failures


async def test_the_page_of_shared_services() -> None:
    made = mesh([*HOME, EXPORT, imported("10.99.0.1")], [*WEST, imported()], **HOSTS)
    async with TestClient(TestServer(application(sources(made.mesh)))) as client, client.get("/debug/mcsz") as response:
        found = await response.json()
    everywhere, at_home = (
        dict.fromkeys([ALPHA.hostname, SHARED.hostname], way)
        for way in ("AlwaysDiscoverable", "DiscoverableFromSameCluster")
    )
    common = {"Name": "alpha", "Namespace": "a", "Imported": True}
    assert found == [
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
        ([imported()], False),
        ([imported("10.99.0.1")], True),
        ([make("ServiceImport", "beta", "{ips: [10.99.0.1]}")], False),
        ([EXPORT], False),
    ],
    ids=["no address", "an address", "no service", "an export alone"],
)
def test_a_shared_name_needs_an_address_and_a_service(home: list[Plain], hosts: bool) -> None:
    made = mesh([*HOME, *home], WEST, **HOSTS)
    assert (SHARED in service_refs(made.mesh), refs_by_hostname(made.mesh, SHARED.hostname) == (SHARED,)) == (
        hosts,
        hosts,
    )
    assert ServiceRef("beta.a.svc.clusterset.local", "a") not in service_refs(made.mesh)
    made.set(dict.fromkeys(rows_of(home), None))
    assert service_refs(made.mesh) == (ALPHA,)


def test_a_shared_name_is_reached_in_the_own_cluster_where_nobody_exports_it() -> None:
    made = mesh([*HOME, imported("10.99.0.1")], [*WEST, imported("10.99.0.2")], **HOSTS)
    assert seen(made, SHARED.hostname) == APART
