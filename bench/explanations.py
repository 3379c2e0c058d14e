"""The rows of docs/differences.md that explain differences between istiod and this control plane."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.conformance.scenario import Plain


class Change(NamedTuple):
    """A resource that differs in a mesh. One side is None if only the other control plane sends the resource.

    `texts` are the paths that differ, with their values.
    """

    objects: Sequence[Plain]
    theirs: Any
    ours: Any
    texts: Sequence[str] = ()
    name: str = ""

    @property
    def both(self) -> bool:
        return self.theirs is not None and self.ours is not None


def _always(_: Change) -> bool:
    return True


class Explanation(NamedTuple):
    """A row of docs/differences.md. It explains changes whose cause has the pattern, if they have a property."""

    row: str
    pattern: str
    applies: Callable[[Change], bool] = _always


def explanation(cause: str, change: Change) -> str:
    """Return the row of docs/differences.md that explains a change, or an empty string."""
    return next((e.row for e in EXPLANATIONS if re.search(e.pattern, cause) and e.applies(change)), "")


# -- properties of changes ---------------------------------------------------------------------------------------------


def _values(value: Any, field: str) -> list[Any]:
    """Return the values of a field wherever it occurs in plain data."""
    if isinstance(value, list):
        return [v for item in value for v in _values(item, field)]
    if not isinstance(value, dict):
        return []
    return [*([value[field]] if field in value else []), *(v for item in value.values() for v in _values(item, field))]


def _items(value: Any, field: str) -> collections.Counter[str]:
    """Return the items of all lists with this name."""
    return collections.Counter(json.dumps(item, sort_keys=True) for rows in _values(value, field) for item in rows)


def _domains_move(change: Change) -> bool:
    """Return whether the virtual hosts have the same domains on both sides, but not the same virtual host each."""
    return change.both and _items(change.theirs, "domains") == _items(change.ours, "domains")


def _domains_of_entry(change: Change) -> bool:
    """Return whether the domains that differ are addresses of a ServiceEntry that has several."""
    theirs, ours = _items(change.theirs, "domains"), _items(change.ours, "domains")
    domains = {json.loads(text).strip("[]") for text in (theirs - ours) + (ours - theirs)}
    declared = [entry["spec"].get("addresses") or () for entry in _entries(change)]
    addresses = [{re.sub("/(32|128)$", "", address) for address in row} for row in declared if len(row) > 1]
    return bool(domains) and domains <= set().union(*addresses)


def _filters_move(change: Change) -> bool:
    """Return whether the HTTP filters are the same on both sides, in a different order."""
    return change.both and _items(change.theirs, "httpFilters") == _items(change.ours, "httpFilters")


def _repeats_addresses(change: Change) -> bool:
    """Return whether the names of a name table have the same addresses, apart from repeated ones."""
    tables = [{host: {*info.get("ips", ())} for host, info in side["table"].items()} for side in change[1:3] if side]
    return len(tables) == 2 and tables[0] == tables[1]


def _entries(change: Change) -> list[Plain]:
    return [o for o in change.objects if o["kind"] == "ServiceEntry"]


def _shares_host(change: Change) -> bool:
    """Return whether a host that several ServiceEntries of a namespace declare occurs in the change.

    Only one side may have the listener, the routes or the inbound cluster of a port of such a host.
    """
    declared: dict[tuple[str, str], list[Plain]] = collections.defaultdict(list)
    for entry in _entries(change):
        for host in entry["spec"]["hosts"]:
            declared[entry["metadata"]["namespace"], host].append(entry)
    shared = {host: entries for (_, host), entries in declared.items() if len(entries) > 1}
    texts = change.texts if change.both else [json.dumps(change.theirs or change.ours)]
    ports: dict[int, set[str]] = collections.defaultdict(set)
    for port in (p for entries in shared.values() for e in entries for p in e["spec"].get("ports") or ()):
        ports[port["number"]].add(port.get("protocol", ""))
    # A port with several protocols has several listeners, and only istiod may merge it into that of other services.
    candidates = [number for number, protocols in ports.items() if not change.both or len(protocols) > 1]
    of_port = any(re.search(rf"(^|_){number}$|^inbound\|{number}\|", change.name) for number in candidates)
    return of_port or any(host in text for host in shared for text in texts)


def _repeats_matches(change: Change) -> bool:
    """Return whether only istiod's listener has several filter chains with the same match."""
    theirs, ours = (
        collections.Counter(json.dumps(c.get("filterChainMatch"), sort_keys=True) for c in side.get("filterChains", ()))
        for side in (change.theirs or {}, change.ours or {})
    )
    return any(n > 1 for n in theirs.values()) and all(n == 1 for n in ours.values())


