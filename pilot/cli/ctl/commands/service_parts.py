"""A service as text: the reasons for which requests may fail, routes, policies and endpoints."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from pilot.cli.ctl.output import TextTable

Plain = dict[str, Any]
_PLAINTEXT = {"STRICT": "rejected (STRICT)", "PERMISSIVE": "accepted (PERMISSIVE)", "DISABLE": "expected (DISABLE)"}
_REQUESTS = (("requests", "*"), ("exceptions", "-"))


def service_parts(page: Plain) -> Iterator[str | TextTable]:
    """Yield the parts of the answer of `/debug/dashboard/service`."""
    ready = f"{page['ready']} of {page['total']} endpoints ready"
    yield f"{page['host']} in {page['namespace']}: {ready}"
    if page["mtls"]:  # it is not known without endpoints
        yield plaintext_line(page["mtls"], page["mtlsBy"], page["identityBy"])
    for title, table in (
        ("Why requests may fail:", reason_table(page)),
        ("Hidden by Sidecars:", _hidden(page["hiddenBy"])),
        ("Callers:", _callers(page["callers"])),
        ("Routes:", _routes(page["routes"])),
        ("Destination rules:", _rules(page["rules"])),
        ("Policies:", _policies(page["policies"])),
        ("Endpoints:", _endpoints(page["endpoints"])),
    ):
        if table.rows:
            yield ""
            yield title
            yield table


def plaintext_line(mode: str, by: list[Plain], needed: list[Plain]) -> str:
    """Return a line that says whether callers without mutual TLS are admitted in the end.

    `by` are the PeerAuthentications that apply, the most specific last, and `needed` the AuthorizationPolicies that
    reject callers without an identity.
    """
    because = f" because of {_name(by[-1])}" if by else ": no PeerAuthentication applies, and this is the default"
    verb = "rejects" if len(needed) == 1 else "reject"
    but = f"; but {' and '.join(map(_name, needed))} {verb} callers without an identity" if needed else ""
    return f"Plain text is {_PLAINTEXT[mode]}{because}{but if mode != 'STRICT' else ''}."


def _name(ref: Plain | None) -> str:
    return f"{ref['kind']} {ref['namespace']}/{ref['name']}" if ref else "-"


def reason_table(page: Plain) -> TextTable:
    """Return a table of what makes requests fail according to the page of a service or a proxy."""
    rows = [
        (reason["severity"], _name(reason["object"]), _time(reason.get("changed")), reason["text"])
        for reason in page.get("reasons", ())
    ]
    rows += [
        (p["severity"], _name(p), _time(p.get("changed")), ": ".join(filter(None, (p.get("path"), p["message"]))))
        for p in page.get("problems", ())
    ]
    return TextTable(("SEVERITY", "OBJECT", "LAST CHANGE (UTC)", "REASON"), rows)


def _time(seconds: float | None) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC) if seconds else None
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "-"


def _hidden(effects: list[Plain]) -> TextTable:
    rows = [(_name(effect["sidecar"]), effect["namespace"], effect["proxies"]) for effect in effects]
    return TextTable(("OBJECT", "NAMESPACE", "PROXIES"), rows)


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
            ", ".join(_target(target) for target in rule["to"]) or "-",
            rule["action"] or "-",
        )
        for route in routes
        for rule in route["rules"]
    ]
    return TextTable(("OBJECT", "RULE", "MATCH", "TO", "ACTION"), rows)


def _target(target: Plain) -> str:
    subset = f" {target['subset']}" if target["subset"] else ""
    weight = f" {target['weight']} %" if target["weight"] else ""
    return f"{target['host']}{subset}{weight}"


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
            "ready" if e["ready"] else "not ready",
            e["workload"] or "-",
            e["version"] or "-",
            e["proxy"] or "-",
        )
        for e in endpoints
    ]
    return TextTable(("ADDRESS", "STATE", "WORKLOAD", "VERSION", "PROXY"), rows)
