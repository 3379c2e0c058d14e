"""What is to be captured, as a value that rules follow from."""

from __future__ import annotations

import grp
import ipaddress
import pwd
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pilot.agent.capture.capture_settings import CaptureSettings, InboundSettings, ProxySettings
from pilot.agent.capture.rule_language import Family, Network
from pilot.lib.flags import FlagError

EVERYTHING = "*"
PROXY_USER = 1337
MAX_GROUPS = 64
MODES = ("REDIRECT", "TPROXY")
INTERFACE = re.compile(r"[^\s/\"'+!]{1,15}\+?")


class Ports(NamedTuple):
    """Every port where `all`, else these."""

    all: bool
    numbers: tuple[int, ...]


class Networks(NamedTuple):
    """Every address where `all`, else those in these networks."""

    all: bool
    networks: tuple[Network, ...]

    def of(self, family: Family) -> tuple[Network, ...]:
        """Returns the networks of one family of addresses."""
        return tuple(network for network in self.networks if network.version == family)


class Transparent(NamedTuple):
    """How packets reach Envoy with the caller's address: the mark that they get, and the routing table that takes those home."""

    mark: int
    table: int


class CaptureConfig(NamedTuple):
    """What is to be captured. `transparent` is None where the proxy may be seen as the caller. `name_servers` are those whose questions the agent
    answers, None where it answers none; `groups` are of applications that are captured alone (True) or that are not (False)."""

    outbound_port: int
    inbound_port: int
    tunnel_port: int
    users: tuple[int, ...]
    groups_of_proxy: tuple[int, ...]
    transparent: Transparent | None
    inbound: Ports
    not_inbound: tuple[int, ...]
    outbound: Networks
    not_outbound: Networks
    outbound_ports: tuple[int, ...]
    not_outbound_ports: tuple[int, ...]
    groups: tuple[bool, tuple[int, ...]]
    loopback: Network
    excluded_interfaces: tuple[str, ...]
    virtual_interfaces: tuple[str, ...]
    name_servers: Networks | None
    drop_invalid: bool

    def loopback_of(self, family: Family) -> Network:
        """Returns what counts as this machine."""
        return self.loopback if family is Family.V4 else ipaddress.IPv6Network("::1/128")


def parse_capture_config(settings: CaptureSettings, name_servers: Callable[[], Sequence[str]]) -> CaptureConfig:
    """Returns what settings ask for; `name_servers` returns the addresses of the pod's. FlagError where they cannot be understood."""
    proxy, inbound, outbound, pod = settings.proxy, settings.inbound, settings.outbound, settings.pod
    if inbound.mode and inbound.mode not in MODES:
        raise FlagError(
            f"invalid argument for --istio-inbound-interception-mode: {inbound.mode!r} is neither REDIRECT nor TPROXY"
        )
    users = _numbers_of(proxy.users, "--proxy-uid", _user) or (_default_user(proxy),)
    not_outbound = _networks(outbound.excluded_networks, "--istio-service-exclude-cidr")
    if not_outbound.all:
        raise FlagError("invalid argument for --istio-service-exclude-cidr: name networks; * would exclude everything")
    return CaptureConfig(
        _port(str(proxy.outbound_port), "--envoy-port"),
        _port(str(proxy.inbound_port), "--inbound-capture-port"),
        _port(str(proxy.tunnel_port), "--inbound-tunnel-port"),
        users=users,
        groups_of_proxy=_numbers_of(proxy.groups, "--proxy-gid", _group) or users,
        transparent=_transparent(inbound) if inbound.mode == "TPROXY" else None,
        inbound=_ports(inbound.ports, "--istio-inbound-ports"),
        not_inbound=_ports(inbound.excluded_ports, "--istio-local-exclude-ports").numbers,
        outbound=_networks(outbound.networks, "--istio-service-cidr"),
        not_outbound=not_outbound,
        outbound_ports=_ports(outbound.ports, "--istio-outbound-ports").numbers,
        not_outbound_ports=_ports(outbound.excluded_ports, "--istio-local-outbound-ports-exclude").numbers,
        groups=_owner_groups(outbound.groups, outbound.excluded_groups),
        loopback=_network(outbound.loopback, "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"),
        excluded_interfaces=_interfaces(pod.excluded_interfaces, "--istio-exclude-interfaces"),
        virtual_interfaces=_interfaces(pod.virtual_interfaces, "--kube-virt-interfaces"),
        name_servers=_name_servers(pod.all_dns, name_servers) if pod.dns else None,
        drop_invalid=pod.drop_invalid,
    )


def _transparent(inbound: InboundSettings) -> Transparent:
    return Transparent(
        _fits(inbound.mark, "--istio-inbound-tproxy-mark"), _fits(inbound.table, "--istio-inbound-tproxy-route-table")
    )


def _name_servers(every: bool, name_servers: Callable[[], Sequence[str]]) -> Networks | None:
    """Returns the servers whose questions are answered; None where there are none."""
    found = () if every else tuple(ipaddress.ip_network(address) for address in name_servers())
    return Networks(every, found) if every or found else None


def _owner_groups(only: Sequence[str], but: Sequence[str]) -> tuple[bool, tuple[int, ...]]:
    if EVERYTHING in only:
        taken, names, where = False, but, "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"
    elif but:
        raise FlagError("set ISTIO_OUTBOUND_OWNER_GROUPS or ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE, not both")
    else:
        taken, names, where = True, only, "ISTIO_OUTBOUND_OWNER_GROUPS"
    if len(names) > MAX_GROUPS:
        raise FlagError(f"{where} has {len(names)} groups; {MAX_GROUPS} are possible")
    return taken, _numbers_of(names, where, _group)


def _default_user(proxy: ProxySettings) -> int:
    try:
        return _user(proxy.user_name)
    except KeyError:
        return PROXY_USER


def _user(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def _group(name: str) -> int:
    return grp.getgrnam(name).gr_gid


def _numbers_of(names: Sequence[str], where: str, number_of: Callable[[str], int]) -> tuple[int, ...]:
    """Returns the numbers of users or groups. FlagError for a name that nobody has."""
    try:
        found = tuple(int(name) if name.isdecimal() else number_of(name) for name in names)
    except KeyError as error:
        raise FlagError(f"invalid argument for {where}: {error.args[0]}") from None
    for number in found:
        _fits(number, where)
    return found


def _fits(number: int, where: str) -> int:
    """Returns a number that the kernel keeps in four bytes. FlagError for others."""
    if not 0 <= number < 2**32:
        raise FlagError(f"invalid argument for {where}: {number} is not between 0 and {2**32 - 1}")
    return number


def _ports(texts: Sequence[str], where: str) -> Ports:
    if EVERYTHING in texts:
        return Ports(True, ())
    return Ports(False, tuple(_port(text, where) for text in texts))


def _port(text: str, where: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise FlagError(f"invalid argument for {where}: {text!r} is not a port")
    return int(text)


def _interfaces(names: Sequence[str], where: str) -> tuple[str, ...]:
    for name in names:
        if not INTERFACE.fullmatch(name):
            raise FlagError(f"invalid argument for {where}: {name!r} is not the name of an interface")
    return tuple(names)


def _networks(texts: Sequence[str], where: str) -> Networks:
    if EVERYTHING in texts:
        return Networks(True, ())
    return Networks(False, tuple(_network(text, where) for text in texts))


def _network(text: str, where: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise FlagError(f"invalid argument for {where}: {error}") from None
