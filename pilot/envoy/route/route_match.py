"""Route matches: converts HTTPMatchRequest to RouteMatch.

Conditions on the source (labels, namespace, gateway) and on the port are evaluated here, for the proxy and listener of
the route. Envoy does not receive them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import metadata_pb2, regex_pb2, string_pb2, value_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import HTTPMatchRequest, StringMatch
from pilot.envoy.names import JWT_AUTHN_FILTER, JWT_PAYLOAD
from pilot.mesh.model.facets import Labels

CLAIMS = "@request.auth.claims"
MATCH_ALL = route_components_pb2.RouteMatch(prefix="/")


def matches_proxy(match: HTTPMatchRequest, port: int, gateways: frozenset[str], namespace: str, labels: Labels) -> bool:
    """Return whether the match applies to this listener port and to a proxy with these gateways, namespace and labels.

    If a match lists gateways, its other conditions on the source are ignored.
    """
    if match.port and match.port != port:
        return False
    if match.gateways:
        return not gateways.isdisjoint(match.gateways)
    return match.source_labels.items() <= labels and match.source_namespace in ("", namespace)


def build_match(match: HTTPMatchRequest | None, by_segment: bool = False) -> route_components_pb2.RouteMatch:
    """Return the conditions on the request. If there is no match, every request meets them.

    If `by_segment` is set, prefixes match whole path segments.
    """
    if match is None:
        return route_components_pb2.RouteMatch(prefix="/")
    out = route_components_pb2.RouteMatch(
        case_sensitive=wrappers_pb2.BoolValue(value=not match.ignore_uri_case),
        headers=[*_named_headers(match), *_pseudo_headers(match)],
        query_parameters=[_query_parameter(name, m) for name, m in sorted(match.query_params.items())],
        dynamic_metadata=list(_claims(match)),
    )
    _set_path(out, match.uri, by_segment)
    return out


def _set_path(out: route_components_pb2.RouteMatch, uri: StringMatch | None, by_segment: bool) -> None:
    if uri is None:
        out.prefix = "/"
    elif uri.exact is not None:
        out.path = uri.exact
    elif uri.prefix is not None and by_segment and uri.prefix != "/":
        out.path_separated_prefix = uri.prefix.removesuffix("/")
    elif uri.prefix is not None:
        out.prefix = uri.prefix
    elif uri.regex is not None:
        out.safe_regex.CopyFrom(build_regex(uri.regex))
    else:
        out.prefix = "/"


def is_catch_all(match: route_components_pb2.RouteMatch) -> bool:
    """Return whether the match holds for every request, so that later routes are unreachable."""
    return (
        (match.prefix == "/" or match.path_separated_prefix == "/" or match.safe_regex.regex == ".*")
        and not match.headers
        and not match.query_parameters
        and not match.dynamic_metadata
    )


# -- headers ---------------------------------------------------------------------------------------


def _named_headers(match: HTTPMatchRequest) -> Iterable[route_components_pb2.HeaderMatcher]:
    """Return the conditions on headers, sorted by name. Conditions on JWT claims and pseudo-headers are excluded."""
    matchers = [_header(name, m) for name, m in match.headers.items() if _claim_path(name) is None]
    matchers += [
        _header(name, m, invert=True) for name, m in match.without_headers.items() if _claim_path(name) is None
    ]
    return sorted(matchers, key=lambda header: header.name)


def _pseudo_headers(match: HTTPMatchRequest) -> Iterable[route_components_pb2.HeaderMatcher]:
    for name, condition in ((":method", match.method), (":authority", match.authority), (":scheme", match.scheme)):
        if condition is not None:
            yield _header(name, condition)


def _header(name: str, match: StringMatch, invert: bool = False) -> route_components_pb2.HeaderMatcher:
    """Return a condition on a header.

    An inverted match also holds if the header is missing.
    """
    if is_presence_match(match):
        return route_components_pb2.HeaderMatcher(name=name, present_match=True, invert_match=invert)
    return route_components_pb2.HeaderMatcher(
        name=name, string_match=build_string_matcher(match), invert_match=invert, treat_missing_header_as_empty=invert
    )


def _query_parameter(name: str, match: StringMatch) -> route_components_pb2.QueryParameterMatcher:
    if is_presence_match(match):
        return route_components_pb2.QueryParameterMatcher(name=name, present_match=True)
    return route_components_pb2.QueryParameterMatcher(name=name, string_match=build_string_matcher(match))


# -- JWT claims -------------------------------------------------------------------------------------


def _claims(match: HTTPMatchRequest) -> Iterable[metadata_pb2.MetadataMatcher]:
    yield from _claim_matchers(match.headers, invert=False)
    yield from _claim_matchers(match.without_headers, invert=True)


def _claim_matchers(headers: Mapping[str, StringMatch], invert: bool) -> Iterable[metadata_pb2.MetadataMatcher]:
    for name, match in sorted(headers.items()):
        path = _claim_path(name)
        if path is not None:
            yield _claim(path, match, invert)


def _claim_path(name: str) -> list[str] | None:
    """Return the path of a claim, outermost name first, or None if the header name does not refer to a claim.

    The syntax is `@request.auth.claims.group.id` or `@request.auth.claims[group][id]`.
    https://istio.io/latest/docs/tasks/security/authentication/jwt-route/
    """
    if not name.lower().startswith(CLAIMS):
        return None
    rest = name[len(CLAIMS) :]
    if rest.startswith(".") and len(rest) > 1:
        return rest[1:].split(".")
    if rest.startswith("[") and rest.endswith("]") and len(rest) > 2:
        return rest[1:-1].split("][")
    return None


def _claim(path: list[str], match: StringMatch, invert: bool) -> metadata_pb2.MetadataMatcher:
    """Return the condition on a claim. It holds if the claim is a matching string, or a list that contains one."""
    return metadata_pb2.MetadataMatcher(
        filter=JWT_AUTHN_FILTER,
        path=[metadata_pb2.MetadataMatcher.PathSegment(key=key) for key in (JWT_PAYLOAD, *path)],
        value=_claim_value(match),
        invert=invert,
    )


def _claim_value(match: StringMatch) -> value_pb2.ValueMatcher:
    if is_presence_match(match):
        return value_pb2.ValueMatcher(present_match=True)
    value = value_pb2.ValueMatcher(string_match=build_string_matcher(match))
    in_list = value_pb2.ValueMatcher(list_match=value_pb2.ListMatcher(one_of=value))
    return value_pb2.ValueMatcher(or_match=value_pb2.OrMatcher(value_matchers=[in_list, value]))


ANYTHING = "*"  # matches any value, although it is not a valid regular expression


def build_string_matcher(match: StringMatch) -> string_pb2.StringMatcher | None:
    """Return the string matcher, or None if the match is empty.

    https://www.envoyproxy.io/docs/envoy/latest/api-v3/type/matcher/v3/string.proto
    """
    if match.exact is not None:
        return string_pb2.StringMatcher(exact=match.exact)
    if match.prefix is not None:
        return string_pb2.StringMatcher(prefix=match.prefix)
    if match.regex is not None:
        return string_pb2.StringMatcher(safe_regex=build_regex(match.regex))
    return None


def build_regex(regex: str) -> regex_pb2.RegexMatcher:
    """Return the matcher for a regular expression (RE2), which must match the whole string."""
    return regex_pb2.RegexMatcher(regex=regex)


def is_presence_match(match: StringMatch) -> bool:
    """Return whether a match only tests for presence. Such a match is empty or has the regular expression `*`."""
    return match.regex == ANYTHING or (match.exact is None and match.prefix is None and match.regex is None)
