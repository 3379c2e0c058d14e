"""The traffic to capture, parsed from the settings."""

from __future__ import annotations

import grp
import ipaddress
import pwd
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pilot.agent.capture.capture_rules import Family, Network
from pilot.agent.capture.capture_settings import CaptureSettings, InboundSettings, ProxySettings
from pilot.lib.flags import FlagError

WILDCARD = "*"
DEFAULT_PROXY_USER = 1337
MAX_GROUPS = 64
MODES = ("REDIRECT", "TPROXY")
INTERFACE = re.compile(r"[^\s/\"'+!]{1,15}\+?")


class Ports(NamedTuple):
    """A selection of ports: every port if `all`, or else those in `numbers`."""

    all: bool
    numbers: tuple[int, ...]


class Networks(NamedTuple):
    """A selection of addresses: every address if `all`, or else those in `networks`."""

    all: bool
    networks: tuple[Network, ...]

    def of_family(self, family: Family) -> tuple[Network, ...]:
        """Return the networks of one IP family."""
        return tuple(network for network in self.networks if network.version == family)


class Tproxy(NamedTuple):
    """Parameters of TPROXY mode: the mark of captured packets and their routing table."""

    mark: int
    table: int


class OwnerGroups(NamedTuple):
    """IDs of application groups. If `include`, only these groups are captured. Otherwise, all other groups are."""

    include: bool
    groups: tuple[int, ...]


class CaptureConfig(NamedTuple):
    """The traffic to capture.

    `tproxy` is None in REDIRECT mode. `name_servers` are the DNS servers whose queries are redirected to the agent, or
    None to capture no DNS.
    """

    outbound_port: int
    inbound_port: int
    tunnel_port: int
    proxy_users: tuple[int, ...]
    proxy_groups: tuple[int, ...]
    tproxy: Tproxy | None
    inbound: Ports
    excluded_inbound_ports: tuple[int, ...]
    outbound: Networks
    excluded_networks: Networks
    outbound_ports: tuple[int, ...]
    excluded_outbound_ports: tuple[int, ...]
    owner_groups: OwnerGroups
    loopback_ipv4: Network
    excluded_interfaces: tuple[str, ...]
    virtual_interfaces: tuple[str, ...]
    name_servers: Networks | None
    drop_invalid: bool

    def loopback(self, family: Family) -> Network:
        """Return the loopback network of an IP family."""
        return self.loopback_ipv4 if family is Family.V4 else ipaddress.IPv6Network("::1/128")


def parse_capture_config(settings: CaptureSettings, name_servers: Callable[[], Sequence[str]]) -> CaptureConfig:
    """Return the configuration. `name_servers` returns the addresses of the pod's DNS servers. Raises FlagError."""
    proxy, inbound, outbound, pod = settings.proxy, settings.inbound, settings.outbound, settings.pod
    if inbound.mode and inbound.mode not in MODES:
        raise FlagError(
            f"invalid argument for --istio-inbound-interception-mode: {inbound.mode!r} is neither REDIRECT nor TPROXY"
        )
    users = _ids(proxy.users, "--proxy-uid", _user_id) or (_default_user(proxy),)
    excluded_networks = _networks(outbound.excluded_networks, "--istio-service-exclude-cidr")
    if excluded_networks.all:
        raise FlagError("invalid argument for --istio-service-exclude-cidr: * would exclude all networks")
    return CaptureConfig(
        _port(str(proxy.outbound_port), "--envoy-port"),
        _port(str(proxy.inbound_port), "--inbound-capture-port"),
        _port(str(proxy.tunnel_port), "--inbound-tunnel-port"),
        proxy_users=users,
        proxy_groups=_ids(proxy.groups, "--proxy-gid", _group_id) or users,
        tproxy=_tproxy(inbound) if inbound.mode == "TPROXY" else None,
        inbound=_ports(inbound.ports, "--istio-inbound-ports"),
        excluded_inbound_ports=_ports(inbound.excluded_ports, "--istio-local-exclude-ports").numbers,
        outbound=_networks(outbound.networks, "--istio-service-cidr"),
        excluded_networks=excluded_networks,
        outbound_ports=_ports(outbound.ports, "--istio-outbound-ports").numbers,
        excluded_outbound_ports=_ports(outbound.excluded_ports, "--istio-local-outbound-ports-exclude").numbers,
        owner_groups=_owner_groups(outbound.groups, outbound.excluded_groups),
        loopback_ipv4=_network(outbound.loopback, "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"),
        excluded_interfaces=_interfaces(pod.excluded_interfaces, "--istio-exclude-interfaces"),
        virtual_interfaces=_interfaces(pod.virtual_interfaces, "--kube-virt-interfaces"),
        name_servers=_name_servers(pod.all_dns, name_servers) if pod.dns else None,
        drop_invalid=pod.drop_invalid,
    )


