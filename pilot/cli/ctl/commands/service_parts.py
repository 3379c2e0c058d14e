"""A service as text: the reasons for which requests may fail, routes, policies and endpoints."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from pilot.cli.ctl.output import SEVERITY_STYLES, Part, TextTable, fold, wrap

Plain = dict[str, Any]
_PLAINTEXT = {"STRICT": "rejected", "PERMISSIVE": "accepted", "DISABLE": "expected"}
SEVERITIES = tuple(SEVERITY_STYLES)
"""All severities, the worst last."""
_TIME = "%Y-%m-%d %H:%M:%S UTC"
"""The health status in Envoy of endpoints that are not ready."""
_MAX_SIDECARS = 3
"""Maximum number of Sidecars that a line names."""
_REQUESTS = (("requests", "*"), ("exceptions", "-"))


def service_parts(page: Plain) -> Iterator[Part]:
    """Yield the parts of the answer of `/debug/dashboard/service`."""
    ready = f"{page['ready']} of {page['total']} endpoints ready"
    yield f"{page['host']} in {page['namespace']}: {ready}"
    yield from reason_lines(page)
    if page["mtls"]:  # it is not known without endpoints
        yield fold(plaintext_line(page["mtls"], page["mtlsBy"], page["identityBy"]), "", "  ")
        yield from _without_sidecar(page)
    others = [effect for effect in page["hiddenBy"] if effect["namespace"] != page["namespace"]]
    yield from (_hidden(effect) for effect in page["hiddenBy"] if effect not in others)
    for title, table in (
        ("Callers:", _callers(page["callers"])),
        ("Routes:", wrap(_routes(page["routes"]), 3)),
        ("Destination rules:", _rules(page["rules"])),
        ("Policies:", wrap(_policies(page["policies"]), 2)),
        ("Endpoints:", _endpoints(page["endpoints"])),
    ):
        if table.rows:
            yield ""
            yield title
            yield table
    if others:
        yield ""
        yield _hidden(others[0]) if len(others) == 1 else _hidden_elsewhere(others)


def plaintext_line(mode: str, by: list[Plain], needed: list[Plain]) -> str:
    """Return a line that says whether callers without mutual TLS are admitted in the end.

    `by` are the PeerAuthentications that apply, the most specific last, and `needed` the AuthorizationPolicies that
    reject callers without an identity.
    """
    source = f"because of {_name(by[-1])}" if by else "by default, as no PeerAuthentication applies"
    if needed and mode != "STRICT":
        names, verb = " and ".join(map(_name, needed)), "requires" if len(needed) == 1 else "require"
        return f"Plain-text requests get 403: mutual TLS is {mode} {source}, but {names} {verb} an identity."
    return f"Plain text is {_PLAINTEXT[mode]}: mutual TLS is {mode} {source}."


def _without_sidecar(page: Plain) -> Iterator[str]:
    """Yield how many endpoints have no sidecar, so that the line about plain text does not apply to them."""
    total, number = len(page["endpoints"]), sum(not one["inMesh"] for one in page["endpoints"])
    if number:
        have = "1 endpoint has" if number == 1 else f"{number} endpoints have"
        yield fold(
            f"But {have} no sidecar, and therefore accept{'s' * (number == 1)} plain text from everybody.", "", "  "
        )
    elif total and not page["connected"]:
        yield "None of its sidecars is connected."


def _name(ref: Plain | None) -> str:
    return f"{ref['kind']} {ref['namespace']}/{ref['name']}" if ref else "-"


def reason_lines(page: Plain) -> Iterator[str | Text]:
    """Yield what makes requests fail according to the page of a service or a proxy, the worst first."""
    reasons = [(r["severity"], r["object"], r.get("changed"), r["text"]) for r in page.get("reasons", ())]
    reasons += [
        (p["severity"], p, p.get("changed"), ": ".join(filter(None, (p.get("path"), p["message"]))))
        for p in page.get("problems", ())
    ]
    reasons.sort(key=lambda reason: -SEVERITIES.index(reason[0]))
    if reasons:
        yield "Why requests may fail:"
    for severity, ref, changed, text in reasons:
        subject = f" in {_name(ref)}" if ref else ""
        moment = f" (changed {_moment(changed)})" if changed else ""
        lines = fold(f"{severity.capitalize()}{subject}{moment}: {text}", "  ", "    ")
        yield Text.assemble("  ", (severity.capitalize(), SEVERITY_STYLES[severity]), lines[2 + len(severity) :])


def _hidden(effect: Plain) -> str:
    proxies = "1 proxy" if effect["proxies"] == 1 else f"{effect['proxies']} proxies"
    since = f" (changed {_moment(effect['changed'])})" if effect["changed"] else ""
    text = f"{_name(effect['sidecar'])}{since} hides it from {proxies} of the namespace {effect['namespace']}."
    return fold(text, "", "  ")


def _hidden_elsewhere(effects: list[Plain]) -> str:
    """Return a line on the Sidecars that hide the service from proxies of several other namespaces."""
    names = list(dict.fromkeys(_name(effect["sidecar"]) for effect in effects))
    more = f" and {len(names) - _MAX_SIDECARS} more" if len(names) > _MAX_SIDECARS else ""
    proxies, verb = sum(effect["proxies"] for effect in effects), "hides" if len(names) == 1 else "hide"
    text = (
        f"{', '.join(names[:_MAX_SIDECARS])}{more} {verb} it from {proxies} proxies of {len(effects)} other namespaces."
    )
    return fold(text, "", "  ")


def _moment(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):{_TIME}}"


def _callers(callers: list[Plain]) -> TextTable:
    rows = [
        (
            f"{one['namespace']}/{one['account'] or '*'}" if one["namespace"] else "*",
            *("; ".join(requests["text"] for requests in one[part]) or none for part, none in _REQUESTS),
        )
        for one in callers
    ]
    return TextTable(("CALLER", "REQUESTS", "EXCEPT"), rows)


def _routes(routes: list[Plain]) -> TextTable:
    rows = [
        (
            _name(route["object"]),
            rule["path"],
            ", ".join(rule["match"]) or "*",
            ", ".join(_target(target, len(rule["to"]) > 1) for target in rule["to"]) or "-",
            rule["action"] or "-",
        )
        for route in routes
        for rule in route["rules"]
    ]
    return TextTable(("OBJECT", "RULE", "MATCH", "TO", "ACTION"), rows)


def _target(target: Plain, is_weighted: bool) -> str:
    """Return the host, the port and the subset of a destination, and its weight if there are several."""
    port = f":{target['port']}" if target.get("port") else ""
    subset = f" {target['subset']}" if target["subset"] else ""
    weight = f" {target['weight']} %" if is_weighted else ""
    return f"{target['host']}{port}{subset}{weight}"


def _rules(rules: list[Plain]) -> TextTable:
    rows = [(_name(rule["object"]), ", ".join(subset["name"] for subset in rule["subsets"]) or "-") for rule in rules]
    return TextTable(("OBJECT", "SUBSETS"), rows)


def _policies(policies: list[Plain]) -> TextTable:
    rows = [
        (
            policy["action"] + (" (dry run)" if policy["dryRun"] else ""),
            _name(policy["object"]),
            *("; ".join(rule[part]) or "*" for part in ("from", "to", "when")),
        )
        for policy in policies
        for rule in policy["rules"] or [{"from": ["nobody: it has no rules"], "to": [], "when": []}]
    ]
    return TextTable(("ACTION", "OBJECT", "FROM", "TO", "WHEN"), rows)


def _endpoints(endpoints: list[Plain]) -> TextTable:
    rows = [
        (
            f"{e['address']}:{e['port']}",
            _state(e),
            e["workload"] or "-",
            e["version"] or "-",
            e["proxy"].rpartition("-")[0] or ("not connected" if e["inMesh"] else "no sidecar"),
        )
        for e in endpoints
    ]
    return TextTable(("ADDRESS", "STATE", "WORKLOAD", "VERSION", "PROXY"), rows)


def _state(endpoint: Plain) -> str:
    """Return the state of an endpoint, with the conditions in its EndpointSlice if it is not ready."""
    return f"{endpoint['state']} ({endpoint['condition']})" if endpoint["condition"] else endpoint["state"]
