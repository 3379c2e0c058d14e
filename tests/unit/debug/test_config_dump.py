"""Resources as config dumps show them, and what the pages of profiles make of their queries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from envoy.config.route.v3 import route_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.debug import profiles
from pilot.debug.config_dump import STREAMED_PARTS, TYPES, _unwrapped, build_dump, plain, shown
from pilot.debug.page import FileAnswer, Later, TextAnswer
from pilot.debug.plain_json import LazyFields, parts
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import BY_SHORT_NAME


def routes(count: int) -> Resource:
    made = route_pb2.RouteConfiguration(name="80", ignore_port_in_host_matching=True)
    for number in range(count):
        made.virtual_hosts.add(name=f"host-{number}", domains=["*"])
    return Resource.of(BY_SHORT_NAME["rds"], made)


@pytest.mark.parametrize("count", [0, STREAMED_PARTS, STREAMED_PARTS + 1, STREAMED_PARTS + 2])
def test_a_large_resource_is_written_as_a_small_one_is(count: int) -> None:
    found = shown(routes(count))
    assert isinstance(found, LazyFields) is (count > STREAMED_PARTS)
    text = b"".join(parts(found, pretty=False)).decode()
    hosts = [{"name": f"host-{number}", "domains": ["*"]} for number in range(count)]
    whole = {
        "@type": BY_SHORT_NAME["rds"],
        "name": "80",
        "ignorePortInHostMatching": True,
        **({"virtualHosts": hosts} if hosts else {}),
    }
    assert json.loads(text) == plain(routes(count)) == whole
    assert text.count('"virtualHosts"') == (1 if count else 0)


@pytest.mark.parametrize("count", [1, STREAMED_PARTS + 1])
def test_a_dump_has_each_resource_with_its_version(count: int) -> None:
    resources = {name: [routes(count), routes(0)] if name == "rds" else [] for name in TYPES}
    dump = b"".join(parts(build_dump(resources, "v1", with_endpoints=False), pretty=True))
    kinds = ("Bootstrap", "Clusters", "Listeners", "ScopedRoutes", "Routes", "Secrets", "Ecds")
    versions = {"Clusters": {"versionInfo": "v1"}, "Listeners": {"versionInfo": "v1"}}
    sent = {
        "dynamicRouteConfigs": [{"versionInfo": "v1", "routeConfig": plain(routes(number))} for number in (count, 0)]
    }
    assert json.loads(dump)["configs"] == [
        {"@type": f"type.googleapis.com/envoy.admin.v3.{kind}ConfigDump"}
        | versions.get(kind, {})
        | (sent if kind == "Routes" else {})
        for kind in kinds
    ]


def test_a_secret_is_shown_without_what_is_secret() -> None:
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


def test_an_extension_is_shown_as_its_filter() -> None:
    inner = {"@type": "type.googleapis.com/x.Wasm", "a": 1}
    wrapped = {
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "e",
        "typedConfig": inner,
    }
    assert _unwrapped(wrapped) == inner
    for other in (
        {"name": "no type", "typedConfig": inner},
        {**wrapped, "@type": "x.Other"},
        {"@type": wrapped["@type"]},
    ):
        assert _unwrapped(other) == other
    lazy = LazyFields(iter([]))
    assert _unwrapped(lazy) is lazy


def test_a_resource_of_an_unknown_type_is_its_bytes() -> None:
    unknown = Resource("x", "type.googleapis.com/no.such.Type", b"ab")
    assert plain(unknown) == shown(unknown) == {"@type": "type.googleapis.com/no.such.Type", "value": "YWI="}


# -- queries of profiles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("", 0),
        ("0", 0),
        ("1", 1),
        ("2", 2),
        ("999", 999),
        ("1000", 0),
        ("-1", 0),
        ("x", 0),
        ("٢", 0),
        ("²", 0),
        ("1.0", 0),
    ],
)
def test_the_level_of_a_profile_is_a_small_number(text: str, level: int) -> None:
    assert profiles._debug({"debug": text}) == level
    assert profiles._debug({}) == 0


@pytest.mark.parametrize(("page", "head"), [("block", "contention"), ("mutex", "mutex")])
def test_what_is_never_counted_is_a_profile_without_samples(page: str, head: str) -> None:
    [answer] = [answer for name, _, answer in profiles._ABOUT if name == page]
    sources: Any = object()

    def make(**query: str) -> Any:
        later = answer(sources, query)
        assert isinstance(later, Later)
        return later.make()

    text = make(debug="1")
    assert isinstance(text, TextAnswer)
    assert text.text.startswith(f"--- {head}:\ncycles/second=1000000000\n")
    for query, name in (({}, page), ({"debug": "0"}, page), ({"seconds": "1"}, f"{page}-delta")):
        made = make(**query)
        assert isinstance(made, FileAnswer)
        assert made.name == name
