from __future__ import annotations

from typing import Any

import pytest
import yaml

from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.virtual_service import HTTPRoute, StringMatch
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.ingest.cluster.watched_kinds import read_kinds
from pilot.ingest.decode import OWN, Decoded, DocumentOrigin, Entry, decode_document, decode_object


def decode_one(text: str, **options: Any) -> Entry:
    decoded = decode_document(yaml.safe_load(text), **options)
    assert not decoded.problems
    (entry,) = decoded.entries
    return entry


VIRTUAL_SERVICE = "apiVersion: networking.istio.io/v1\nkind: VirtualService\n"
ROUTE = "http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: reviews, port: {number: 9080}}}], timeout: 1.5s}]"


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3"])
def test_versions_of_a_kind_decode_alike(version: str) -> None:
    text = f"apiVersion: networking.istio.io/{version}\nkind: VirtualService\nmetadata: {{name: a, namespace: shop}}\nspec: {{hosts: [a], {ROUTE}}}"
    entry = decode_one(text)
    assert (entry.table, entry.key) == ("networking.istio.io/VirtualService", ObjectKey("shop", "a"))
    (route,) = entry.object.spec.http
    assert isinstance(route, HTTPRoute)
    assert route.match[0].uri == StringMatch(prefix="/a")
    assert route.timeout == 1_500_000_000
    assert route.route[0].destination.port.number == 9080
    assert route.retries is None


def test_decoded_metadata() -> None:
    row = decode_one(
        """
        apiVersion: v1
        kind: Service
        metadata:
          name: a
          labels: {app: a}
          annotations: {networking.istio.io/exportTo: ".", kubernetes.io/ingress.class: istio, example.com/x: y}
          resourceVersion: "7"
          creationTimestamp: "2026-01-01T02:00:00.5+02:00"
        """
    ).object
    assert (str(row.kind), row.namespace, row.name) == ("Service", "default", "a")
    assert row.labels == {"app": "a"}
    assert row.annotations == {"networking.istio.io/exportTo": ".", "kubernetes.io/ingress.class": "istio"}
    assert row.created == "2026-01-01T00:00:00Z"


def test_kubernetes_objects_include_their_status() -> None:
    pod = decode_one(
        """
        apiVersion: v1
        kind: Pod
        metadata:
          name: a-5d-x
          namespace: shop
          generateName: a-5d-
          deletionTimestamp: "2026-01-01T00:00:00Z"
          ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: a-5d, uid: "1", controller: true}]
        spec: {serviceAccountName: a, nodeName: n, containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}], volumes: [{}]}
        status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}], conditions: [{type: Ready, status: "True"}], qosClass: Burstable}
        """
    ).object.spec
    assert (pod.service_account_name, pod.node_name, pod.containers[0].ports[0].container_port) == ("a", "n", 80)
    assert (pod.status.phase, pod.status.pod_ip, pod.status.pod_ips[0].ip) == ("Running", "10.0.0.1", "10.0.0.1")
    assert (pod.generate_name, pod.deletion_timestamp, pod.owner_references[0].name) == (
        "a-5d-",
        "2026-01-01T00:00:00Z",
        "a-5d",
    )
    service = decode_one(
        """
        apiVersion: v1
        kind: Service
        metadata: {name: a}
        spec: {clusterIP: None, clusterIPs: [None], externalIPs: [1.2.3.4], ports: [{port: 80, targetPort: http, appProtocol: kubernetes.io/h2c}]}
        status: {loadBalancer: {ingress: [{ip: 1.1.1.1}, {hostname: a.com}]}}
        """
    ).object.spec
    assert (service.cluster_ip, service.external_ips, service.ports[0].target_port) == ("None", ("1.2.3.4",), "http")
    assert service.status.load_balancer.ingress[1].hostname == "a.com"