def _tproxy(inbound: InboundSettings) -> Tproxy:
    return Tproxy(
        _uint32(inbound.mark, "--istio-inbound-tproxy-mark"),
        _uint32(inbound.table, "--istio-inbound-tproxy-route-table"),
    )


def _name_servers(capture_all: bool, name_servers: Callable[[], Sequence[str]]) -> Networks | None:
    """Return the DNS servers whose queries are captured, or None if there are none."""
    networks = () if capture_all else tuple(ipaddress.ip_network(address) for address in name_servers())
    return Networks(capture_all, networks) if capture_all or networks else None


def _owner_groups(included: Sequence[str], excluded: Sequence[str]) -> OwnerGroups:
    if WILDCARD in included:
        include, names, variable = False, excluded, "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"
    elif excluded:
        raise FlagError("set either ISTIO_OUTBOUND_OWNER_GROUPS or ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE, not both")
    else:
        include, names, variable = True, included, "ISTIO_OUTBOUND_OWNER_GROUPS"
    if len(names) > MAX_GROUPS:
        raise FlagError(f"{variable} has {len(names)} groups; at most {MAX_GROUPS} are allowed")
    return OwnerGroups(include, _ids(names, variable, _group_id))


def _default_user(proxy: ProxySettings) -> int:
    try:
        return _user_id(proxy.user_name)
    except KeyError:
        return DEFAULT_PROXY_USER


def _user_id(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def _group_id(name: str) -> int:
    return grp.getgrnam(name).gr_gid


def _ids(names: Sequence[str], setting: str, find_id: Callable[[str], int]) -> tuple[int, ...]:
    """Return the numeric IDs of users or groups. Raises FlagError for an unknown name."""
    try:
        ids = tuple(int(name) if name.isdecimal() else find_id(name) for name in names)
    except KeyError as error:
        raise FlagError(f"invalid argument for {setting}: {error.args[0]}") from None
    for number in ids:
        _uint32(number, setting)
    return ids


def _uint32(number: int, setting: str) -> int:
    """Return the number. Raises FlagError if it does not fit into 32 unsigned bits."""
    if not 0 <= number < 2**32:
        raise FlagError(f"invalid argument for {setting}: {number} is not between 0 and {2**32 - 1}")
    return number


def _ports(texts: Sequence[str], setting: str) -> Ports:
    if WILDCARD in texts:
        return Ports(True, ())
    return Ports(False, tuple(_port(text, setting) for text in texts))


def _port(text: str, setting: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise FlagError(f"invalid argument for {setting}: {text!r} is not a port")
    return int(text)


def _interfaces(names: Sequence[str], setting: str) -> tuple[str, ...]:
    for name in names:
        if not INTERFACE.fullmatch(name):
            raise FlagError(f"invalid argument for {setting}: {name!r} is not an interface name")
    return tuple(names)


def _networks(texts: Sequence[str], setting: str) -> Networks:
    if WILDCARD in texts:
        return Networks(True, ())
    return Networks(False, tuple(_network(text, setting) for text in texts))


def _network(text: str, setting: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise FlagError(f"invalid argument for {setting}: {error}") from None