def _imports_exact_host(change: Change) -> bool:
    """Return whether a Sidecar names a host with several addresses, without wildcards, that occurs in the change."""
    hosts = {
        h
        for e in _entries(change)
        if len(e["spec"].get("addresses") or ()) > 1
        for h in map(str.lower, e["spec"]["hosts"])
    }
    sidecars = [o["spec"] for o in change.objects if o["kind"] == "Sidecar"]
    listeners = [rows for spec in sidecars for egress in spec.get("egress") or () if (rows := egress.get("hosts"))]
    exact = {row.partition("/")[2].lower() for rows in listeners if not any("*" in row for row in rows) for row in rows}
    texts = change.texts if change.both else [json.dumps(change.theirs or change.ours)]
    return any(host in text for host in hosts & exact for text in texts)


def _lacks_labels(change: Change) -> bool:
    """Return whether the workload of a ztunnel is an object without labels."""
    kind, namespace, name = change.ours["workload"]["uid"].split("/")[-3:]
    return any(
        not ({*metadata.get("labels", ())} | {*o["spec"].get("labels", ())})
        for o in change.objects
        for metadata in [o["metadata"]]
        if (o["kind"], metadata.get("namespace"), metadata["name"]) == (kind, namespace, name)
    )


def _lacks_ranges(change: Change) -> bool:
    """Return whether the main listener of istiod's waypoint matches addresses, but has no range of them."""
    matchers = _values((change.theirs or {}).get("filterChainMatcher"), "customMatch")
    return bool(matchers) and not any(_values(matcher, "rangeMatchers") for matcher in matchers)


def _select_with_equal_age(change: Change) -> bool:
    """Return whether a policy differs that is derived from a PeerAuthentication, and several of a namespace select
    workloads."""
    namespaces = collections.Counter(
        o["metadata"].get("namespace")
        for o in change.objects
        if o["kind"] == "PeerAuthentication" and o["spec"].get("selector")
    )
    is_derived = any("/converted_peer_authentication_" in text for text in change.texts)
    return is_derived and max(namespaces.values(), default=0) > 1


def _canonical_of_equal_age(change: Change) -> bool:
    """Return whether several ServiceEntries of the same host were created in the same second."""
    created = collections.Counter(
        (host, str(entry["metadata"].get("creationTimestamp")))
        for entry in _entries(change)
        for host in set(entry["spec"]["hosts"])
        if change.name.endswith(f"/{host}")
    )
    return max(created.values(), default=0) > 1


def _applies_policies_outbound(change: Change) -> bool:
    """Return whether only istiod applies policies to connections to a wildcard host, and nothing else differs."""

    def names(side: Any) -> list[list[str]]:
        chains = [[row["name"].rpartition(".")[2] for row in filters] for filters in _values(side, "filters")]
        return [
            [n for n in chain if n != "rbac"] if "sni_dynamic_forward_proxy" in chain else chain for chain in chains
        ]

    return change.both and names(change.theirs) == names(change.ours)


def _scales_weights(change: Change) -> bool:
    """Return whether the weights of a DNS cluster differ by the same factor, which is the number of gateways."""
    theirs, ours = (_values(side, "loadBalancingWeight") for side in (change.theirs, change.ours))
    is_dns = change.both and "DNS" in change.ours.get("type", "")
    return is_dns and len(theirs) == len(ours) and len({a / b for a, b in zip(theirs, ours, strict=True)}) == 1


def _lacks_address(change: Change) -> bool:
    """Return whether only istiod sends endpoints without an address in a cluster with DNS."""
    theirs, ours = (_values(side, "socketAddress") for side in (change.theirs, change.ours))
    is_dns = change.both and "DNS" in change.ours.get("type", "")
    return is_dns and not all("address" in one for one in theirs) and all("address" in one for one in ours)


def _lacks_sockets(change: Change) -> bool:
    """Return whether only this control plane sends endpoints at Unix sockets, and the other addresses are the same."""
    theirs, ours = (
        collections.Counter(json.dumps(row, sort_keys=True) for row in _values(side, "socketAddress"))
        for side in (change.theirs, change.ours)
    )
    has_sockets = bool(_values(change.ours, "pipe")) and not _values(change.theirs, "pipe")
    return has_sockets and theirs == ours


def _repeats_server_names(change: Change) -> bool:
    """Return whether only istiod's filter chains name a server several times, and the names are the same."""
    theirs, ours = (_values(side, "serverNames") for side in (change.theirs, change.ours))
    repeats = any(len({*names}) < len(names) for names in theirs)
    return repeats and [{*names} for names in theirs] == [{*names} for names in ours]


def _repeats_gateways(change: Change) -> bool:
    """Return whether only istiod repeats routes, and a VirtualService names a gateway several times."""
    named = [
        [name if "/" in name else f"{o['metadata']['namespace']}/{name}" for name in o["spec"].get("gateways") or ()]
        for o in change.objects
        if o["kind"] == "VirtualService"
    ]
    theirs, ours = _items(change.theirs, "routes"), _items(change.ours, "routes")
    return any(len({*names}) < len(names) for names in named) and theirs != ours and {*theirs} == {*ours}


