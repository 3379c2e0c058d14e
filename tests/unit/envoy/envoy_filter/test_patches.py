"""Matching, order, sharing and problems of EnvoyFilter patches."""

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
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import CLUSTER, EXTENSION, LISTENER, ROUTE
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.proxies.patches import configured_patch
from testing.edits.random_envoy_filters import API, start_mesh
from testing.edits.random_envoy_filters import MESH as OBJECTS
from testing.mesh.listeners import HCM
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import World, proxy

CLUSTER_NAME = f"outbound|80||{API}"
MESH = "istio-system"


def envoy_filter(name: str, *patches: str, namespace: str = "a", more: str = "", day: int = 1) -> Plain:
    return make("EnvoyFilter", name, f"{{{more}configPatches: [{', '.join(patches)}]}}", namespace, day)


def merge(timeout: str, match: str = "context: SIDECAR_OUTBOUND") -> str:
    """Return a patch that sets the connect timeout of clusters."""
    return (
        f"{{applyTo: CLUSTER, match: {{{match}}}, patch: {{operation: MERGE, value: {{connect_timeout: {timeout}}}}}}}"
    )


_MATCH = f"{{routeConfiguration: {{name: '80', vhost: {{name: '{API}:80'}}}}}}"
_VALUE = "{route: {internalRedirectPolicy: {response_headers_to_copy: [x-a]}}}"
COPIED = f"{{applyTo: HTTP_ROUTE, match: {_MATCH}, patch: {{operation: MERGE, value: {_VALUE}}}}}"
"""A patch that adds a header name which Envoy accepts only once."""


class FilteredMesh:
    """A mesh of three proxies with EnvoyFilters."""

    def __init__(self, *filters: Plain) -> None:
        self.world, self.nodes = start_mesh()
        self.world.apply_objects(*filters)

    def resources(self, namespace: str = "a") -> dict[str, dict[str, Any]]:
        return self.world.resources(self.nodes[namespace])

    def plain(self, type_url: str, name: str, namespace: str = "a") -> Plain:
        message: Plain = json_format.MessageToDict(
            any_pb2.Any.FromString(self.resources(namespace)[type_url][name].any)
        )
        return message

    def timeout(self, namespace: str = "a", name: str = CLUSTER_NAME) -> str:
        return str(self.plain(CLUSTER, name, namespace)["connectTimeout"])

    def problems(self, name: str, namespace: str = "a") -> list[tuple[str, str]]:
        assert not self.world.failures
        return [(p.code, p.path) for p in envoy_filter_problems(self.world.mesh, ObjectKey(namespace, name))]


# -- selection and order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "match", "applies"),
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
def test_patch_match(more: str, match: str, applies: bool) -> None:
    assert (FilteredMesh(envoy_filter("one", merge("3s", match), more=more)).timeout() == "3s") is applies