def test_cluster_scoped_kinds_have_no_namespace() -> None:
    assert decode_one(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n, namespace: x}\nspec: {podCIDR: 1.1.1.0/24}"
    ).key == RegistryKey("Kubernetes", "", "n")
    assert decode_one("apiVersion: v1\nkind: Namespace\nmetadata: {name: n, labels: {a: b}}").object.labels == {
        "a": "b"
    }


def test_secret_data_is_decoded_to_bytes() -> None:
    row = decode_one(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: 'aGVs\n\n bG8=', b: ''}\nstringData: {b: text, c: ä}"
    ).object
    assert row.spec.data == {"a": b"hello", "b": b"text", "c": "ä".encode()}
    assert "hello" not in repr(row.spec)


def test_service_entry_status() -> None:
    entry = decode_one(
        """
        apiVersion: networking.istio.io/v1
        kind: ServiceEntry
        metadata: {name: a}
        spec: {hosts: [a.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}
        status: {addresses: [{value: 240.240.0.1, host: a.com}], conditions: [{type: X}]}
        """
    ).object.spec
    assert [(a.value, a.host) for a in entry.status.addresses] == [("240.240.0.1", "a.com")]


def test_null_is_absent() -> None:
    text = (
        f"{VIRTUAL_SERVICE}metadata: {{name: a, labels: null}}\nspec: {{hosts: [a], gateways: null, tls: ~, {ROUTE}}}"
    )
    assert decode_one(text).object.spec.gateways == ()
    assert (
        decode_one(
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selector: null, ports: null}"
        ).object.spec.selector
        == {}
    )


def test_empty_header_match_is_a_presence_match() -> None:
    route = "match: [{headers: {x: , y: {}}}], redirect: {uri: /}"
    (route,) = decode_one(
        f"{VIRTUAL_SERVICE}metadata: {{name: a}}\nspec: {{hosts: [a], http: [{{{route}}}]}}"
    ).object.spec.http
    assert route.match[0].headers == {"x": StringMatch(), "y": StringMatch()}


def test_lists_of_objects() -> None:
    item = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    invalid = {"metadata": {"name": "b"}, "spec": {"ports": [{"port": 0}]}}
    nested = {"apiVersion": "v1", "kind": "ServiceList", "items": [invalid]}
    lines = {"items[1].items[0].spec.ports[0].port": 42}
    decoded = decode_document({"apiVersion": "v1", "kind": "List", "items": [item, nested]}, line_of=lines.__getitem__)
    assert [entry.key.name for entry in decoded.entries] == ["a"]
    assert decoded.refused == ((SERVICE.table_name, RegistryKey("Kubernetes", "default", "b")),)
    (problem,) = decoded.problems
    assert (problem.object, problem.path, problem.line) == (
        ObjectRef(GroupKind("", "Service"), "default", "b"),
        "spec.ports[0].port",
        42,
    )


@pytest.mark.parametrize("item", [None, 3, "a", []])
def test_non_object_list_item_is_reported(item: Any) -> None:
    valid = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    decoded = decode_document({"apiVersion": "v1", "kind": "ServiceList", "items": [item, valid]})
    assert [entry.key.name for entry in decoded.entries] == ["a"]
    assert [(problem.code, problem.path) for problem in decoded.problems] == [("not-an-object", "items[0]")]


def test_invalid_object_is_rejected_by_key() -> None:
    kind = CATALOGUE.find(GroupKind("", "Service"))
    assert kind is not None
    metadata = {"name": "a", "namespace": "shop"}
    valid = decode_object(kind, {"metadata": metadata, "spec": {"ports": [{"port": 80}]}}, OWN)
    invalid = decode_object(kind, {"metadata": metadata, "spec": {"ports": [{"port": 0}]}}, OWN)
    row = (SERVICE.table_name, RegistryKey("Kubernetes", "shop", "a"))
    assert ([(e.table, e.key) for e in valid.entries], valid.refused) == ([row], ())
    assert (invalid.entries, invalid.refused) == ((), (row,))


