"""EnvoyFilters on a mesh in memory: what is shared, whom they are for, in which order they come, and what is told of those that are in vain."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from google.protobuf import any_pb2, json_format

from pilot.bootstrap.periodic_jobs import PatchMetrics
from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.config.networking.envoy_filter import EnvoyConfigObjectMatch, ListenerMatch
from pilot.config.object import ObjectKey
from pilot.envoy.envoy_filter.added_resources import find_patches
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_match import can_change
from pilot.envoy.plans.patch_problems import envoy_filter_problems
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics import Metrics
from pilot.lib.xds_types import CLUSTER, EXTENSION, LISTENER, ROUTE
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.proxies.patches import configured_patch
from testing.edits.random_envoy_filters import API, start
from testing.edits.random_envoy_filters import MESH as OBJECTS
from testing.mesh.listeners import HCM
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import World, proxy

CLUSTER_NAME = f"outbound|80||{API}"
MESH = "istio-system"


def envoy_filter(name: str, *patches: str, namespace: str = "a", more: str = "", day: int = 1) -> Plain:
    return make("EnvoyFilter", name, f"{{{more}configPatches: [{', '.join(patches)}]}}", namespace, day)


def merge(timeout: str, match: str = "context: SIDECAR_OUTBOUND") -> str:
    """A patch that sets the connect timeout of clusters."""
    return (
        f"{{applyTo: CLUSTER, match: {{{match}}}, patch: {{operation: MERGE, value: {{connect_timeout: {timeout}}}}}}}"
    )


_MATCH = f"{{routeConfiguration: {{name: '80', vhost: {{name: '{API}:80'}}}}}}"
_VALUE = "{route: {internalRedirectPolicy: {response_headers_to_copy: [x-a]}}}"
COPIED = f"{{applyTo: HTTP_ROUTE, match: {_MATCH}, patch: {{operation: MERGE, value: {_VALUE}}}}}"
"""A patch that copies a header, which Envoy takes once."""


class Meshed:
    """The mesh of three proxies, and what they get."""

    def __init__(self, *filters: Plain) -> None:
        self.world, self.nodes = start()
        self.world.apply_objects(*filters)

    def resources(self, namespace: str = "a") -> dict[str, dict[str, Any]]:
        return self.world.resources(self.nodes[namespace])

    def plain(self, type_url: str, name: str, namespace: str = "a") -> Plain:
        found: Plain = json_format.MessageToDict(any_pb2.Any.FromString(self.resources(namespace)[type_url][name].any))
        return found

    def timeout(self, namespace: str = "a", name: str = CLUSTER_NAME) -> str:
        return str(self.plain(CLUSTER, name, namespace)["connectTimeout"])

    def problems(self, name: str, namespace: str = "a") -> list[tuple[str, str]]:
        assert not self.world.failures
        return [(p.code, p.path) for p in envoy_filter_problems(self.world.mesh, ObjectKey(namespace, name))]


# -- whom they are for, and in which order ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "match", "is_for"),
    [
        ("", "context: ANY", True),
        ("", "context: GATEWAY", False),
        ("workloadSelector: {labels: {app: web}}, ", "context: SIDECAR_OUTBOUND", True),
        ("workloadSelector: {labels: {app: other}}, ", "context: SIDECAR_OUTBOUND", False),
        ("targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: web}], ", "context: ANY", False),
        ("", "proxy: {proxyVersion: '^1[.]32'}", True),
        ("", "proxy: {proxyVersion: '32'}", True),
        ("", "proxy: {proxyVersion: '^1[.]9'}", False),
        ("", "proxy: {metadata: {LINE: one}}", True),
        ("", "proxy: {metadata: {LINE: two}}", False),
        ("", f"cluster: {{service: {API}, portNumber: 80}}", True),
        ("", f"cluster: {{service: {API}, portNumber: 81}}", False),
        ("", "cluster: {subset: v1}", False),
        ("", f"cluster: {{name: '{CLUSTER_NAME}'}}", True),
    ],
)
def test_a_patch_is_for_those_that_it_matches(more: str, match: str, is_for: bool) -> None:
    assert (Meshed(envoy_filter("one", merge("3s", match), more=more)).timeout() == "3s") is is_for


@pytest.mark.parametrize(
    ("filters", "wins"),
    [
        ((envoy_filter("one", merge("1s"), namespace=MESH), envoy_filter("two", merge("2s"))), "2s"),
        (
            (envoy_filter("one", merge("1s"), namespace=MESH, more="priority: 1, "), envoy_filter("two", merge("2s"))),
            "1s",
        ),
        ((envoy_filter("one", merge("1s"), day=2), envoy_filter("two", merge("2s"), day=1)), "1s"),
        ((envoy_filter("one", merge("1s"), merge("2s")),), "2s"),
        ((envoy_filter("one", merge("1s"), namespace="b"),), "10s"),
    ],
)
def test_the_last_patch_wins(filters: tuple[Plain, ...], wins: str) -> None:
    assert Meshed(*filters).timeout() == wins
    assert Meshed(*reversed(filters)).timeout() == wins


def test_inbound_clusters_are_found_by_their_services() -> None:
    match = "context: SIDECAR_INBOUND, cluster: {service: web.a.svc.cluster.local}"
    found = Meshed(envoy_filter("one", merge("3s", match)))
    assert found.timeout(name="inbound|8080||") == "3s"
    assert found.timeout(name="InboundPassthroughCluster") == "10s"


def test_routes_of_a_gateway_are_found_by_the_port_that_its_servers_name() -> None:
    service = make(
        "Service",
        "edge",
        "{clusterIP: 10.96.0.9, selector: {istio: edge}, ports: [{port: 80, targetPort: 8080}]}",
        MESH,
    )
    value = "{request_headers_to_remove: [x]}"
    patch = f"{{applyTo: ROUTE_CONFIGURATION, match: {{routeConfiguration: {{portNumber: 80}}}}, patch: {{operation: MERGE, value: {value}}}}}"
    found = Meshed(service, envoy_filter("one", patch, namespace=MESH))
    assert found.plain(ROUTE, "http.8080", MESH)["requestHeadersToRemove"] == ["x"]


def test_inbound_routes_are_patched_in_their_listener() -> None:
    match = "{context: SIDECAR_INBOUND, routeConfiguration: {portNumber: 8080}}"
    patch = f"{{applyTo: VIRTUAL_HOST, match: {match}, patch: {{operation: MERGE, value: {{domains: [more]}}}}}}"
    chains = Meshed(envoy_filter("one", patch)).plain(LISTENER, "virtualInbound")["filterChains"]
    hosts = [
        f["typedConfig"]["routeConfig"]["virtualHosts"][0]["domains"]
        for c in chains
        for f in c["filters"]
        if f["name"] == HCM
    ]
    assert ["*", "more"] in hosts
    assert ["*"] in hosts


@pytest.mark.parametrize(
    ("context", "there"), [("ANY", True), ("SIDECAR_OUTBOUND", True), ("SIDECAR_INBOUND", True), ("GATEWAY", False)]
)
def test_a_cluster_is_added_to_the_proxies_that_the_context_says(context: str, there: bool) -> None:
    patch = f"{{applyTo: CLUSTER, match: {{context: {context}}}, patch: {{operation: ADD, value: {{name: own, type: STATIC}}}}}}"
    assert ("own" in Meshed(envoy_filter("one", patch)).resources()[CLUSTER]) is there


def test_an_extension_config_goes_to_who_asks_for_it() -> None:
    config = "name: one, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}"
    found = Meshed(
        envoy_filter("one", f"{{applyTo: EXTENSION_CONFIG, patch: {{operation: ADD, value: {{{config}}}}}}}")
    )
    assert list(found.resources()[EXTENSION]) == ["one"]
    assert "one" not in found.resources("b").get(EXTENSION, {})


def added(apply_to: str, operation: str, listener: str = "") -> ParsedPatch:
    match = EnvoyConfigObjectMatch(listener=ListenerMatch(name=listener)) if listener else EnvoyConfigObjectMatch()
    return ParsedPatch(PatchKey(ObjectKey("a", "one"), 0), apply_to, operation, match, None, "")


@pytest.mark.parametrize(
    ("patch", "touches"),
    [
        (added("LISTENER", "MERGE"), True),
        (added("LISTENER", "ADD"), False),
        (added("FILTER_CHAIN", "ADD"), True),
        (added("LISTENER", "MERGE", "other"), False),
        (added("LISTENER", "MERGE", "virtualOutbound"), True),
        (added("HTTP_ROUTE", "ADD", "other"), True),
    ],
)
def test_which_patches_can_touch_a_listener(patch: ParsedPatch, touches: bool) -> None:
    assert can_change(patch, LISTENER, "virtualOutbound", PatchFacet("SIDECAR_OUTBOUND")) is touches


# -- what is shared --------------------------------------------------------------------------------------------------------


def test_what_no_patch_can_touch_is_the_shared_resource_itself() -> None:
    found = Meshed(envoy_filter("one", merge("3s", f"cluster: {{service: {API}}}")))
    own, other = found.resources("a")[CLUSTER], found.resources("b")[CLUSTER]
    assert own[CLUSTER_NAME] is not other[CLUSTER_NAME]
    name = "outbound|80||web.a.svc.cluster.local"
    assert own[name] is other[name]


def test_proxies_with_other_patches_share_what_the_same_patches_touch() -> None:
    everywhere = envoy_filter("one", merge("3s", f"cluster: {{service: {API}}}"), namespace=MESH)
    found = Meshed(everywhere, envoy_filter("two", merge("4s", "cluster: {portNumber: 90}")))
    assert found.resources("a")[CLUSTER][CLUSTER_NAME].encoded == found.resources("b")[CLUSTER][CLUSTER_NAME].encoded


def test_proxies_without_patches_have_the_plan_of_a_mesh_without_any() -> None:
    found, bare = Meshed(envoy_filter("one", merge("3s"))), Meshed()
    assert proxy_plan(found.world.mesh, found.nodes["b"]) == proxy_plan(bare.world.mesh, bare.nodes["b"])


def test_an_edit_costs_the_resources_that_it_touches() -> None:
    found = Meshed(envoy_filter("one", merge("3s", f"cluster: {{service: {API}, portNumber: 80}}")))
    for namespace in found.nodes:
        found.resources(namespace)
    ran: list[str] = []
    found.world.mesh.on_run = lambda node: ran.append(str(node.fn))
    found.world.apply_objects(envoy_filter("one", merge("4s", f"cluster: {{service: {API}, portNumber: 80}}")))
    for namespace in found.nodes:
        found.resources(namespace)
    assert ran.count("patched_resource") == 1


def test_an_edit_for_one_workload_costs_the_same_however_many_others_have_filters_too() -> None:
    def filter_of(app: str, timeout: str) -> Plain:
        patches = (
            merge(timeout, "context: SIDECAR_INBOUND"),
            merge(timeout, f"cluster: {{service: {API}, portNumber: 80}}"),
        )
        return envoy_filter(f"for-{app}", *patches, more=f"workloadSelector: {{labels: {{app: {app}}}}}, ")

    def runs_beside(*others: str) -> Counter[str]:
        world, apps = World(), ("one", *others)
        world.apply_objects(*OBJECTS, *(filter_of(app, "3s") for app in apps))
        nodes = [world.connect(proxy("sidecar", app, "a", f"10.0.1.{at}", {"app": app})) for at, app in enumerate(apps)]
        for node in nodes:
            world.resources(node)
        ran: Counter[str] = Counter()
        world.mesh.on_run = lambda node: ran.update((str(node.fn),))
        world.apply_objects(filter_of("one", "4s"))
        for node in nodes:
            world.resources(node)
        return ran

    alone = runs_beside()
    assert alone["patched_resource"] == 2
    assert runs_beside(*(f"other-{number}" for number in range(9))) == alone


def test_which_patches_are_for_proxies_is_decided_once_for_all_that_say_the_same() -> None:
    found = Meshed(
        envoy_filter("one", merge("3s", "proxy: {proxyVersion: '^1[.]', metadata: {LINE: one}}"), namespace=MESH)
    )
    ran: Counter[str] = Counter()
    found.world.mesh.on_run = lambda node: ran.update((str(node.fn),))
    for number, line in enumerate(("one", "one", "two", "two", "two")):
        found.world.resources(
            found.world.connect(
                proxy("sidecar", f"more-{number}", "a", f"10.1.1.{number}", LINE=line, OTHER=str(number))
            )
        )
    assert ran["_patches_for"] == 2


def test_a_proxy_that_connects_does_not_look_for_what_is_in_vain() -> None:
    found = Meshed(envoy_filter("one", merge("3s")))
    found.world.mesh.watch(envoy_filter_problems, ObjectKey("a", "one"))
    ran: Counter[str] = Counter()
    found.world.mesh.on_run = lambda node: ran.update((str(node.fn),))
    found.world.connect(proxy("sidecar", "more-0", "a", "10.1.1.1"))
    assert not {"_reach", "_outcomes"} & ran.keys()


def test_a_filter_that_comes_has_nothing_looked_at_again_but_the_proxies_that_it_selects() -> None:
    apps = tuple(f"app-{number}" for number in range(9))
    found = Meshed(
        *(
            envoy_filter(f"for-{app}", merge("3s"), more=f"workloadSelector: {{labels: {{app: {app}}}}}, ")
            for app in apps
        )
    )
    for number, app in enumerate(apps):
        found.world.connect(proxy("sidecar", app, "a", f"10.1.1.{number}", {"app": app}))
    problems = found.world.mesh.watch(envoy_filter_problems, ObjectKey("a", f"for-{apps[0]}"))
    ran: Counter[str] = Counter()
    found.world.mesh.on_run = lambda node: ran.update((str(node.fn),))
    found.world.apply_objects(envoy_filter("one-more", merge("4s"), more="workloadSelector: {labels: {app: app-1}}, "))
    found.world.mesh.refresh(problems)
    assert ran["_reach_of"] == 1


# -- what is in vain -------------------------------------------------------------------------------------------------------

BUFFER = "name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 7}"
STRUCT = (
    "typed_config: {'@type': type.googleapis.com/xds.type.v3.TypedStruct, type_url: "
    "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, value: {strict_check_headers: [nonsense]}}"
)
ON_CORS = f"listener: {{filterChain: {{filter: {{name: {HCM}, subFilter: {{name: envoy.filters.http.cors}}}}}}}}"
ON_ROUTER = f"listener: {{filterChain: {{filter: {{name: {HCM}, subFilter: {{name: envoy.filters.http.router}}}}}}}}"


@pytest.mark.parametrize(
    ("patch", "problems"),
    [
        (merge("3s"), []),
        (merge("3s", "cluster: {service: nobody.test}"), [("patch-without-effect", "")]),
        (merge("3s", "proxy: {proxyVersion: '^9'}"), [("patch-without-effect", "")]),
        (merge("3s", "context: GATEWAY"), [("patch-without-effect", "")]),
        (
            "{applyTo: HTTP_FILTER, match: {MATCH}, patch: {operation: MERGE, value: {VALUE}}}",
            [("wrong-type", ".patch.value.typed_config.@type")],
        ),
        (
            f"{{applyTo: HTTP_FILTER, match: {{{ON_ROUTER}}}, patch: {{operation: INSERT_AFTER, value: {{{BUFFER}}}}}}}",
            [("behind-last-filter", ".patch.value")],
        ),
        (
            "{applyTo: CLUSTER, match: {cluster: {portNumber: 80, service: api.b.svc.cluster.local}}, patch: {operation: MERGE, value: "
            "{transport_socket: {name: x, typed_config: "
            "{'@type': type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}}}}}",
            [("no-such-socket", ".patch.value.transport_socket.name")],
        ),
        (
            f"{{applyTo: HTTP_FILTER, match: {{{ON_ROUTER}}}, patch: {{operation: MERGE, value: {{{STRUCT}}}}}}}",
            [("refused-by-envoy", ".patch.value.typed_config")],
        ),
        ("{applyTo: CLUSTER, patch: {operation: MERGE, value: {nobody: 1}}}", []),
        ("{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {stats_flush_interval: 7s}}}", []),
    ],
)
def test_what_is_in_vain_is_told(patch: str, problems: list[tuple[str, str]]) -> None:
    written = patch.replace("{MATCH}", f"{{{ON_CORS}}}").replace("{VALUE}", f"{{{BUFFER}}}")
    found = Meshed(envoy_filter("one", written)).problems("one")
    assert found == [(code, f"spec.configPatches[0]{path}") for code, path in problems]


def test_what_is_merged_may_not_leave_what_envoy_refuses_and_the_rest_is_applied() -> None:
    """A header is well alone, and refused beside the same one."""
    found = Meshed(envoy_filter("one", COPIED, COPIED, merge("3s")))
    hosts = found.plain(ROUTE, "80")["virtualHosts"]
    (route,) = next(host["routes"] for host in hosts if host["name"] == f"{API}:80")
    assert route["route"]["internalRedirectPolicy"] == {"responseHeadersToCopy": ["x-a"]}
    assert found.timeout() == "3s"
    place = "spec.configPatches[1].patch.value.route.internalRedirectPolicy.response_headers_to_copy"
    assert found.problems("one") == [("refused-by-envoy", place)]


def test_nobody_is_told_where_no_proxy_is_selected() -> None:
    found = Meshed(envoy_filter("one", merge("3s", "cluster: {name: x}"), namespace="empty"))
    assert found.problems("one", "empty") == []


def test_a_selector_without_workloads_is_told() -> None:
    found = Meshed(envoy_filter("one", merge("3s"), more="workloadSelector: {labels: {app: nobody}}, "))
    assert found.problems("one") == [("selector-without-workloads", "spec.workloadSelector")]


# -- why -------------------------------------------------------------------------------------------------------------------


def test_the_patches_of_a_resource_are_named() -> None:
    found = Meshed(envoy_filter("one", merge("3s", "cluster: {name: x}"), merge("4s", f"cluster: {{service: {API}}}")))
    found.resources()

    def patches(name: str) -> set[PatchKey]:
        groups = proxy_plan(found.world.mesh, found.nodes["a"]).groups[CLUSTER]
        return {key for group in groups for key in find_patches(found.world.mesh, group.fn, group.args, name)}

    assert patches(CLUSTER_NAME) == {PatchKey(ObjectKey("a", "one"), 1)}
    assert patches("outbound|80||web.a.svc.cluster.local") == set()


def test_what_became_of_patches_is_counted_where_it_is_asked_for() -> None:
    mesh = Meshed(envoy_filter("one", COPIED, COPIED, merge("3s")))
    mesh.resources()
    metrics = Metrics()
    status = PatchMetrics(mesh.world.mesh, metrics)
    status.check()
    assert series(metrics) == {("cluster", "applied"): "1", ("route", "applied"): "1", ("route", "error"): "1"}
    mesh.world.commit([(ENVOY_FILTER.table_name, ObjectKey("a", "one"), None)])
    status.check()
    assert set(series(metrics).values()) == {"0"}


def series(metrics: Metrics) -> dict[tuple[str, str], str]:
    """Returns the statuses of the filter a/one, by what is patched and how that went."""
    form = r'^pilot_envoy_filter_status\{name="a/one",patch="(\w+)",result="(\w+)"\} (\S+)$'
    found = re.findall(form, metrics.exposition().decode(), re.MULTILINE)
    return {(patch, result): value for patch, result, value in found}


@pytest.mark.parametrize(("name", "position", "there"), [("f", 0, True), ("f", 1, False), ("gone", 0, False)])
def test_a_patch_that_is_gone_is_none(name: str, position: int, there: bool) -> None:
    mesh = world(envoy_filter("f", merge("1s"))).mesh
    assert (configured_patch(mesh, PatchKey(ObjectKey("a", name), position)) is not None) == there


# -- what is merged into what -----------------------------------------------------------------------------------------------

TLS = "envoy.transport_sockets.tls"
CONTEXT = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
TCP = "envoy.filters.network.tcp_proxy"


def test_a_transport_socket_is_merged_along_with_the_rest_of_a_patch() -> None:
    value = (
        f"{{connect_timeout: 3s, transport_socket: {{name: {TLS}, typed_config: {{'@type': {CONTEXT}, sni: mine}}}}}}"
    )
    match = f"{{context: SIDECAR_OUTBOUND, cluster: {{name: '{CLUSTER_NAME}'}}}}"
    rule = make("DestinationRule", "plain", f"{{host: {API}, trafficPolicy: {{tls: {{mode: SIMPLE}}}}}}")
    filtered = envoy_filter("one", f"{{applyTo: CLUSTER, match: {match}, patch: {{operation: MERGE, value: {value}}}}}")
    found = Meshed(rule, filtered).plain(CLUSTER, CLUSTER_NAME)
    assert (
        found["connectTimeout"],
        found["transportSocket"]["name"],
        found["transportSocket"]["typedConfig"]["sni"],
    ) == ("3s", TLS, "mine")


def test_what_is_merged_into_a_named_network_filter_leaves_others_alone() -> None:
    match = (
        f"{{context: SIDECAR_OUTBOUND, listener: {{name: virtualOutbound, filterChain: {{filter: {{name: {TCP}}}}}}}}}"
    )
    echo = "{name: before, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}"
    found = Meshed(
        envoy_filter(
            "one",
            f"{{applyTo: NETWORK_FILTER, match: {match}, patch: {{operation: INSERT_BEFORE, value: {echo}}}}}",
            f"{{applyTo: NETWORK_FILTER, match: {match}, patch: {{operation: MERGE, value: {{name: mine}}}}}}",
        )
    )
    names = [
        [f["name"] for f in chain["filters"]][-2:] for chain in found.plain(LISTENER, "virtualOutbound")["filterChains"]
    ]
    assert ["before", "mine"] in names
    assert found.problems("one") == []
