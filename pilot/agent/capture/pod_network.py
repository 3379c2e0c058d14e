"""Addresses, routes and name servers of the pod's network namespace."""

from __future__ import annotations

import ipaddress
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pilot.agent.capture.capture_config import Transparent
from pilot.agent.capture.errors import RulesError
from pilot.agent.capture.owner_matches import inbound_source
from pilot.agent.capture.rule_language import Family

RESOLVERS = pathlib.Path("/etc/resolv.conf")
PROTOCOL_FAMILIES = {Family.V4: 2, Family.V6: 10}
LOCAL_ROUTE, LINK_SCOPE = 2, 254
THERE, GONE = 17, (2, 3, 99)  # EEXIST; ENOENT, ESRCH, EADDRNOTAVAIL
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def addresses() -> list[Address]:
    """Returns the addresses by which others reach this machine, in the order of its interfaces."""
    with IPRoute() as route:
        found = [ipaddress.ip_address(each.get("address")) for each in route.get_addr()]
    return [each for each in found if not (each.is_loopback or each.is_link_local)]


def captured_families(addresses: Sequence[Address], dual_stack: bool) -> tuple[Family, ...]:
    """Returns the families of addresses that are captured: IPv6 where the first address is one, or with `dual_stack` any is."""
    looked_at = addresses if dual_stack else addresses[:1]
    return (Family.V4, Family.V6) if any(each.version == 6 for each in looked_at) else (Family.V4,)


def name_servers(path: pathlib.Path) -> list[str]:
    """Returns the addresses of the name servers that processes here ask."""
    words = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return [found[1].partition("%")[0] for found in words if len(found) > 1 and found[0] == "nameserver"]


def prepare(families: Iterable[Family], transparent: Transparent | None) -> None:
    """Has marked packets routed to this machine, where there are such, and gives it the address by which Envoy connects to the application.
    RulesError where the kernel does not take that."""
    with IPRoute() as route:
        for family in families:
            if family is Family.V6:
                _do(
                    route.addr,
                    "add",
                    THERE,
                    index=_loopback(route),
                    address=str(inbound_source(family).network_address),
                    prefixlen=128,
                )
            if transparent is not None:
                _do(route.rule, "add", THERE, **_rule(family, transparent))
                _do(route.route, "replace", THERE, **_route(route, family, transparent))


def forget(families: Iterable[Family], transparent: Transparent) -> None:
    """Takes away what `prepare` made for marked packets; the address stays, since connections may have it."""
    with IPRoute() as route:
        for family in families:
            _do(route.rule, "del", *GONE, **_rule(family, transparent))
            _do(route.route, "del", *GONE, **_route(route, family, transparent))


def _rule(family: Family, transparent: Transparent) -> dict[str, Any]:
    return {"family": PROTOCOL_FAMILIES[family], "fwmark": transparent.mark, "table": transparent.table}


def _route(route: IPRoute, family: Family, transparent: Transparent) -> dict[str, Any]:
    everywhere = "0.0.0.0/0" if family is Family.V4 else "::/0"
    where = {
        "family": PROTOCOL_FAMILIES[family],
        "dst": everywhere,
        "oif": _loopback(route),
        "table": transparent.table,
    }
    return {**where, "type": LOCAL_ROUTE, "scope": LINK_SCOPE if family is Family.V4 else 0}


def _loopback(route: IPRoute) -> int:
    index: int = route.link_lookup(ifname="lo")[0]
    return index


def _do(change: Any, what: str, *harmless: int, **arguments: Any) -> None:
    try:
        change(what, **arguments)
    except NetlinkError as error:
        if error.code not in harmless:
            raise RulesError(f"{change.__name__ if hasattr(change, '__name__') else 'network'}: {error}") from error
