"""Resources in config dumps."""

from __future__ import annotations

import json

import pytest
from envoy.config.route.v3 import route_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.debug.pages.config_dump import STREAMED_PARTS, TYPES, _unwrapped, build_dump, plain, shown
from pilot.debug.plain_json import LazyFields, parts
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import BY_SHORT_NAME


def routes(count: int) -> Resource:
    configuration = route_pb2.RouteConfiguration(name="80", ignore_port_in_host_matching=True)
    for number in range(count):
        configuration.virtual_hosts.add(name=f"host-{number}", domains=["*"])
    return Resource.of(BY_SHORT_NAME["rds"], configuration)


@pytest.mark.parametrize("count", [0, STREAMED_PARTS, STREAMED_PARTS + 1, STREAMED_PARTS + 2])
def test_large_resource_is_encoded_like_a_small_one(count: int) -> None:
    shown_resource = shown(routes(count))
    assert isinstance(shown_resource, LazyFields) is (count > STREAMED_PARTS)
    text = b"".join(parts(shown_resource, pretty=False)).decode()
    hosts = [{"name": f"host-{number}", "domains": ["*"]} for number in range(count)]
    expected = {
        "@type": BY_SHORT_NAME["rds"],
        "name": "80",
        "ignorePortInHostMatching": True,
        **({"virtualHosts": hosts} if hosts else {}),
    }
    assert json.loads(text) == plain(routes(count)) == expected
    assert text.count('"virtualHosts"') == (1 if count else 0)


@pytest.mark.parametrize("count", [1, STREAMED_PARTS + 1])
def test_dump_lists_resources_with_versions(count: int) -> None:
    resources = {name: [routes(count), routes(0)] if name == "rds" else [] for name in TYPES}
    dump = b"".join(parts(build_dump(resources, "v1", with_endpoints=False), pretty=True))
    kinds = ("Bootstrap", "Clusters", "Listeners", "ScopedRoutes", "Routes", "Secrets", "Ecds")
    versions = {"Clusters": {"versionInfo": "v1"}, "Listeners": {"versionInfo": "v1"}}
    route_configs = {
        "dynamicRouteConfigs": [{"versionInfo": "v1", "routeConfig": plain(routes(number))} for number in (count, 0)]
    }
    assert json.loads(dump)["configs"] == [
        {"@type": f"type.googleapis.com/envoy.admin.v3.{kind}ConfigDump"}
        | versions.get(kind, {})
        | (route_configs if kind == "Routes" else {})
        for kind in kinds
    ]


def test_secret_material_is_redacted() -> None:
    pair = {
        "certificate_chain": {"inline_bytes": b"chain"},
        "private_key": {"filename": "/key"},
        "password": {"inline_bytes": b"word"},
        "pkcs12": {"inline_bytes": b"pack"},
        "private_key_provider": {"provider_name": "p"},
    }
    sds = BY_SHORT_NAME["sds"]
    assert plain(Resource.of(sds, secret_pb2.Secret(name="a", tls_certificate=pair))) == {
        "@type": sds,
        "name": "a",
        "tlsCertificate": {
            "certificateChain": {"inlineBytes": "Y2hhaW4="},
            "privateKey": {"inlineBytes": "W3JlZGFjdGVkXQ=="},
        },
    }
    for hidden in (
        {"session_ticket_keys": {"keys": [{"inline_bytes": b"x"}]}},
        {"generic_secret": {"secret": {"inline_bytes": b"x"}}},
    ):
        assert plain(Resource.of(sds, secret_pb2.Secret(name="b", **hidden))) == {"@type": sds, "name": "b"}


def test_extension_is_shown_as_its_filter() -> None:
    inner = {"@type": "type.googleapis.com/x.Wasm", "a": 1}
    extension = {
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "e",
        "typedConfig": inner,
    }
    assert _unwrapped(extension) == inner
    for other in (
        {"name": "no type", "typedConfig": inner},
        {**extension, "@type": "x.Other"},
        {"@type": extension["@type"]},
    ):
        assert _unwrapped(other) == other
    lazy = LazyFields(iter([]))
    assert _unwrapped(lazy) is lazy


def test_unknown_type_is_shown_as_bytes() -> None:
    unknown = Resource("x", "type.googleapis.com/no.such.Type", b"ab")
    assert plain(unknown) == shown(unknown) == {"@type": "type.googleapis.com/no.such.Type", "value": "YWI="}
