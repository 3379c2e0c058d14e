"""Tells which rules a request or connection meets, as Envoy would: for people who ask why a call is refused."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import re2
from envoy.config.core.v3 import address_pb2, extension_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.path.match.uri_template.v3 import uri_template_match_pb2
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2

from pilot.envoy.names import JWT_AUTHN_FILTER, JWT_PAYLOAD

_SEGMENT = "[-a-zA-Z0-9._~%!$&'()+,;:@=]"


class RequestAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """What Envoy knows of a request, or of a connection; what is not known is "", 0 or empty. `principal`: the URI of the client's certificate;
    `peer`: the address that connects, `client` the one that trusted proxies tell of; `headers`: by names in lower case, with Envoy's own such as
    `:path`; `claims`: of the token."""

    principal: str = ""
    peer: str = ""
    client: str = ""
    destination: str = ""
    port: int = 0
    server_name: str = ""
    headers: Mapping[str, str] = {}
    claims: Mapping[str, Any] = {}

    @property
    def path(self) -> str:
        return re.split("[?#]", self.headers.get(":path", ""), maxsplit=1)[0]


def meets(rule: rbac_pb2.Policy, call: RequestAttributes) -> bool:
    """Returns whether a call meets a rule."""
    return any(_permits(p, call) for p in rule.permissions) and any(_is_one(p, call) for p in rule.principals)


def _permits(permission: rbac_pb2.Permission, call: RequestAttributes) -> bool:
    kind = permission.WhichOneof("rule")
    said: Any = getattr(permission, kind)
    match kind:
        case "any":
            return bool(said)
        case "and_rules":
            return all(_permits(p, call) for p in said.rules)
        case "or_rules":
            return any(_permits(p, call) for p in said.rules)
        case "not_rule":
            return not _permits(said, call)
        case "header":
            return _header(said, call)
        case "url_path":
            return _text(said.path, call.path)
        case "uri_template":
            return _template(said, call.path)
        case "destination_port":
            return bool(said == call.port)
        case "destination_ip":
            return _within(said, call.destination)
        case "requested_server_name":
            return _text(said, call.server_name)
        case "metadata":
            return _metadata(said, call)
    raise ValueError(f"a permission by {kind} is none of ours")


def _is_one(principal: rbac_pb2.Principal, call: RequestAttributes) -> bool:
    kind = principal.WhichOneof("identifier")
    said: Any = getattr(principal, kind)
    match kind:
        case "any":
            return bool(said)
        case "and_ids":
            return all(_is_one(p, call) for p in said.ids)
        case "or_ids":
            return any(_is_one(p, call) for p in said.ids)
        case "not_id":
            return not _is_one(said, call)
        case "authenticated":
            return bool(call.principal) and _text(said.principal_name, call.principal)
        case "filter_state":
            return bool(call.principal) and _text(said.string_match, call.principal)
        case "direct_remote_ip":
            return _within(said, call.peer)
        case "remote_ip":
            return _within(said, call.client or call.peer)
        case "header":
            return _header(said, call)
        case "metadata":
            return _metadata(said, call)
    raise ValueError(f"a principal by {kind} is none of ours")


# -- values ----------------------------------------------------------------------------------------------------------------


def _text(matcher: string_pb2.StringMatcher, value: str) -> bool:
    kind = matcher.WhichOneof("match_pattern")
    if kind == "safe_regex":
        return re2.fullmatch(matcher.safe_regex.regex, value) is not None
    pattern = getattr(matcher, kind)
    if matcher.ignore_case:
        pattern, value = pattern.lower(), value.lower()
    return bool(
        {"exact": value == pattern, "prefix": value.startswith(pattern), "suffix": value.endswith(pattern)}[kind]
    )


def _header(matcher: route_components_pb2.HeaderMatcher, call: RequestAttributes) -> bool:
    value = call.headers.get(matcher.name.lower())
    return value is not None and (
        matcher.WhichOneof("header_match_specifier") == "present_match" or _text(matcher.string_match, value)
    )


def _within(block: address_pb2.CidrRange, address: str) -> bool:
    if not address:
        return False
    network = ipaddress.ip_network(f"{block.address_prefix}/{block.prefix_len.value}", strict=False)
    return ipaddress.ip_address(address) in network


def _template(config: extension_pb2.TypedExtensionConfig, path: str) -> bool:
    found = uri_template_match_pb2.UriTemplateMatchConfig.FromString(config.typed_config.value)
    return re2.fullmatch(_template_regex(found.path_template), path) is not None


@functools.lru_cache(maxsize=256)
def _template_regex(template: str) -> str:
    """Returns a template of Envoy's, of `*` and `**`, as a regular expression."""
    one, rest = f"{_SEGMENT}+", f"(?:{_SEGMENT}|/)*"
    return "".join({"*": one, "**": rest}.get(part, re2.escape(part)) for part in re.split(r"(\*\*|\*)", template))


def _metadata(matcher: metadata_pb2.MetadataMatcher, call: RequestAttributes) -> bool:
    """Returns whether the claims of the token have a value; what other filters leave behind is not known."""
    keys = [segment.key for segment in matcher.path]
    if matcher.filter != JWT_AUTHN_FILTER or keys[:1] != [JWT_PAYLOAD]:
        return False
    found: Any = call.claims
    for key in keys[1:]:
        found = found.get(key) if isinstance(found, Mapping) else None
    return _value(matcher.value, found)


def _value(matcher: value_pb2.ValueMatcher, value: Any) -> bool:
    match matcher.WhichOneof("match_pattern"):
        case "string_match":
            return isinstance(value, str) and _text(matcher.string_match, value)
        case "or_match":
            return any(_value(one, value) for one in matcher.or_match.value_matchers)
        case "list_match":
            items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
            return any(_value(matcher.list_match.one_of, item) for item in items)
    return False
