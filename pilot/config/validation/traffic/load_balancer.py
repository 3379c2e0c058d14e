"""Validation of load balancer settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from pilot.config.networking.destination_rule import (
    ConsistentHashLB,
    Failover,
    HTTPCookie,
    LoadBalancerSettings,
    LocalityLoadBalancerSetting,
    ZoneAwareLoadBalancerSetting,
)
from pilot.config.problem import Problems, below, error, warning
from pilot.config.validation import rules
from pilot.config.validation.traffic.headers import check_line

_TOPOLOGY = frozenset({"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"})
# Envoy's maxima: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/cluster/v3/cluster.proto
_MAX_TABLE = 5_000_011
_MAX_RING = 8_388_608


def validate_load_balancer(settings: LoadBalancerSettings, outlier: bool) -> Problems:
    """Yield the problems of load balancer settings.

    `outlier` is set if outlier detection is configured, which failover requires.
    """
    if settings.backend_utilization is not None:
        yield warning("no-effect", "backendUtilization", "has no effect: the default load balancing is used")
    if settings.consistent_hash is not None:
        yield from below("consistentHash", _validate_hash(settings.consistent_hash))
    if settings.locality_lb_setting is not None and settings.zone_aware_lb_setting is not None:
        yield error("exclusive-fields", "", "only one of localityLbSetting and zoneAwareLbSetting may be set")
    if settings.locality_lb_setting is not None:
        yield from below("localityLbSetting", validate_locality(settings.locality_lb_setting, outlier))
    if settings.zone_aware_lb_setting is not None:
        yield from below("zoneAwareLbSetting", validate_zone_aware(settings.zone_aware_lb_setting, outlier))
    yield from rules.check_duration("warmupDurationSecs", settings.warmup_duration_secs)
    if (warmup := settings.warmup) is not None:
        if warmup.duration is None:
            yield error("missing-field", "warmup.duration", "a duration is required")
        yield from rules.check_duration("warmup.duration", warmup.duration)
        yield from rules.check_percent("warmup.minimumPercent", warmup.minimum_percent)
        if warmup.aggression is not None and not warmup.aggression > 0:
            yield error("out-of-range", "warmup.aggression", f"{warmup.aggression}: must be greater than 0")


def _validate_hash(hashing: ConsistentHashLB) -> Problems:
    for field, name in (
        ("httpHeaderName", hashing.http_header_name),
        ("httpQueryParameterName", hashing.http_query_parameter_name),
    ):
        if name == "":
            yield warning("no-effect", field, "has no effect without a name")
    yield from check_line("httpHeaderName", hashing.http_header_name or "")
    if hashing.http_cookie is not None:
        yield from below("httpCookie", _validate_cookie(hashing.http_cookie))
    if hashing.minimum_ring_size:
        yield warning("deprecated-field", "minimumRingSize", "use ringHash.minimumRingSize")
        if hashing.ring_hash is not None or hashing.maglev is not None:
            yield error(
                "exclusive-fields", "minimumRingSize", "only one of minimumRingSize, ringHash and maglev may be set"
            )
    ring = max(hashing.minimum_ring_size, hashing.ring_hash.minimum_ring_size if hashing.ring_hash is not None else 0)
    if ring > _MAX_RING:
        yield error("out-of-range", "ringHash.minimumRingSize", f"{ring}: must be at most {_MAX_RING}")
    if hashing.maglev is not None:
        size = hashing.maglev.table_size
        if not 0 < size < _MAX_TABLE or not _is_prime(size):
            yield error("bad-table-size", "maglev.tableSize", f"{size} is not a prime number below {_MAX_TABLE}")


def _validate_cookie(cookie: HTTPCookie) -> Problems:
    if not cookie.name:
        yield error("missing-field", "name", "a cookie name is required")
    names: set[str] = set()
    for index, attribute in enumerate(cookie.attributes):
        if not attribute.name:
            yield error("missing-field", f"attributes[{index}].name", "an attribute name is required")
        elif attribute.name in names:
            yield error("duplicate-name", f"attributes[{index}].name", f"duplicate {attribute.name!r}")
        names.add(attribute.name)


def _is_prime(number: int) -> bool:
    """Return whether a number below 9,080,191 is prime (the Miller-Rabin test, which is exact with two bases)."""
    if number < 100 or number % 2 == 0:
        return number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1))
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    return all(_is_probable_prime(base, number, twos) for base in (31, 73))


def _is_probable_prime(base: int, number: int, twos: int) -> bool:
    power = pow(base, (number - 1) >> twos, number)
    return power == 1 or any(pow(power, 1 << exponent, number) == number - 1 for exponent in range(twos))


def validate_locality(setting: LocalityLoadBalancerSetting, outlier: bool) -> Problems:
    if setting.distribute and setting.failover:
        yield error("exclusive-fields", "", "only one of distribute and failover may be set")
    if setting.failover and (topology := _TOPOLOGY.intersection(setting.failover_priority)):
        yield error("exclusive-fields", "failoverPriority", f"cannot contain {min(topology)} if failover is set")
    for index, distribute in enumerate(setting.distribute):
        place = f"distribute[{index}].to"
        if any(not 1 <= weight <= 100 for weight in distribute.to.values()):
            yield error("bad-weights", place, "each weight must be between 1 and 100")
        elif sum(distribute.to.values()) != 100:
            yield error("bad-weights", place, f"the weights add up to {sum(distribute.to.values())}, not 100")
        yield from _check_localities(place, distribute.to)
    yield from _check_localities("distribute", [d.from_ for d in setting.distribute])
    yield from _check_failover(setting.failover, bool(setting.failover or setting.failover_priority), outlier)


def validate_zone_aware(setting: ZoneAwareLoadBalancerSetting, outlier: bool) -> Problems:
    if topology := _TOPOLOGY.intersection(setting.failover_priority):
        yield error(
            "bad-label", "failoverPriority", f"must not contain {min(topology)}, which is handled automatically"
        )
    if setting.min_cluster_size == 0:
        yield error("out-of-range", "minClusterSize", "must be at least 1")
    yield from _check_failover(setting.failover, bool(setting.failover or setting.failover_priority), outlier)


def _check_failover(failover: Iterable[Failover], used: bool, outlier: bool) -> Problems:
    if used and not outlier:
        yield warning("failover-without-outlier-detection", "", "failover requires outlierDetection")
    for index, pair in enumerate(failover):
        place = f"failover[{index}]"
        if pair.from_ == pair.to:
            yield error("bad-locality", place, "from and to must differ")
        for region in (pair.from_, pair.to):
            if "/" in region or "*" in region:
                yield error("bad-locality", place, f"{region!r}: must be a region without wildcards")


def _check_localities(path: str, localities: Iterable[str]) -> Problems:
    """Yield an error for each locality that is invalid or overlaps with an earlier one.

    A locality is `region/zone/subzone`, or a prefix of it, with an optional `*` at the end.
    """
    places: dict[tuple[str, ...], str] = {}
    parents: dict[tuple[str, ...], str] = {}
    for locality in localities:
        parts = tuple(locality.split("/", 2))
        if not all(parts):
            yield error("bad-locality", path, f"{locality!r}: region, zone and subzone must not be empty")
        elif "*" in locality[:-1]:
            yield error("bad-locality", path, f"{locality!r}: a wildcard must be at the end")
        elif (overlapping := _find_overlapping(parts, places, parents)) is not None:
            yield error("bad-locality", path, f"{locality!r} overlaps with {overlapping!r}")
        else:
            places[parts[:-1] if parts[-1] == "*" else parts] = locality
            for level in range(1, len(parts) + 1):
                parents.setdefault(parts[:level], locality)


def _find_overlapping(
    parts: tuple[str, ...], places: Mapping[tuple[str, ...], str], parents: Mapping[tuple[str, ...], str]
) -> str | None:
    """Return an earlier locality that contains, or is contained in, the locality `parts`. Return None if there is none.

    `places` contains the earlier localities, keyed by their parts without a trailing wildcard. `parents` contains one
    earlier locality for each prefix of the earlier localities. A wildcard in `parts` stands only for localities that
    are not listed before it, so it does not overlap with those.
    """
    containing = (places.get(parts[:level]) for level in range(len(parts) + 1))
    return next((place for place in containing if place is not None), parents.get(parts))