def _lacks_certificate(change: Change) -> bool:
    """Return whether only istiod sends a port or listener of a Gateway that terminates TLS without a certificate."""
    listeners = [
        row
        for o in change.objects
        if o["kind"] in ("Gateway", "ListenerSet")
        for row in o["spec"].get("listeners") or ()
        if (row.get("tls") or {}).get("mode", "Terminate") == "Terminate" and "tls" in row
    ]
    names = {f"_{row['port']}": row for row in listeners} | {f"~{row['name']}.": row for row in listeners}
    return change.ours is None and any(
        name in change.name and not row["tls"].get("certificateRefs") for name, row in names.items()
    )


def _drains(change: Change) -> bool:
    """Return whether endpoints that drain here are unhealthy at istiod, and nothing else differs."""

    def health(side: Any) -> collections.Counter[str]:
        return collections.Counter(_values(side, "healthStatus"))

    theirs, ours = health(change.theirs), health(change.ours)
    return change.both and set(theirs - ours) == {"UNHEALTHY"} and set(ours - theirs) == {"DRAINING"}


def _lacks_type_of_tag(change: Change) -> bool:
    """Return whether istiod sends custom tags without a type, and the other tags are the same."""

    def tags(side: Any) -> list[list[Plain]]:
        return [[tag for tag in row if len(tag) > 1] for row in _values(side, "customTags")]

    sent = [tag for row in _values(change.theirs, "customTags") for tag in row]
    return change.both and any(len(tag) == 1 for tag in sent) and tags(change.theirs) == tags(change.ours)


EXPLANATIONS = (
    Explanation("a custom tag of a Telemetry has no type", r"LDS .*tracing\.customTags", _lacks_type_of_tag),
    Explanation("the endpoints of a service with persistent sessions terminate", r"^\w+ EDS .*healthStatus", _drains),
    Explanation("a waypoint serves no service", r"^waypoint LDS filterChainMatcher", _lacks_ranges),
    Explanation("a workload in ambient mode has no labels", r"^ztunnel WDS .*authorizationPolicies", _lacks_labels),
    Explanation(
        "several PeerAuthentications that were created in the same second",
        r"^ztunnel WDS .*authorizationPolicies",
        _select_with_equal_age,
    ),
    Explanation(
        "several ServiceEntries of different namespaces with the same host were created in the same second",
        r"^ztunnel WDS service\.canonical$",
        _canonical_of_equal_age,
    ),
    Explanation(
        "a workload with AuthorizationPolicies connects over TLS to a wildcard host",
        r"^sidecar LDS filterChains\[\]\.filters(#order|\[envoy\.filters\.network\.rbac\])",
        _applies_policies_outbound,
    ),
    Explanation("the gateways of a network change", r"CDS loadAssignment.*oadBalancingWeight", _scales_weights),
    Explanation("a service with DNS selects a WorkloadEntry without an address", r"CDS loadAssignment", _lacks_address),
    Explanation(
        "a listener of a Gateway of the Gateway API terminates TLS", r"^router (L|R)DS missing", _lacks_certificate
    ),
    Explanation("a ServiceEntry has endpoints at Unix sockets", r" EDS endpoints", _lacks_sockets),
    Explanation("a match for TLS names the same host several times", r"LDS .*serverNames", _repeats_server_names),
    Explanation("a VirtualService names the same gateway several times", r"^router RDS .*routes", _repeats_gateways),
    Explanation("the endpoints of a service are removed", r"match(Typed)?SubjectAltNames|defaultValidationContext$"),
    Explanation("an AuthorizationPolicy for a ztunnel has a condition on HTTP requests", r"^ztunnel WADS "),
    Explanation("a patch merges into a value that other resources share", r"maxDirectResponseBodySizeBytes"),
    Explanation("the keys of a token issuer have not been fetched", r"provider_jwks|localJwks"),
    Explanation("an HTTP or network filter is added at the end of a chain", r"httpFilters", _filters_move),
    Explanation("several VirtualServices of a host have the same match", r"LDS filterChains", _repeats_matches),
    Explanation("several services with the same port have the same address", r"RDS .*domains", _domains_move),
    Explanation("a ServiceEntry has several addresses", r"RDS .*domains", _domains_of_entry),
    Explanation("several ServiceEntries with the same host have the same address", r"NDS .*ips", _repeats_addresses),
    Explanation("a Sidecar imports a host with several addresses by its exact name", r"(L|N)DS ", _imports_exact_host),
    Explanation("several ServiceEntries of a namespace have the same host", r" (C|E|L|N|R|W)DS ", _shares_host),
)
