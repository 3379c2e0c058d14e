"""Limits the size of the configuration that a single object can produce.

Some objects contain lists that are multiplied: a ServiceEntry results in a cluster for each host and port. A small
object can therefore result in gigabytes of configuration for every proxy.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.problem import Problems, error
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule
from pilot.lib.text import human_size

MAX_EXPANDED_BYTES = 32_000_000
"""Maximum size of an expanded object in bytes.

Each part adds the size of its JSON, multiplied by the number of its copies. Large ordinary objects, such as 50 hosts
with 200 routes each, or 250 external hosts with 4 ports each, expand to 10 MB. For an object that expands to 32 MB,
building the configuration takes less than a second of CPU time and 100 MB of memory.
"""
CLUSTER, LISTENER, ITEM = 8000, 2000, 500
"""Sizes of a cluster with its virtual host, of a listener, and of a route, subset or condition, in bytes.

They are added to the sizes of the parts that the object repeats.
"""


def check_service_entry(entry: ServiceEntry) -> Problems:
    """Yield an error if the clusters and listeners of a ServiceEntry exceed the maximum size in total.

    There is a cluster for each host and port. A TCP port has a listener for each address.
    """
    clusters = len(entry.hosts) * len(entry.ports)
    if clusters > 1:
        repeated = len(entry.addresses) * LISTENER + _size(entry.endpoints, entry.subject_alt_names)
        size = clusters * (CLUSTER + repeated)
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

    Each subset repeats the policies of the host.
    """
    size = len(rule.subsets) * (ITEM + _size(rule.traffic_policy)) + _size(rule.subsets)
    yield from _check(size, "subsets", "the traffic policies of all subsets")


def check_authorization_policy(policy: AuthorizationPolicy) -> Problems:
    """Yield an error if the rules of an AuthorizationPolicy exceed the maximum size in total.

    Each source and each operation repeats the conditions of its rule.
    """
    yield from _check(sum(map(_rule_size, policy.rules)), "rules", "the conditions of all sources and operations")


def _rule_size(rule: Rule) -> int:
    copies = max(len(rule.from_), 1) + len(rule.to)
    return copies * (len(rule.when) * ITEM + _size(rule.when)) + _size(rule.from_, rule.to)


def _check(size: int, path: str, parts: str) -> Problems:
    if size > MAX_EXPANDED_BYTES:
        yield error(
            "too-large",
            path,
            f"{parts} expand to {human_size(size)}, the limit is {human_size(MAX_EXPANDED_BYTES)}; split the object",
        )


def _size(*parts: object) -> int:
    """Return the total size of the parts in bytes when encoded as JSON."""
    return sum(len(_encode(part)) for part in parts if part)


_encode: Callable[[object], bytes] = msgspec.json.Encoder(enc_hook=str).encode
