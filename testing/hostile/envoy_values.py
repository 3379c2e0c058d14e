"""Families of hostile EnvoyFilters, whose patches contain any message of Envoy's API."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pilot.config.patch_value import TYPES
from pilot.lib.protobuf.types import find_type
from testing.hostile.objects import PATTERNS, Plain, make_object
from testing.hostile.search import Choices, size

TARGETS = (*TYPES, "INVALID")
OPERATIONS = (
    "MERGE", "ADD", "INSERT_FIRST", "INSERT_BEFORE", "INSERT_AFTER", "REPLACE", "REMOVE", "MERGE_AND_REPLACE_LIST",
)  # fmt: skip
CONTEXTS = ("ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY", "WAYPOINT")
PREFIX = "type.googleapis.com/"
EXTENSIONS = (
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.filters.http.composite.v3.Composite",
    "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
    "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
    "envoy.config.core.v3.TypedExtensionConfig",
    "envoy.config.route.v3.RouteConfiguration",
    "udpa.type.v1.TypedStruct",
    "xds.type.v3.TypedStruct",
    "xds.type.matcher.v3.Matcher",
    "google.protobuf.Any",
    "google.protobuf.Struct",
    "google.protobuf.StringValue",
    "google.protobuf.Duration",
    "google.protobuf.BytesValue",
    "google.protobuf.Empty",
    "envoy.config.filter.http.lua.v2.Lua",
    "envoy.extensions.filters.http.luna.v3.Luna",
    "unknown.Type",
)
"""Types of packed messages. Some are unknown, misspelt or removed."""
WORDS = (
    "a", "*", "%REQ(a)%", "é", "\u0000", "\\", ".", "/", "{a}", "function f() end ", "--[[", "(", "1", "-", ",", "[",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1 << 31, 1 << 63, 1 << 64, 10**300, 1.5, 1e308, "1", "1e400", "9" * 4000, "NaN", "Infinity", "-Infinity",
    "9" * 18 + "s", "0.000000001s", "3155760000001s", True, None, [], {},
)  # fmt: skip
_BY_VALUE = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_ANY = "google.protobuf.Any"


class _Tree:
    """Builds one value from the choices. Its parts are numbered, so that each has genes of its own."""

    def __init__(self, c: Choices, name: str, longest: int) -> None:
        self._c, self._name, self._part, self._longest = c, name, 0, longest

    def _gene(self, what: str) -> str:
        return f"{self._name} {what} {self._part}"

    def message(self, kind: Descriptor) -> Plain:
        """Return a message with one or two fields on the way down, of which the first is large."""
        self._part += 1
        if self._part > self._longest:
            return self._flat(kind)
        plain = {}
        for number in range(self._c.pick(self._gene("fields"), (1, 1, 2))):
            field = self._c.pick(self._gene(f"field {number}"), kind.fields) if kind.fields else None
            if field is not None:
                spelling = self._c.pick(self._gene("spelling"), (field.name, field.name, field.json_name))
                plain[spelling] = self._field(field)
        return plain

    def _flat(self, kind: Descriptor) -> Plain:
        """Return a message of scalars, with unknown fields."""
        c, plain = self._c, dict[str, Any]()
        for field in kind.fields:
            if field.message_type is None and not field.is_repeated and field.containing_oneof is None:
                plain[field.name] = self._scalar(field)
        unknown = c.pick(self._gene("unknown"), ("", "", "x", "name", "typedConfig", "é"))
        plain |= {f"{unknown}{n}": n for n in range(c.count(self._gene("unknown fields"), 20_000) if unknown else 0)}
        return plain

    def _field(self, field: FieldDescriptor) -> Any:
        c = self._c
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            item, key = self._one(field.message_type.fields_by_name["value"]), c.pick(self._gene("key"), WORDS)
            return {f"{key}{n}": item for n in range(max(1, c.count(self._gene("entries"), 20_000)))}
        item = self._one(field)
        if not field.is_repeated:
            return item
        if isinstance(item, dict) and c.pick(self._gene("names"), (False, True)):
            return [{**item, "name": f"n{n}"} for n in range(max(1, c.count(self._gene("items"), 20_000)))]
        return [item] * max(1, c.count(self._gene("items"), 20_000))

    def _one(self, field: FieldDescriptor) -> Any:
        kind = field.message_type
        if kind is None:
            return self._scalar(field)
        if kind.full_name in _BY_VALUE:
            return self.json()
        if kind.full_name == _ANY:
            return self.packed()
        if kind.full_name.startswith("google.protobuf."):
            return self._scalar(field)
        return self.message(kind)

    def packed(self) -> Any:
        """Return a packed message with its type."""
        c, url = self._c, self._c.pick(self._gene("type"), EXTENSIONS)
        self._part += 1
        tag = {"@type": c.pick(self._gene("prefix"), (PREFIX, PREFIX, "", "a/" * 20)) + url}
        message_type = find_type(url)
        if message_type is None:
            return {**tag, "value": self.json()}
        if url.endswith("TypedStruct"):
            inner = c.pick(self._gene("inner"), EXTENSIONS)
            inner_type, is_known = find_type(inner), c.pick(self._gene("known"), (True, True, False))
            deeper = inner_type is not None and is_known and self._part < self._longest
            value = self.message(inner_type.DESCRIPTOR) if inner_type is not None and deeper else self.json()
            return {**tag, "type_url": PREFIX + inner, "value": value}
        if url in _BY_VALUE or url.startswith("google.protobuf."):
            return {**tag, "value": self.json()}
        return {**tag, **self.message(message_type.DESCRIPTOR)}

    def json(self) -> Any:
        """Return JSON of any depth, whose leaf is a scalar or a large list or mapping of scalars."""
        c, leaf = self._c, self._text()
        self._part += 1
        value: Any = leaf
        match c.pick(self._gene("leaf"), ("text", "number", "list", "mapping", "lists")):
            case "number":
                value = c.pick(self._gene("number"), NUMBERS)
            case "list":
                value = [leaf] * c.count(self._gene("leaves"), 20_000)
            case "mapping":
                value = {f"k{n}": n for n in range(c.count(self._gene("leaves"), 20_000))}
            case "lists":
                value = [[[leaf, 1], {"a": None}]] * c.count(self._gene("leaves"), 20_000)
        wrap = c.pick(self._gene("wrap"), ("list", "mapping", "both"))
        for _ in range(c.count(self._gene("depth"), 200)):
            value = [value] if wrap == "list" else {"a": value} if wrap == "mapping" else [{"a": value}]
        return value

    def _text(self) -> str:
        return self._c.text(self._gene("text"), (*WORDS, *PATTERNS), 900_000)

    def _scalar(self, field: FieldDescriptor) -> Any:
        c = self._c
        if field.enum_type is not None and c.pick(self._gene("enum"), (True, False)):
            return c.pick(self._gene("enum value"), [value.name for value in field.enum_type.values])
        if c.pick(self._gene("right type"), (True, True, False)):
            is_text = field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
            return self._text() if is_text else c.pick(self._gene("number"), NUMBERS)
        return c.pick(self._gene("wrong"), (self._text(), 1, True, [1], {"a": 1}))


def _match(c: Choices, target: str) -> Plain:
    """Return a match, which need not suit the target."""
    context, name = (
        c.pick("context", CONTEXTS),
        c.pick("matched name", ("a", "virtualInbound", "0.0.0.0_80", "x" * 500)),
    )
    manager = "envoy.filters.network.http_connection_manager"
    http = {"filterChain": {"filter": {"name": manager, "subFilter": {"name": "envoy.filters.http.router"}}}}
    suited: dict[str, Plain] = {
        "CLUSTER": {"cluster": {"service": "*"}},
        "HTTP_FILTER": {"listener": http},
        "NETWORK_FILTER": {"listener": {"filterChain": {"filter": {"name": manager}}}},
        "LISTENER_FILTER": {"listener": {"listenerFilter": "envoy.filters.listener.tls_inspector"}},
        "HTTP_ROUTE": {"routeConfiguration": {"vhost": {"name": name, "route": {"action": "ANY", "name": name}}}},
    }
    forms: tuple[Plain, ...] = (
        {},
        suited.get(target, {}),
        {"proxy": {"proxyVersion": c.pick("version", PATTERNS) * max(1, c.count("version repeats", 50))}},
        {"proxy": {"metadata": {f"m{n}": name for n in range(c.count("metadata", 5000))}}},
        {"listener": {"name": name, "portNumber": 80}},
        {"routeConfiguration": {"name": name, "portNumber": 80, "gateway": "a/b"}},
        {"cluster": {"name": name, "portNumber": 80}},
    )
    return {"context": context, **c.pick("match", forms)}


def envoy_filter_patches(c: Choices) -> Plain:
    """Return an EnvoyFilter with one or two kinds of patches."""
    patches: list[Plain] = []
    for number in range(c.pick("kinds", (1, 1, 2))):
        name = f"p{number}"
        target = c.pick(f"{name} target", TARGETS)
        kind = TYPES.get(target, TYPES["CLUSTER"]).DESCRIPTOR
        value = _Tree(c, name, c.pick(f"{name} longest", (1, 2, 3, 4, 6, 8, 12))).message(kind)
        if "FILTER" in target and target != "FILTER_CHAIN" and c.pick(f"{name} packed", (True, False)):
            value = {"name": "a", "typed_config": _Tree(c, f"{name} packed", 6).packed()}
        patch = {"operation": c.pick(f"{name} operation", OPERATIONS), "value": value}
        item = {"applyTo": target, "match": _match(c, target), "patch": patch}
        patches += [item] * max(1, min(c.count(f"{name} patches", 5000), 2 * c.largest // size(item)))
    labels = c.pick("selector", ({}, {"workloadSelector": {"labels": {"a": "b"}}}))
    return make_object(
        "networking.istio.io/v1alpha3", "EnvoyFilter", {"configPatches": patches, **labels, "priority": 1}
    )
