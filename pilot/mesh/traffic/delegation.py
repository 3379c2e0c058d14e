"""Resolves the delegates of VirtualServices. A route that refers to a delegate is replaced with the routes of the
delegate.

The matches of a delegated route must be subsets of the root's matches. Otherwise, the route is omitted.
https://istio.io/latest/docs/reference/config/networking/virtual-service/#Delegate
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, StringMatch

T = TypeVar("T")
MAX_MERGED_PAIRS = 8192
"""Maximum number of pairs of matches that are merged for the delegates of a VirtualService. Each takes about 3 µs."""


def count_pairs(root: HTTPRoute, delegated: Iterable[HTTPRoute]) -> int:
    """Return the number of pairs of matches that `merge_routes` merges."""
    return max(len(root.match), 1) * sum(max(len(route.match), 1) for route in delegated)


def merge_routes(root: HTTPRoute, delegated: Iterable[HTTPRoute]) -> tuple[HTTPRoute, ...]:
    """Return the delegate's routes, restricted to the root's matches. Unset fields are inherited from the root."""
    return tuple(merged for route in delegated if (merged := merge_route(root, route)) is not None)


def merge_route(root: HTTPRoute, route: HTTPRoute) -> HTTPRoute | None:
    """Return one delegated route, restricted to the root's matches, or None if its matches contradict them."""
    match = merge_matches(root.match, route.match)
    if match is None:
        return None
    return replace(
        route,
        match=match,
        name=_joined(root.name, route.name),
        rewrite=_first(route.rewrite, root.rewrite),
        direct_response=_first(route.direct_response, root.direct_response),
        timeout=_first(route.timeout, root.timeout),
        retries=_first(route.retries, root.retries),
        fault=_first(route.fault, root.fault),
        mirror=_first(route.mirror, root.mirror),
        mirrors=route.mirrors or root.mirrors,
        mirror_percent=_first(route.mirror_percent, root.mirror_percent),
        mirror_percentage=_first(route.mirror_percentage, root.mirror_percentage),
        cors_policy=_first(route.cors_policy, root.cors_policy),
        headers=_first(route.headers, root.headers),
    )


def merge_matches(
    root: tuple[HTTPMatchRequest, ...], leaf: tuple[HTTPMatchRequest, ...]
) -> tuple[HTTPMatchRequest, ...] | None:
    """Return the combinations of compatible matches, in the order of `leaf`, which are the matches of the delegated
    route.

    Return None if a match of the delegated route is not compatible with any match of the root.
    """
    if not root or not leaf:
        return root or leaf
    merged: list[HTTPMatchRequest] = []
    for inner in leaf:
        pairs = [merge_match(outer, inner) for outer in root if not contradicts(outer, inner)]
        if not pairs:
            return None
        merged += pairs
    return tuple(merged)


def merge_match(root: HTTPMatchRequest, leaf: HTTPMatchRequest) -> HTTPMatchRequest:
    """Return a match with the conditions of both matches. If both have a condition on the same property, the delegated
    route's condition applies, because it is narrower."""
    return replace(
        leaf,
        name=_joined(root.name, leaf.name),
        uri=_first(leaf.uri, root.uri),
        scheme=_first(leaf.scheme, root.scheme),
        method=_first(leaf.method, root.method),
        authority=_first(leaf.authority, root.authority),
        headers={**root.headers, **leaf.headers},
        without_headers={**root.without_headers, **leaf.without_headers},
        query_params={**root.query_params, **leaf.query_params},
        port=leaf.port or root.port,
        source_labels={**root.source_labels, **leaf.source_labels},
        source_namespace=leaf.source_namespace or root.source_namespace,
        gateways=leaf.gateways or root.gateways,
        stat_prefix=leaf.stat_prefix or root.stat_prefix,
    )


def contradicts(root: HTTPMatchRequest, leaf: HTTPMatchRequest) -> bool:
    """Return whether a condition of the delegated route's match is not a subset of the root's condition."""
    texts = (
        (root.uri, leaf.uri),
        (root.scheme, leaf.scheme),
        (root.method, leaf.method),
        (root.authority, leaf.authority),
    )
    maps = (
        (root.headers, leaf.headers),
        (root.without_headers, leaf.without_headers),
        (root.query_params, leaf.query_params),
    )
    return (
        any(_widens(outer, inner) for outer, inner in texts)
        or any(_widens(outer.get(key), inner) for outer, leaves in maps for key, inner in leaves.items())
        or root.ignore_uri_case != leaf.ignore_uri_case
        or bool(root.port and leaf.port and root.port != leaf.port)
        or bool(root.source_namespace and root.source_namespace != leaf.source_namespace)
        or _differ(root.source_labels, leaf.source_labels)
        or bool(
            root.gateways
            and leaf.gateways
            and (len(root.gateways) < len(leaf.gateways) or not set(leaf.gateways) <= set(root.gateways))
        )
    )


def _widens(root: StringMatch | None, leaf: StringMatch | None) -> bool:
    """Return whether `leaf` is not a subset of `root`. Regular expressions are never considered subsets."""
    if root is None or leaf is None:
        return False
    if root.exact:
        return leaf.exact != root.exact
    return not (root.prefix and (leaf.prefix or leaf.exact or "").startswith(root.prefix))


def _differ(root: Mapping[str, str], leaf: Mapping[str, str]) -> bool:
    return any(root.get(key, value) != value for key, value in leaf.items())


def _joined(outer: str, inner: str) -> str:
    return "-".join(part for part in (outer, inner) if part)


def _first(one: T | None, other: T | None) -> T | None:
    return one if one is not None else other
