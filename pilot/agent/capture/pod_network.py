"""Addresses, routes and DNS servers of the pod's network namespace."""

from __future__ import annotations

import ipaddress
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pilot.agent.capture.capture_config import Tproxy
from pilot.agent.capture.capture_rules import Family, RulesError
from pilot.agent.capture.owner_matches import inbound_passthrough_source

RESOLV_CONF = pathlib.Path("/etc/resolv.conf")
PROTOCOL_FAMILIES = {Family.V4: 2, Family.V6: 10}
LOCAL_ROUTE, LINK_SCOPE = 2, 254
ALREADY_EXISTS, NOT_FOUND = 17, (2, 3, 99)  # EEXIST; ENOENT, ESRCH, EADDRNOTAVAIL
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def pod_addresses() -> list[Address]:
    """Return the addresses that are reachable from other machines, in the order of the network interfaces."""
    with IPRoute() as route:
        addresses = [ipaddress.ip_address(message.get("address")) for message in route.get_addr()]
    return [address for address in addresses if not (address.is_loopback or address.is_link_local)]


def captured_families(addresses: Sequence[Address], dual_stack: bool) -> tuple[Family, ...]:
    """Return the IP families to capture.

    IPv6 is captured if the first address is an IPv6 address. In dual-stack mode, any IPv6 address is sufficient.
    """
    candidates = addresses if dual_stack else addresses[:1]
    return (Family.V4, Family.V6) if any(address.version == 6 for address in candidates) else (Family.V4,)


def read_name_servers(path: pathlib.Path) -> list[str]:
    """Return the addresses of the DNS servers in a resolv.conf file. Raises OSError."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return [words[1].partition("%")[0] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def add_routes(families: Iterable[Family], tproxy: Tproxy | None) -> None:
    """Add the IPv6 source address for inbound passthrough and, in TPROXY mode, the routes for marked packets.

    Raises RulesError.
    """
    with IPRoute() as route:
        for family in families:
            if family is Family.V6:
                _change(
                    route.addr,
                    "add",
                    ALREADY_EXISTS,
                    index=_loopback_index(route),
                    address=str(inbound_passthrough_source(family).network_address),
                    prefixlen=128,
                )
            if tproxy is not None:
                _change(route.rule, "add", ALREADY_EXISTS, **_rule_arguments(family, tproxy))
                _change(route.route, "replace", ALREADY_EXISTS, **_route_arguments(route, family, tproxy))


def remove_routes(families: Iterable[Family], tproxy: Tproxy) -> None:
    """Remove the routes for marked packets. The source address remains, because connections may use it."""
    with IPRoute() as route:
        for family in families:
            _change(route.rule, "del", *NOT_FOUND, **_rule_arguments(family, tproxy))
            _change(route.route, "del", *NOT_FOUND, **_route_arguments(route, family, tproxy))


def _rule_arguments(family: Family, tproxy: Tproxy) -> dict[str, Any]:
    return {"family": PROTOCOL_FAMILIES[family], "fwmark": tproxy.mark, "table": tproxy.table}


def _route_arguments(route: IPRoute, family: Family, tproxy: Tproxy) -> dict[str, Any]:
    any_destination = "0.0.0.0/0" if family is Family.V4 else "::/0"
    arguments = {
        "family": PROTOCOL_FAMILIES[family],
        "dst": any_destination,
        "oif": _loopback_index(route),
        "table": tproxy.table,
    }
    return {**arguments, "type": LOCAL_ROUTE, "scope": LINK_SCOPE if family is Family.V4 else 0}


def _loopback_index(route: IPRoute) -> int:
    index: int = route.link_lookup(ifname="lo")[0]
    return index


def _change(method: Any, command: str, *ignored_codes: int, **arguments: Any) -> None:
    try:
        method(command, **arguments)
    except NetlinkError as error:
        if error.code not in ignored_codes:
            raise RulesError(f"{method.__name__ if hasattr(method, '__name__') else 'network'}: {error}") from error
