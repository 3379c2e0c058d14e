"""Warnings about routes of VirtualServices that are unreachable because earlier routes match all of their requests."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import msgspec

from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, StringMatch, TCPRoute, TLSRoute
from pilot.config.problem import Problems, warning

_MAX_COMPARISONS = 20_000
"""The maximum number of conditions to compare in one object. Comparing this many takes about 20 ms.

Two matches are compared only if the path prefix of one covers that of the other. In ordinary objects, this is rare.
"""
_OTHERS = ("scheme", "method", "authority")
_MAPS = ("headers", "query_params", "without_headers")
_COMPARED = (*_MAPS, "source_labels", "gateways")


def find_unreachable(field: str, routes: Sequence[HTTPRoute | TLSRoute | TCPRoute]) -> Problems:
    """Yield a warning for each unreachable route or match.

    A route is unreachable if an earlier route has no match conditions. A match is unreachable if it repeats an earlier
    match, or if its prefix starts with the prefix of an earlier match whose other conditions are equal or weaker. The
    search for such an earlier match stops after `_MAX_COMPARISONS`.
    """
    if not routes or (len(routes) == 1 and len(routes[0].match) < 2):
        return
    catch_all: str | None = None
    spots_by_match: dict[bytes, str] = {}
    prefixes = _Prefixes()
    for index, route in enumerate(routes):
        place = f"{field}[{index}]"
        if catch_all is not None:
            text = f"never reached: {catch_all} matches everything; move {place} before {catch_all}"
            yield warning("unreachable-route", place, text)
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
                if (cover := prefixes.find_cover(prefix, match)) is not None:
                    yield warning("unreachable-match", spot, f"never reached: {cover} matches all of its requests")
                prefixes.add(spot, prefix, match)


class _Prefixes:
    """The matches with a path prefix in the earlier routes, keyed by prefix."""

    def __init__(self) -> None:
        self._matches: dict[str, list[tuple[int, str, HTTPMatchRequest]]] = {}
        self._lengths: list[int] = []
        self._added, self._comparisons = 0, 0

    def add(self, spot: str, prefix: str, match: HTTPMatchRequest) -> None:
        place = bisect.bisect_left(self._lengths, len(prefix))
        if self._lengths[place : place + 1] != [len(prefix)]:
            self._lengths.insert(place, len(prefix))
        self._matches.setdefault(prefix, []).append((self._added, spot, match))
        self._added += 1

    def find_cover(self, prefix: str, match: HTTPMatchRequest) -> str | None:
        """Return the path of the first match that covers `match`, or None if there is none."""
        covers = []
        for length in self._lengths[: bisect.bisect_right(self._lengths, len(prefix))]:
            for number, spot, earlier in self._matches.get(prefix[:length], ()):
                self._comparisons += 1 + sum(len(getattr(earlier, field)) for field in _COMPARED)
                if self._comparisons > _MAX_COMPARISONS:
                    return None
                if _covers(earlier, match):
                    covers.append((number, spot))
                    break
        return min(covers)[1] if covers else None


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
