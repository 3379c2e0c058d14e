"""Workloads, services, policies, certificates and connections in the config_dump of a ztunnel."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Plain = dict[str, Any]
Table = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]
"""The head and the rows of a table."""
NONE = "None"
_WORKLOADS = ("NAMESPACE", "POD NAME", "ADDRESS", "NODE", "WAYPOINT", "PROTOCOL")
_SERVICES = ("NAMESPACE", "SERVICE NAME", "SERVICE VIP", "WAYPOINT", "ENDPOINTS")
_POLICIES = ("NAMESPACE", "POLICY NAME", "ACTION", "SCOPE")
_CERTIFICATES = ("CERTIFICATE NAME", "TYPE", "STATUS", "VALID CERT", "SERIAL NUMBER", "NOT AFTER", "NOT BEFORE")
_CONNECTIONS = ("WORKLOAD", "DIRECTION", "LOCAL", "REMOTE", "REMOTE TARGET", "PROTOCOL")


class PodKey(NamedTuple):
    """The namespace and name of a Pod."""

    namespace: str
    name: str


class ZtunnelDump:
    """The config_dump of a ztunnel. `workload` is the Pod that the user named, if it is not the ztunnel itself."""

    def __init__(self, dump: Plain, workload: PodKey | None = None) -> None:
        self.dump, self.workload = dump, workload

    def objects(self, field: str) -> list[Plain]:
        """Return the objects in a field, which is a list, or a map in older versions of ztunnel."""
        value = self.dump.get(field) or ()
        return [entry for entry in (value.values() if isinstance(value, dict) else value) if isinstance(entry, dict)]


def workloads(dump: ZtunnelDump, address: str = "", namespace: str = "", node: str = "") -> list[Plain]:
    """Return the workloads with an address, in a namespace and on a node. "" selects all."""
    pod = dump.workload
    selected = [
        one
        for one in dump.objects("workloads")
        if (not address or address in (one.get("workloadIps") or ()))
        and node in ("", one.get("node"))
        and (PodKey(one.get("namespace", ""), one.get("name", "")) == pod if pod else _is_in(one, namespace))
    ]
    return sorted(selected, key=lambda one: (_name(one), str(one.get("node"))))


def workload_table(dump: ZtunnelDump, selected: Iterable[Plain]) -> Table:
    waypoints = _service_names(dump)
    rows = [
        (
            one.get("namespace", ""),
            one.get("name", ""),
            ",".join(one.get("workloadIps") or ()) or one.get("hostname", ""),
            one.get("node", ""),
            _waypoint(one, waypoints),
            one.get("protocol", ""),
        )
        for one in selected
    ]
    return _WORKLOADS, rows


def services(dump: ZtunnelDump, namespace: str = "") -> list[Plain]:
    """Return the services in a namespace. "" selects all."""
    selected = [one for one in dump.objects("services") if _is_in(one, namespace)]
    return sorted(selected, key=lambda one: (_name(one), str(one.get("hostname"))))


def service_table(dump: ZtunnelDump, selected: Iterable[Plain]) -> Table:
    waypoints = _service_names(dump)
    healthy = {one.get("uid") for one in dump.objects("workloads") if one.get("status") == "Healthy"}
    rows = []
    for one in selected:
        endpoints = (one.get("endpoints") or {}).values()
        ready = sum(endpoint.get("workloadUid") in healthy for endpoint in endpoints)
        vips = ",".join(_ip(vip) for vip in one.get("vips") or ())
        rows.append((*_name(one), vips, _waypoint(one, waypoints), f"{ready}/{len(endpoints)}"))
    return _SERVICES, rows


def policies(dump: ZtunnelDump, namespace: str = "") -> list[Plain]:
    """Return the policies in a namespace. "" selects all."""
    return sorted((one for one in dump.objects("policies") if _is_in(one, namespace)), key=_name)


def policy_table(selected: Iterable[Plain]) -> Table:
    return _POLICIES, [(*_name(one), one.get("action", ""), one.get("scope", "")) for one in selected]


def certificate_table(certificates: Iterable[Plain], now: datetime.datetime | None = None) -> Table:
    time = now or datetime.datetime.now(datetime.UTC)
    return _CERTIFICATES, [row for one in certificates for row in _certificate_rows(one, time)]


def _certificate_rows(one: Plain, now: datetime.datetime) -> Iterator[tuple[str, ...]]:
    chain, roots = one.get("certChain") or [], one.get("rootCerts") or []
    types = ["Leaf", *(["Intermediate"] * (len(chain) - 1))][: len(chain)]
    if len(chain) > 1 and not roots:  # versions of ztunnel before rootCerts
        types[-1] = "Root"
    name, state = str(one.get("identity", "")), str(one.get("state", "")).partition(":")[0]
    if not chain:
        yield name, "NA", state, "false", "NA", "NA", "NA"
        return
    for kind, certificate in zip([*types, *["Root"] * len(roots)], [*chain, *roots], strict=True):
        begin, end = (str(certificate.get(field) or "NA") for field in ("validFrom", "expirationTime"))
        valid = str(_is_valid(begin, end, now)).lower()
        yield name, kind, state, valid, _hex(certificate.get("serialNumber", "")), end, begin


def _is_valid(begin: str, end: str, now: datetime.datetime) -> bool:
    try:
        return datetime.datetime.fromisoformat(begin) < now < datetime.datetime.fromisoformat(end)
    except (ValueError, TypeError):  # missing, or without a zone
        return False


def _hex(serial: object) -> str:
    text = str(serial)
    return f"{int(text):x}" if text.isdecimal() else text or "NA"


def connections(dump: ZtunnelDump, namespace: str = "") -> list[Plain]:
    """Return the states of the workloads in a namespace, with their connections. "" selects all."""
    states = [(one.get("info") or {}, one) for one in dump.objects("workloadState")]
    pod = dump.workload
    selected = [
        (info, one) for info, one in states if (PodKey(*_name(info)) == pod if pod else _is_in(info, namespace))
    ]
    return [one for info, one in sorted(selected, key=lambda pair: _name(pair[0]))]


def connection_table(dump: ZtunnelDump, selected: Iterable[Plain], direction: str = "", raw: bool = False) -> Table:
    """Return the table of connections in one direction, or in both. With `raw`, addresses are not replaced by names."""
    names = {} if raw else _names_by_ip(dump)
    rows = []
    for one in selected:
        name = ".".join(reversed(_name(one.get("info") or {})))
        both = one.get("connections") or {}
        for way in ("inbound", "outbound"):
            if direction in ("", way):
                ends = ("actualDst", "src", "originalDst") if way == "inbound" else ("src", "actualDst", "originalDst")
                rows += [
                    (name, way.capitalize(), *(_named(each.get(end), names) for end in ends), each.get("protocol", ""))
                    for each in both.get(way) or ()
                ]
    return _CONNECTIONS, rows


def _names_by_ip(dump: ZtunnelDump) -> dict[str, str]:
    workload_names = {
        ip: f"{one.get('name')}.{one.get('namespace')}"
        for one in dump.objects("workloads")
        for ip in one.get("workloadIps") or ()
    }
    return workload_names | {
        _ip(vip): str(one.get("hostname", "")) for one in dump.objects("services") for vip in one.get("vips") or ()
    }


def _named(address: str | None, names: dict[str, str]) -> str:
    ip, colon, port = (address or "").rpartition(":")
    name = names.get(ip.strip("[]"))
    return f"{name}{colon}{port}" if name else address or ""


def _service_names(dump: ZtunnelDump) -> dict[str, str]:
    """Return the names of services by the forms that refer to a waypoint: NAMESPACE/HOST, and NETWORK/ADDRESS."""
    names: dict[str, str] = {}
    for one in dump.objects("services"):
        for reference in (f"{one.get('namespace')}/{one.get('hostname')}", *(one.get("vips") or ())):
            names.setdefault(reference, str(one.get("name", "")))
    return names


def _waypoint(one: Plain, names: dict[str, str]) -> str:
    waypoint = one.get("waypoint")
    return names.get(waypoint.get("destination", ""), "NA") if waypoint else NONE


def _ip(vip: str) -> str:
    return vip.partition("/")[2]


def _name(one: Plain) -> tuple[str, str]:
    return str(one.get("namespace", "")), str(one.get("name", ""))


def _is_in(one: Plain, namespace: str) -> bool:
    return namespace in ("", one.get("namespace"))
