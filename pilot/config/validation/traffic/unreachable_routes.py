"""Warnings about routes of VirtualServices that are unreachable because earlier routes match all of their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, StringMatch, TCPRoute, TLSRoute
from pilot.config.problem import Problems, warning

_OTHERS = ("scheme", "method", "authority")
_MAPS = ("headers", "query_params", "without_headers")


def find_unreachable(field: str, routes: Sequence[HTTPRoute | TLSRoute | TCPRoute]) -> Problems:
    """Yield a warning for each unreachable route or match.

    A route is unreachable after a route without a match. A match is unreachable if it repeats an earlier match, or if
    its prefix starts with the prefix of an earlier match with the same or weaker conditions.
    """
    if not routes or (len(routes) == 1 and len(routes[0].match) < 2):
        return
    catch_all: str | None = None
    spots_by_match: dict[bytes, str] = {}
    prefixes: list[tuple[str, str, HTTPMatchRequest]] = []
    for index, route in enumerate(routes):
        place = f"{field}[{index}]"
        if catch_all is not None:
            yield warning("unreachable-route", place, f"never reached: {catch_all} matches everything")
            continue
        if not route.match:
            catch_all = place
        for number, match in enumerate(route.match):
            spot = f"{place}.match[{number}]"
            unnamed = (
                msgspec.structs.replace(match, name="") if isinstance(match, HTTPMatchRequest) and match.name else match
            )
            key = msgspec.msgpack.encode(unnamed, order="deterministic")
            if (earlier := spots_by_match.setdefault(key, spot)) != spot:
                yield warning("unreachable-match", spot, f"never reached: same as {earlier}")
            elif isinstance(match, HTTPMatchRequest) and match.uri is not None and (prefix := match.uri.prefix):
                if (
                    cover := next(
                        (s for s, shorter, m in prefixes if prefix.startswith(shorter) and _covers(m, match)), None
                    )
                ) is not None:
                    yield warning("unreachable-match", spot, f"never reached: {cover} matches all of its requests")
                prefixes.append((spot, prefix, match))


def _covers(earlier: HTTPMatchRequest, later: HTTPMatchRequest) -> bool:
    """Return whether `earlier` matches all requests that `later` matches, given that its path prefix covers that of
    `later`.

    Conditions are compared only for equality, so the result may be False although `earlier` covers `later`.
    """
    same = earlier.ignore_uri_case == later.ignore_uri_case and all(
        getattr(earlier, f) in (None, getattr(later, f)) for f in _OTHERS
    )
    limits = earlier.port in (0, later.port) and earlier.source_namespace in ("", later.source_namespace)
    reach = not earlier.gateways or earlier.gateways == later.gateways
    return (
        same
        and limits
        and reach
        and earlier.source_labels.items() <= later.source_labels.items()
        and _maps_cover(earlier, later)
    )


def _maps_cover(earlier: HTTPMatchRequest, later: HTTPMatchRequest) -> bool:
    for field in _MAPS:
        conditions: Mapping[str, StringMatch] = getattr(earlier, field)
        later_conditions: Mapping[str, StringMatch] = getattr(later, field)
        if any(later_conditions.get(name) != match for name, match in conditions.items()):
            return False
    return True