@pytest.mark.parametrize(
    ("revision", "label", "accepted"), [("", "x", True), ("x", "x", True), ("x", "", True), ("x", "y", False)]
)
def test_configuration_of_another_revision_is_ignored(revision: str, label: str, accepted: bool) -> None:
    metadata = {"name": "a", "labels": {"istio.io/rev": label} if label else {}}
    plain = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": metadata,
        "spec": {"egress": [{"hosts": ["./*"]}]},
    }
    decoded = decode_document(plain, origin=DocumentOrigin(revision=revision))
    assert bool(decoded.entries) == accepted
    assert not decoded.problems
    assert not decoded.refused


def test_registry_objects_ignore_the_revision_label() -> None:
    metadata = {"name": "a", "labels": {"istio.io/rev": "y"}}
    assert decode_document(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata}, origin=DocumentOrigin(revision="x")
    ).entries


@pytest.mark.parametrize("kind", ["ServiceAccount", "Deployment", "CustomResourceDefinition"])
def test_unrelated_kinds_are_ignored(kind: str) -> None:
    decoded = decode_document({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}})
    assert decoded == Decoded(total=1, ignored=1)


def test_all_problems_of_an_object_are_reported_together() -> None:
    decoded = decode_document(
        yaml.safe_load(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a}\n"
            "spec: {hots: a, host: 5, trafficPolicy: {tls: {mode: NO}, connectionPool: {tcp: {connectTimeout: soon}}}}"
        )
    )
    assert sorted((p.code, p.path) for p in decoded.problems) == [
        ("bad-duration", "spec.trafficPolicy.connectionPool.tcp.connectTimeout"),
        ("bad-enum", "spec.trafficPolicy.tls.mode"),
        ("unknown-field", "spec.hots"),
        ("wrong-type", "spec.host"),
    ]


@pytest.mark.parametrize(
    "plain",
    [None, 1, "a", [], [1], {}, {"kind": 1}, {"kind": "List", "items": {}}, {"kind": "List", "items": [None, 3]}],
)
def test_malformed_documents_do_not_raise(plain: Any) -> None:
    assert not decode_document(plain).entries
    for kind in ("Service", "Secret", "Pod", "EndpointSlice"):
        for part in ("metadata", "spec", "data", "status", "stringData", "endpoints"):
            version = "discovery.k8s.io/v1" if kind == "EndpointSlice" else "v1"
            decode_document({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, part: plain})


def test_excluded_kind_is_unknown() -> None:
    plain = {
        "apiVersion": "telemetry.istio.io/v1",
        "kind": "Telemetry",
        "metadata": {"name": "t", "namespace": "a"},
        "spec": {"tracing": [{}]},
    }
    catalogue = Catalogue(read_kinds(CATALOGUE, ("telemetries.telemetry.istio.io",), ()))
    assert len(decode_document(plain).entries) == 1
    decoded = decode_document(plain, catalogue=catalogue)
    assert not decoded.entries
    assert [p.code for p in decoded.problems] == ["unknown-kind"]


def test_operator_object_names_the_command_that_reads_it() -> None:
    plain = {"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "metadata": {"name": "a"}}
    (problem,) = decode_document(plain).problems
    assert problem.message.endswith("check it with `pilotctl manifest generate -f FILE`")


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ("{hosts: [a], nobodyKnows: ~, resolutoin: NONE}", ["spec.resolutoin"]),
        (
            "{hosts: [a], location: ~, ports: [{number: x, name: ~}, {number: 1, name: a}, {nmae: b}]}",
            ["spec.ports[0].number", "spec.ports[2].nmae"],
        ),
        (
            "{hosts: [1, a], exportTo: a, workloadSelector: {labels: {a: 1, b: c}}}",
            ["spec.hosts[0]", "spec.exportTo", "spec.workloadSelector.labels[a]"],
        ),
        ("[a]", ["spec"]),
    ],
)
def test_only_invalid_fields_are_reported(spec: str, paths: list[str]) -> None:
    text = f"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: a}}\nspec: {spec}"
    assert [problem.path for problem in decode_document(yaml.safe_load(text)).problems] == paths
