"""Evaluates RBAC rules as Envoy would, to explain why a request or connection is denied."""

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
    """The attributes of a request or connection that Envoy knows. Unknown attributes are "", 0 or empty.

    `principal` is the URI in the client certificate. `peer` is the address of the direct peer, and `client` is the
    client address that trusted proxies report. `headers` have lower-case names and include pseudo-headers such as
    `:path`. `claims` are the claims of the token.
    """

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
        """The path without the query and fragment."""
        return re.split("[?#]", self.headers.get(":path", ""), maxsplit=1)[0]


def rule_matches(rule: rbac_pb2.Policy, request: RequestAttributes) -> bool:
    """Return whether a request matches a rule."""
    return any(_permission_matches(p, request) for p in rule.permissions) and any(
        _principal_matches(p, request) for p in rule.principals
    )


def _permission_matches(permission: rbac_pb2.Permission, request: RequestAttributes) -> bool:
    kind = permission.WhichOneof("rule")
    value: Any = getattr(permission, kind)
    match kind:
        case "any":
            return bool(value)
        case "and_rules":
            return all(_permission_matches(p, request) for p in value.rules)
        case "or_rules":
            return any(_permission_matches(p, request) for p in value.rules)
        case "not_rule":
            return not _permission_matches(value, request)
        case "header":
            return _header(value, request)
        case "url_path":
            return _text(value.path, request.path)
        case "uri_template":
            return _template(value, request.path)
        case "destination_port":
            return bool(value == request.port)
        case "destination_ip":
            return _within(value, request.destination)
        case "requested_server_name":
            return _text(value, request.server_name)
        case "metadata":
            return _metadata(value, request)
    raise ValueError(f"cannot evaluate a permission of type {kind}")


def _principal_matches(principal: rbac_pb2.Principal, request: RequestAttributes) -> bool:
    kind = principal.WhichOneof("identifier")
    value: Any = getattr(principal, kind)
    match kind:
        case "any":
            return bool(value)
        case "and_ids":
            return all(_principal_matches(p, request) for p in value.ids)
        case "or_ids":
            return any(_principal_matches(p, request) for p in value.ids)
        case "not_id":
            return not _principal_matches(value, request)
        case "authenticated":
            return bool(request.principal) and _text(value.principal_name, request.principal)
        case "filter_state":
            return bool(request.principal) and _text(value.string_match, request.principal)
        case "direct_remote_ip":
            return _within(value, request.peer)
        case "remote_ip":
            return _within(value, request.client or request.peer)
        case "header":
            return _header(value, request)
        case "metadata":
            return _metadata(value, request)
    raise ValueError(f"cannot evaluate a principal of type {kind}")


# -- values ------------------------------------------------------------------------------------------------------------


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


def _header(matcher: route_components_pb2.HeaderMatcher, request: RequestAttributes) -> bool:
    value = request.headers.get(matcher.name.lower())
    return value is not None and (
        matcher.WhichOneof("header_match_specifier") == "present_match" or _text(matcher.string_match, value)
    )


def _within(block: address_pb2.CidrRange, address: str) -> bool:
    if not address:
        return False
    network = ipaddress.ip_network(f"{block.address_prefix}/{block.prefix_len.value}", strict=False)
    return ipaddress.ip_address(address) in network


def _template(extension: extension_pb2.TypedExtensionConfig, path: str) -> bool:
    config = uri_template_match_pb2.UriTemplateMatchConfig.FromString(extension.typed_config.value)
    return re2.fullmatch(_template_regex(config.path_template), path) is not None


@functools.lru_cache(maxsize=256)
def _template_regex(template: str) -> str:
    """Return the regular expression for one of Envoy's URI templates, which may contain `*` and `**`."""
    segment, path = f"{_SEGMENT}+", f"(?:{_SEGMENT}|/)*"
    return "".join({"*": segment, "**": path}.get(part, re2.escape(part)) for part in re.split(r"(\*\*|\*)", template))


def _metadata(matcher: metadata_pb2.MetadataMatcher, request: RequestAttributes) -> bool:
    """Return whether the token's claims match. A matcher for another filter's metadata never matches."""
    keys = [segment.key for segment in matcher.path]
    if matcher.filter != JWT_AUTHN_FILTER or keys[:1] != [JWT_PAYLOAD]:
        return False
    claim: Any = request.claims
    for key in keys[1:]:
        claim = claim.get(key) if isinstance(claim, Mapping) else None
    return _value(matcher.value, claim)


def _value(matcher: value_pb2.ValueMatcher, value: Any) -> bool:
    match matcher.WhichOneof("match_pattern"):
        case "string_match":
            return isinstance(value, str) and _text(matcher.string_match, value)
        case "or_match":
            return any(_value(item, value) for item in matcher.or_match.value_matchers)
        case "list_match":
            items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
            return any(_value(matcher.list_match.one_of, item) for item in items)
    return False
