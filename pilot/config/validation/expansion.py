"""Limits the size of the configuration that a single object can produce.

Some objects contain lists that are multiplied: a ServiceEntry results in a cluster for each host and port. A small
object can therefore result in gigabytes of configuration for every proxy.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilot.config.networking.destination_rule import DestinationRule, TrafficPolicy
from pilot.config.networking.service_entry import ServiceEntry, copies
from pilot.config.networking.sidecar import Sidecar
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.problem import Problems, below, error
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule
from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.config.telemetry import Telemetry
from pilot.lib.hosts import is_wildcard
from pilot.lib.text import human_size

MAX_EXPANDED_BYTES = 32_000_000
"""Maximum size of an expanded object in bytes.

Each part adds the size of its JSON, multiplied by the number of its copies. Large ordinary objects, such as 50 hosts
with 200 routes each, or 250 external hosts with 4 ports each, expand to 10 MB. For an object that expands to 32 MB,
building the configuration takes less than a second of CPU time and 100 MB of memory.
"""
CLUSTER, LISTENER, ITEM, ENDPOINT = 8000, 2000, 500, 200
"""Sizes in bytes: a cluster with its virtual host, a listener, a route, subset or condition, and an endpoint.

They are added to the sizes of the parts that the object repeats.
"""
MAX_POLICY_BYTES = 16_000
"""Maximum size of the traffic policy of a cluster as JSON, in bytes.

Each cluster of the services that a DestinationRule matches has a copy. Names of 400 peers take 16 kB.
"""
MAX_WILDCARD_SUBSETS = 64
"""Maximum number of subsets of a DestinationRule with a wildcard host. Each service that it matches has all of them."""
MAX_TELEMETRY_BYTES = 64_000
"""Maximum size of a Telemetry as JSON, in bytes. Each listener has a copy."""
MAX_EGRESS_LISTENERS = 128
"""Maximum number of egress listeners of a Sidecar. Each may import all services of the mesh."""
MAX_PORTS = 1000
"""Maximum number of ports of a workload that a Sidecar or PeerAuthentication lists. Each has several filter chains."""


def limited(limits: Problems, others: Problems) -> Problems:
    """Yield the problems of `limits` or, if there are none, `others`.

    An object that exceeds a limit is not checked further, so that many of them do not delay a start.
    """
    exceeded = tuple(limits)
    yield from exceeded or others


def check_service_entry(entry: ServiceEntry) -> Problems:
    """Yield an error if the clusters and listeners of a ServiceEntry exceed the maximum size in total.

    There is a cluster for each host and port. A TCP port has a listener for each address, and a cluster repeats the
    endpoints for each address.
    """
    clusters = len(entry.hosts) * len(entry.ports)
    if clusters > 1:
        endpoints = len(entry.endpoints) * copies(len(entry.endpoints), len(entry.addresses))
        repeated = len(entry.addresses) * LISTENER + endpoints * ENDPOINT
        size = clusters * (CLUSTER + repeated + _size(entry.endpoints, entry.subject_alt_names))
        yield from _check(size, "ports", "the hosts, with all ports, addresses and endpoints,")


def check_virtual_service(service: VirtualService) -> Problems:
    """Yield an error if the routes of a VirtualService exceed the maximum size in total.

    There is a route for each match, and every host has a copy of all routes.
    """
    routes = sum(
        max(len(route.match), 1) * (ITEM + _size(msgspec.structs.replace(route, match=()))) + _size(route.match)
        for route in service.http
    )
    yield from _check(max(len(service.hosts), 1) * routes, "http", "the routes of all hosts")


def check_destination_rule(rule: DestinationRule) -> Problems:
    """Yield an error if the policies of a DestinationRule exceed the maximum size in total.

    Each subset repeats the policies of the host. Yield an error too for each policy that is too large for a cluster.
    """
    if is_wildcard(rule.host):
        yield from _check_count(len(rule.subsets), "subsets", "subsets for a wildcard host", MAX_WILDCARD_SUBSETS)
    yield from below("trafficPolicy", _check_policy(rule.traffic_policy))
    for index, subset in enumerate(rule.subsets):
        yield from below(f"subsets[{index}].trafficPolicy", _check_policy(subset.traffic_policy))
    size = len(rule.subsets) * (ITEM + _size(rule.traffic_policy)) + _size(rule.subsets)
    yield from _check(size, "subsets", "the traffic policies of all subsets")


def _check_policy(policy: TrafficPolicy | None) -> Problems:
    if policy is not None:
        own = msgspec.structs.replace(policy, port_level_settings=())
        yield from _check(_size(own), "", "the fields of the policy", MAX_POLICY_BYTES)
        for index, settings in enumerate(policy.port_level_settings):
            yield from _check(
                _size(settings), f"portLevelSettings[{index}]", "the fields of the policy", MAX_POLICY_BYTES
            )


def check_sidecar(sidecar: Sidecar) -> Problems:
    """Yield an error if a Sidecar has too many listeners."""
    yield from _check_count(len(sidecar.ingress), "ingress", "listeners", MAX_PORTS)
    yield from _check_count(len(sidecar.egress), "egress", "listeners", MAX_EGRESS_LISTENERS)


def check_peer_authentication(policy: PeerAuthentication) -> Problems:
    """Yield an error if a PeerAuthentication has too many ports."""
    yield from _check_count(len(policy.port_level_mtls), "portLevelMtls", "ports", MAX_PORTS)


def check_telemetry(telemetry: Telemetry) -> Problems:
    """Yield an error if a Telemetry is too large."""
    yield from _check(_size(telemetry), "", "the settings of each listener", MAX_TELEMETRY_BYTES)


def _check_count(count: int, path: str, items: str, most: int) -> Problems:
    if count > most:
        yield error("too-many", path, f"{count} {items}; at most {most} are allowed")


def check_authorization_policy(policy: AuthorizationPolicy) -> Problems:
    """Yield an error if the rules of an AuthorizationPolicy exceed the maximum size in total.

    Each source and each operation repeats the conditions of its rule.
    """
    yield from _check(sum(map(_rule_size, policy.rules)), "rules", "the conditions of all sources and operations")


def _rule_size(rule: Rule) -> int:
    copies = max(len(rule.from_), 1) + len(rule.to)
    return copies * (len(rule.when) * ITEM + _size(rule.when)) + _size(rule.from_, rule.to)


def _check(size: int, path: str, parts: str, most: int = MAX_EXPANDED_BYTES) -> Problems:
    if size > most:
        text = f"{parts} expand to {human_size(size)}, the limit is {human_size(most)}; split the object"
        yield error("too-large", path, text)


def _size(*parts: object) -> int:
    """Return the total size of the parts in bytes when encoded as JSON."""
    return sum(len(_encode(part)) for part in parts if part)


_encode: Callable[[object], bytes] = msgspec.json.Encoder(enc_hook=str).encode