@pytest.mark.parametrize(
    ("filters", "timeout"),
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
def test_last_patch_wins(filters: tuple[Plain, ...], timeout: str) -> None:
    assert FilteredMesh(*filters).timeout() == timeout
    assert FilteredMesh(*reversed(filters)).timeout() == timeout


def test_inbound_clusters_match_by_service() -> None:
    match = "context: SIDECAR_INBOUND, cluster: {service: web.a.svc.cluster.local}"
    mesh = FilteredMesh(envoy_filter("one", merge("3s", match)))
    assert mesh.timeout(name="inbound|8080||") == "3s"
    assert mesh.timeout(name="InboundPassthroughCluster") == "10s"


def test_gateway_routes_match_by_server_port() -> None:
    service = make(
        "Service",
        "edge",
        "{clusterIP: 10.96.0.9, selector: {istio: edge}, ports: [{port: 80, targetPort: 8080}]}",
        MESH,
    )
    value = "{request_headers_to_remove: [x]}"
    patch = f"{{applyTo: ROUTE_CONFIGURATION, match: {{routeConfiguration: {{portNumber: 80}}}}, patch: {{operation: MERGE, value: {value}}}}}"
    mesh = FilteredMesh(service, envoy_filter("one", patch, namespace=MESH))
    assert mesh.plain(ROUTE, "http.8080", MESH)["requestHeadersToRemove"] == ["x"]


def test_inbound_routes_are_patched_in_the_listener() -> None:
    match = "{context: SIDECAR_INBOUND, routeConfiguration: {portNumber: 8080}}"
    patch = f"{{applyTo: VIRTUAL_HOST, match: {match}, patch: {{operation: MERGE, value: {{domains: [more]}}}}}}"
    chains = FilteredMesh(envoy_filter("one", patch)).plain(LISTENER, "virtualInbound")["filterChains"]
    hosts = [
        f["typedConfig"]["routeConfig"]["virtualHosts"][0]["domains"]
        for c in chains
        for f in c["filters"]
        if f["name"] == HCM
    ]
    assert ["*", "more"] in hosts
    assert ["*"] in hosts


@pytest.mark.parametrize(
    ("context", "exists"), [("ANY", True), ("SIDECAR_OUTBOUND", True), ("SIDECAR_INBOUND", True), ("GATEWAY", False)]
)
def test_cluster_is_added_in_the_patch_context(context: str, exists: bool) -> None:
    patch = f"{{applyTo: CLUSTER, match: {{context: {context}}}, patch: {{operation: ADD, value: {{name: own, type: STATIC}}}}}}"
    assert ("own" in FilteredMesh(envoy_filter("one", patch)).resources()[CLUSTER]) is exists


def test_extension_config_is_sent_to_selected_proxies() -> None:
    config = "name: one, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}"
    mesh = FilteredMesh(
        envoy_filter("one", f"{{applyTo: EXTENSION_CONFIG, patch: {{operation: ADD, value: {{{config}}}}}}}")
    )
    assert list(mesh.resources()[EXTENSION]) == ["one"]
    assert "one" not in mesh.resources("b").get(EXTENSION, {})


def parsed_patch(apply_to: str, operation: str, listener: str = "") -> ParsedPatch:
    match = EnvoyConfigObjectMatch(listener=ListenerMatch(name=listener)) if listener else EnvoyConfigObjectMatch()
    return ParsedPatch(PatchKey(ObjectKey("a", "one"), 0), apply_to, operation, match, None, "")


@pytest.mark.parametrize(
    ("patch", "touches"),
    [
        (parsed_patch("LISTENER", "MERGE"), True),
        (parsed_patch("LISTENER", "ADD"), False),
        (parsed_patch("FILTER_CHAIN", "ADD"), True),
        (parsed_patch("LISTENER", "MERGE", "other"), False),
        (parsed_patch("LISTENER", "MERGE", "virtualOutbound"), True),
        (parsed_patch("HTTP_ROUTE", "ADD", "other"), True),
    ],
)
def test_patches_that_can_change_a_listener(patch: ParsedPatch, touches: bool) -> None:
    assert can_change(patch, LISTENER, "virtualOutbound", PatchFacet("SIDECAR_OUTBOUND")) is touches


# -- sharing ---------------------------------------------------------------------------------------------------------------


def test_unpatched_resource_is_shared() -> None:
    mesh = FilteredMesh(envoy_filter("one", merge("3s", f"cluster: {{service: {API}}}")))
    patched, unpatched = mesh.resources("a")[CLUSTER], mesh.resources("b")[CLUSTER]
    assert patched[CLUSTER_NAME] is not unpatched[CLUSTER_NAME]
    name = "outbound|80||web.a.svc.cluster.local"
    assert patched[name] is unpatched[name]


def test_resources_with_equal_patches_are_equal() -> None:
    mesh_filter = envoy_filter("one", merge("3s", f"cluster: {{service: {API}}}"), namespace=MESH)
    mesh = FilteredMesh(mesh_filter, envoy_filter("two", merge("4s", "cluster: {portNumber: 90}")))
    assert mesh.resources("a")[CLUSTER][CLUSTER_NAME].encoded == mesh.resources("b")[CLUSTER][CLUSTER_NAME].encoded


def test_proxies_without_patches_have_an_unpatched_plan() -> None:
    mesh, bare = FilteredMesh(envoy_filter("one", merge("3s"))), FilteredMesh()
    assert proxy_plan(mesh.world.mesh, mesh.nodes["b"]) == proxy_plan(bare.world.mesh, bare.nodes["b"])


def test_edit_patches_only_the_matching_resources() -> None:
    mesh = FilteredMesh(envoy_filter("one", merge("3s", f"cluster: {{service: {API}, portNumber: 80}}")))
    for namespace in mesh.nodes:
        mesh.resources(namespace)
    runs: list[str] = []
    mesh.world.mesh.on_run = lambda node: runs.append(str(node.fn))
    mesh.world.apply_objects(envoy_filter("one", merge("4s", f"cluster: {{service: {API}, portNumber: 80}}")))
    for namespace in mesh.nodes:
        mesh.resources(namespace)
    assert runs.count("patched_resource") == 1


def test_edit_cost_is_independent_of_other_filters() -> None:
    def filter_of(app: str, timeout: str) -> Plain:
        patches = (
            merge(timeout, "context: SIDECAR_INBOUND"),
            merge(timeout, f"cluster: {{service: {API}, portNumber: 80}}"),
        )
        return envoy_filter(f"for-{app}", *patches, more=f"workloadSelector: {{labels: {{app: {app}}}}}, ")

    def runs_beside(*others: str) -> Counter[str]:
        world, apps = World(), ("one", *others)
        world.apply_objects(*OBJECTS, *(filter_of(app, "3s") for app in apps))
        nodes = [
            world.connect(proxy("sidecar", app, "a", f"10.0.1.{index}", {"app": app})) for index, app in enumerate(apps)
        ]
        for node in nodes:
            world.resources(node)
        runs: Counter[str] = Counter()
        world.mesh.on_run = lambda node: runs.update((str(node.fn),))
        world.apply_objects(filter_of("one", "4s"))
        for node in nodes:
            world.resources(node)
        return runs

    baseline = runs_beside()
    assert baseline["patched_resource"] == 2
    assert runs_beside(*(f"other-{number}" for number in range(9))) == baseline


def test_patch_selection_is_shared_between_equal_proxies() -> None:
    mesh = FilteredMesh(
        envoy_filter("one", merge("3s", "proxy: {proxyVersion: '^1[.]', metadata: {LINE: one}}"), namespace=MESH)
    )
    runs: Counter[str] = Counter()
    mesh.world.mesh.on_run = lambda node: runs.update((str(node.fn),))
    for number, line in enumerate(("one", "one", "two", "two", "two")):
        mesh.world.resources(
            mesh.world.connect(
                proxy("sidecar", f"more-{number}", "a", f"10.1.1.{number}", LINE=line, OTHER=str(number))
            )
        )
    assert runs["_patches_for"] == 2


def test_new_proxy_does_not_evaluate_filter_problems() -> None:
    mesh = FilteredMesh(envoy_filter("one", merge("3s")))
    mesh.world.mesh.watch(envoy_filter_problems, ObjectKey("a", "one"))
    runs: Counter[str] = Counter()
    mesh.world.mesh.on_run = lambda node: runs.update((str(node.fn),))
    mesh.world.connect(proxy("sidecar", "more-0", "a", "10.1.1.1"))
    assert not {"_reach", "_outcomes"} & runs.keys()


def test_new_filter_reevaluates_only_selected_proxies() -> None:
    apps = tuple(f"app-{number}" for number in range(9))
    mesh = FilteredMesh(
        *(
            envoy_filter(f"for-{app}", merge("3s"), more=f"workloadSelector: {{labels: {{app: {app}}}}}, ")
            for app in apps
        )
    )
    for number, app in enumerate(apps):
        mesh.world.connect(proxy("sidecar", app, "a", f"10.1.1.{number}", {"app": app}))
    problems = mesh.world.mesh.watch(envoy_filter_problems, ObjectKey("a", f"for-{apps[0]}"))
    runs: Counter[str] = Counter()
    mesh.world.mesh.on_run = lambda node: runs.update((str(node.fn),))
    mesh.world.apply_objects(envoy_filter("one-more", merge("4s"), more="workloadSelector: {labels: {app: app-1}}, "))
    mesh.world.mesh.refresh(problems)
    assert runs["_reach_of"] == 1


# -- problems --------------------------------------------------------------------------------------------------------------

BUFFER = "name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 7}"
STRUCT = (
    "typed_config: {'@type': type.googleapis.com/xds.type.v3.TypedStruct, type_url: "
    "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, value: {strict_check_headers: [nonsense]}}"
)
SECOND = "name: second, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}"
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
            f"{{applyTo: HTTP_FILTER, match: {{{ON_ROUTER}}}, patch: {{operation: INSERT_BEFORE, value: {{{SECOND}}}}}}}",
            [("behind-last-filter", ".patch.value")],
        ),
        (
            f"{{applyTo: HTTP_FILTER, match: {{{ON_ROUTER}}}, patch: {{operation: REMOVE}}}}",
            [("behind-last-filter", ".patch")],
        ),
        (
            f"{{applyTo: HTTP_FILTER, match: {{{ON_ROUTER}}}, patch: {{operation: REPLACE, value: {{{SECOND}}}}}}}",
            [],
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
def test_ineffective_patches_are_reported(patch: str, problems: list[tuple[str, str]]) -> None:
    config_patch = patch.replace("{MATCH}", f"{{{ON_CORS}}}").replace("{VALUE}", f"{{{BUFFER}}}")
    actual = FilteredMesh(envoy_filter("one", config_patch)).problems("one")
    assert actual == [(code, f"spec.configPatches[0]{path}") for code, path in problems]


def test_patch_with_invalid_result_is_skipped() -> None:
    """Envoy rejects a list with a repeated header name."""
    mesh = FilteredMesh(envoy_filter("one", COPIED, COPIED, merge("3s")))
    hosts = mesh.plain(ROUTE, "80")["virtualHosts"]
    (route,) = next(host["routes"] for host in hosts if host["name"] == f"{API}:80")
    assert route["route"]["internalRedirectPolicy"] == {"responseHeadersToCopy": ["x-a"]}
    assert mesh.timeout() == "3s"
    place = "spec.configPatches[1].patch.value.route.internalRedirectPolicy.response_headers_to_copy"
    assert mesh.problems("one") == [("refused-by-envoy", place)]


CHAIN = (
    "{applyTo: FILTER_CHAIN, match: {context: SIDECAR_INBOUND, listener: {name: virtualInbound}}, patch: {operation: ADD, "
    "value: {name: NAME, filter_chain_match: {destination_port: PORT}, filters: [{name: envoy.filters.network.echo, "
    "typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}]}}}"
)


def test_filter_chain_with_the_match_of_another_is_skipped() -> None:
    patches = [CHAIN.replace("NAME", name).replace("PORT", port) for name, port in (("x", "1"), ("y", "1"), ("z", "2"))]
    mesh = FilteredMesh(envoy_filter("one", *patches))
    names = [chain["name"] for chain in mesh.plain(LISTENER, "virtualInbound")["filterChains"]]
    assert names[-2:] == ["x", "z"]
    assert mesh.problems("one") == [("repeated-match", "spec.configPatches[1].patch.value.filter_chain_match")]


HOST = (
    "{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_OUTBOUND}, patch: {operation: ADD, "
    "value: {name: NAME, domains: [DOMAIN], routes: [{match: {prefix: /}, direct_response: {status: 204}}]}}}"
)


def test_patch_that_breaks_a_cluster_is_skipped() -> None:
    """A load balancer that only clusters of another type provide makes Envoy reject the cluster."""
    broken = "{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: VALUE}}"
    mesh = FilteredMesh(
        envoy_filter("one", broken.replace("VALUE", "{lb_policy: CLUSTER_PROVIDED}"), merge("3s")),
    )
    cluster = mesh.plain(CLUSTER, f"outbound|80||{API}")
    assert "lbPolicy" not in cluster or cluster["lbPolicy"] != "CLUSTER_PROVIDED"
    assert cluster["connectTimeout"] == "3s"
    assert mesh.problems("one") == [("refused-by-envoy", "spec.configPatches[0].patch.value.lb_policy")]


def test_virtual_host_with_a_domain_of_another_is_skipped() -> None:
    """Envoy rejects a route configuration with a repeated domain."""
    hosts = (("x", "a.com"), ("y", "A.com"), ("z", f"{API}"), ("w", "'*'"), ("v", "b.com"))
    mesh = FilteredMesh(envoy_filter("one", *(HOST.replace("NAME", n).replace("DOMAIN", d) for n, d in hosts)))
    names = [host["name"] for host in mesh.plain(ROUTE, "80")["virtualHosts"]]
    assert [name for name in names if name in "xyzwv"] == ["x", "v"]
    place = "spec.configPatches[{}].patch.value.domains"
    assert mesh.problems("one") == [("repeated-domain", place.format(number)) for number in (1, 2, 3)]


def test_filter_without_proxies_has_no_problems() -> None:
    mesh = FilteredMesh(envoy_filter("one", merge("3s", "cluster: {name: x}"), namespace="empty"))
    assert mesh.problems("one", "empty") == []


def test_selector_without_workloads_is_reported() -> None:
    mesh = FilteredMesh(envoy_filter("one", merge("3s"), more="workloadSelector: {labels: {app: nobody}}, "))
    assert mesh.problems("one") == [("selector-without-workloads", "spec.workloadSelector")]


# -- explanation and metrics -----------------------------------------------------------------------------------------------


def test_patches_of_a_resource() -> None:
    mesh = FilteredMesh(
        envoy_filter("one", merge("3s", "cluster: {name: x}"), merge("4s", f"cluster: {{service: {API}}}"))
    )
    mesh.resources()

    def patches(name: str) -> set[PatchKey]:
        groups = proxy_plan(mesh.world.mesh, mesh.nodes["a"]).groups[CLUSTER]
        return {key for group in groups for key in find_patches(mesh.world.mesh, group.fn, group.args, name)}

    assert patches(CLUSTER_NAME) == {PatchKey(ObjectKey("a", "one"), 1)}
    assert patches("outbound|80||web.a.svc.cluster.local") == set()


def test_patch_status_metrics() -> None:
    mesh = FilteredMesh(envoy_filter("one", COPIED, COPIED, merge("3s")))
    mesh.resources()
    metrics = Metrics()
    status = PatchMetrics(mesh.world.mesh, metrics)
    status.check()
    assert status_series(metrics) == {("cluster", "applied"): "1", ("route", "applied"): "1", ("route", "error"): "1"}
    mesh.world.commit([(ENVOY_FILTER.table_name, ObjectKey("a", "one"), None)])
    status.check()
    assert set(status_series(metrics).values()) == {"0"}


def status_series(metrics: Metrics) -> dict[tuple[str, str], str]:
    """Return the status values of the filter a/one by resource type and result."""
    pattern = r'^pilot_envoy_filter_status\{name="a/one",patch="(\w+)",result="(\w+)"\} (\S+)$'
    samples = re.findall(pattern, metrics.exposition().decode(), re.MULTILINE)
    return {(patch, result): value for patch, result, value in samples}


@pytest.mark.parametrize(("name", "position", "exists"), [("f", 0, True), ("f", 1, False), ("gone", 0, False)])
def test_configured_patch_exists(name: str, position: int, exists: bool) -> None:
    mesh = world(envoy_filter("f", merge("1s"))).mesh
    assert (configured_patch(mesh, PatchKey(ObjectKey("a", name), position)) is not None) == exists


# -- merging ----------------------------------------------------------------------------------------------------------------

TLS = "envoy.transport_sockets.tls"
CONTEXT = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
TCP = "envoy.filters.network.tcp_proxy"


def test_transport_socket_is_merged_with_the_other_fields() -> None:
    value = (
        f"{{connect_timeout: 3s, transport_socket: {{name: {TLS}, typed_config: {{'@type': {CONTEXT}, sni: mine}}}}}}"
    )
    match = f"{{context: SIDECAR_OUTBOUND, cluster: {{name: '{CLUSTER_NAME}'}}}}"
    rule = make("DestinationRule", "plain", f"{{host: {API}, trafficPolicy: {{tls: {{mode: SIMPLE}}}}}}")
    filtered = envoy_filter("one", f"{{applyTo: CLUSTER, match: {match}, patch: {{operation: MERGE, value: {value}}}}}")
    cluster = FilteredMesh(rule, filtered).plain(CLUSTER, CLUSTER_NAME)
    assert (
        cluster["connectTimeout"],
        cluster["transportSocket"]["name"],
        cluster["transportSocket"]["typedConfig"]["sni"],
    ) == ("3s", TLS, "mine")


def test_network_filter_merge_leaves_other_filters_unchanged() -> None:
    match = (
        f"{{context: SIDECAR_OUTBOUND, listener: {{name: virtualOutbound, filterChain: {{filter: {{name: {TCP}}}}}}}}}"
    )
    sni = "type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster"
    before = f"{{name: before, typed_config: {{'@type': {sni}}}}}"
    mesh = FilteredMesh(
        envoy_filter(
            "one",
            f"{{applyTo: NETWORK_FILTER, match: {match}, patch: {{operation: INSERT_BEFORE, value: {before}}}}}",
            f"{{applyTo: NETWORK_FILTER, match: {match}, patch: {{operation: MERGE, value: {{name: mine}}}}}}",
        )
    )
    names = [
        [f["name"] for f in chain["filters"]][-2:] for chain in mesh.plain(LISTENER, "virtualOutbound")["filterChains"]
    ]
    assert ["before", "mine"] in names
    assert mesh.problems("one") == []
