"""CustomResourceDefinitions match the configuration structs, and an API server accepts them."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from deploy.crd.definitions import definitions
from deploy.crd.limits import LIMITS
from deploy.crd.schema import ANY
from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import plural_of
from pilot.ingest.files.documents import read_documents
from testing.apiserver.schemas import schema_violations

ROOT = pathlib.Path(__file__).parents[3]
DEFINITIONS = {d["spec"]["names"]["kind"]: d for d in definitions()}
KINDS = [kind for kind in CATALOGUE if kind.id.group.endswith(".istio.io")]


def schema_of(kind: str) -> dict[str, Any]:
    return DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def subschemas(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from subschemas(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from subschemas(schema[word], f"{path}[]")


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.id.name)
def test_every_kind_is_defined_in_all_its_versions(kind: Any) -> None:
    spec = DEFINITIONS[kind.id.name]["spec"]
    assert (spec["group"], spec["names"]["plural"], spec["scope"]) == (kind.id.group, plural_of(kind.id), "Namespaced")
    assert {v["name"] for v in spec["versions"] if v["served"]} == set(kind.versions)
    assert sum(v["storage"] for v in spec["versions"]) == 1
    assert all(v["subresources"] == {"status": {}} for v in spec["versions"])


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_schemas_are_structural(kind: str) -> None:
    """https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema"""
    for path, schema in subschemas(schema_of(kind), kind):
        if schema == ANY:
            continue
        assert schema.get("type") in ("object", "array", "string", "integer", "number", "boolean"), path
        assert schema["type"] != "array" or "items" in schema, path
        assert schema["type"] != "object" or {
            "properties",
            "additionalProperties",
            "x-kubernetes-preserve-unknown-fields",
        } & set(schema), path
        choices = itertools.chain(schema.get("not", {}).get("anyOf", ()), schema.get("oneOf", ()))
        assert all(
            set(choice) == {"required"} and set(choice["required"]) <= set(schema["properties"]) for choice in choices
        ), path
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), path


def test_limited_fields_exist() -> None:
    missing = [
        f"{struct.__name__}.{name}"
        for struct, limits in LIMITS.items()
        for name in limits.fields
        if name not in {f.encode_name for f in msgspec.structs.fields(struct)}
    ]
    assert not missing


def sample_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((ROOT / "samples").rglob("*.yaml")):
        for document in read_documents(path.read_bytes(), path.name):
            if (
                isinstance(document.plain, dict)
                and document.plain.get("kind") in DEFINITIONS
                and "istio.io" in str(document.plain.get("apiVersion"))
            ):
                yield f"{path.relative_to(ROOT)}: {document.plain['kind']}", document.plain


def test_samples_are_valid() -> None:
    samples = list(sample_objects())
    assert len(samples) >= 10
    for source, plain in samples:
        assert not list(schema_violations(plain, schema_of(plain["kind"]))), source


INVALID = {
    "VirtualService spec.http[0].timeout": {"http": [{"timeout": 5}]},
    "VirtualService spec.http[0].route[0].destination": {"http": [{"route": [{"weight": 1}]}]},
    "VirtualService spec.http[0].match[0].uri": {"http": [{"match": [{"uri": {"exact": "/a", "prefix": "/b"}}]}]},
    "VirtualService spec.http[0].retries.attempts": {"http": [{"retries": {"attempts": "3"}}]},
    "DestinationRule spec.host": {"subsets": []},
    "DestinationRule spec.trafficPolicy.tls.mode": {"host": "a", "trafficPolicy": {"tls": {"mode": "NONE"}}},
    "DestinationRule spec.trafficPolicy.loadBalancer": {
        "host": "a",
        "trafficPolicy": {"loadBalancer": {"simple": "RANDOM", "consistentHash": {}}},
    },
    "Gateway spec.servers[0].port.number": {
        "servers": [{"hosts": ["*"], "port": {"name": "http", "protocol": "HTTP"}}]
    },
    "Gateway spec.servers[0].tls.credentialNames": {
        "servers": [
            {"hosts": ["*"], "port": {"number": 1, "name": "a", "protocol": "HTTPS"}, "tls": {"credentialNames": []}}
        ]
    },
    "ServiceEntry spec.hosts": {"hosts": []},
    "ServiceEntry spec.location": {"hosts": ["a.b"], "location": "INSIDE"},
    "Sidecar spec.egress[0].hosts": {"egress": [{}]},
    "WorkloadEntry spec.weight": {"address": "1.1.1.1", "weight": -1},
    "WorkloadGroup spec.template": {"metadata": {}},
    "AuthorizationPolicy spec.rules[0].when[0].key": {"rules": [{"when": [{"values": ["a"]}]}]},
    "AuthorizationPolicy spec.targetRefs[0].kind": {"targetRefs": [{"name": "a", "kind": "1"}]},
    "PeerAuthentication spec.mtls.mode": {"mtls": {"mode": "ON"}},
    "RequestAuthentication spec.jwtRules[0].issuer": {"jwtRules": [{"issuer": ""}]},
}


@pytest.mark.parametrize("case", INVALID)
def test_violations_have_their_path(case: str) -> None:
    kind, path = case.split()
    violations = [location for location, _ in schema_violations({"spec": INVALID[case]}, schema_of(kind))]
    assert violations == [path]
