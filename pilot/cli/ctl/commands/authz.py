"""pilotctl authz check: list the policies of a workload, and evaluate a request against them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import AliasGroup, with_client, with_output
from pilot.cli.ctl.commands.service_parts import plaintext_line
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies
from pilot.cli.ctl.output import CommandResult, TextTable, fold, wrap
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import (
    ANY_NAMESPACE,
    CLAIM,
    HEADER,
    HOST,
    METHOD,
    NAMESPACE,
    PATH,
    PRINCIPAL,
    SERVER_NAME,
)

_HTTP_FIELDS = ("method", "path", "host", "headers", "claims")
_WORDS = {"allowed": "ALLOWED", "denied": "DENIED", "asked": "DELEGATED"}


@click.group(cls=AliasGroup)
def authz() -> None:
    """Inspect authorization policies."""


@authz.command()
@click.argument("proxy", shell_complete=complete_proxies)
@click.option(
    "-n",
    "--namespace",
    "proxy_namespace",
    type=ANY_NAMESPACE,
    default="",
    help="namespace of PROXY",
    shell_complete=complete_namespaces,
)
@click.option("--method", type=METHOD, metavar="GET", help="HTTP method (default GET)")
@click.option("--path", type=PATH, metavar="/x", help="path after path normalization (default /)")
@click.option("--host", type=HOST, metavar="NAME", help="Host header")
@click.option(
    "--from-principal",
    "principal",
    type=PRINCIPAL,
    metavar="ID",
    help="client identity, NAMESPACE/ACCOUNT or DOMAIN/ns/NAMESPACE/sa/ACCOUNT; without one, the request is plaintext",
)
@click.option(
    "--from-namespace",
    "namespace",
    type=NAMESPACE,
    metavar="NAME",
    help="client namespace; the identity is its default service account",
)
@click.option("--from-ip", "ip", metavar="ADDRESS", help="source address of the connection")
@click.option(
    "--remote-ip",
    "remoteIp",
    metavar="ADDRESS",
    help="client address behind trusted proxies (default: --from-ip)",
)
@click.option("--to-ip", "toIp", metavar="ADDRESS", help="destination address (default: the workload's address)")
@click.option("--sni", type=SERVER_NAME, metavar="NAME", help="server name in the TLS handshake")
@click.option(
    "--header",
    "headers",
    type=HEADER,
    multiple=True,
    metavar="NAME=VALUE",
    help="request header; may be repeated",
)
@click.option(
    "--claim",
    "claims",
    type=CLAIM,
    multiple=True,
    metavar="NAME=VALUE",
    help="claim of a validated JWT, as text or JSON; may be repeated",
)
@click.option("--port", type=click.IntRange(1, 65535), metavar="NUMBER", help="port of the workload")
@click.option("--tcp", is_flag=True, default=None, help="evaluate a TCP connection instead of an HTTP request")
@with_output
@with_client
def check(client: Replicas, proxy: str, proxy_namespace: str, **attributes: Any) -> CommandResult:
    """List the AuthorizationPolicies of a workload. If options describe a request, evaluate it and report the deciding
    policy.

    PROXY is POD.NAMESPACE or part of it, or svc/NAME.NAMESPACE for the first proxy of a service.
    """
    call = _request_attributes(**attributes)
    query = {"namespace": proxy_namespace} if proxy_namespace else {}
    page = client.get("authz", proxyID=proxy, **query, **({"request": json.dumps(call)} if call else {}))
    return CommandResult(page, _parts(page, bool(call)))


def _parts(page: dict[str, Any], has_request: bool) -> Iterator[str | TextTable]:
    if has_request:
        yield f"{_WORDS[page['decision']]}: {page['why']}"
        yield _summary(page)
        yield ""
    elif "mutualTls" in page:
        yield fold(plaintext_line(page["mutualTls"], page["mtlsBy"], page["identityBy"]), "", "  ")
        yield ""
    yield _policy_table(page["policies"], has_request, page["proxy"])


def _request_attributes(headers: Sequence[str], claims: Sequence[str], **attributes: Any) -> dict[str, Any]:
    """Return the request that the options describe, or {} if there are none.

    Raise click.UsageError if the options contradict each other.
    """
    call = {field: value for field, value in attributes.items() if value is not None}
    if headers:
        call["headers"] = dict(_pairs(headers))
    if claims:
        call["claims"] = {name: _plain(value) for name, value in _pairs(claims)}
    if "principal" in call and "namespace" in call:
        raise click.UsageError("--from-principal and --from-namespace are mutually exclusive")
    if "tcp" in call and (field := next((f for f in _HTTP_FIELDS if f in call), None)):
        raise click.UsageError(f"--tcp and --{field.removesuffix('s')} are mutually exclusive")
    return call


def _pairs(texts: Sequence[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, _, value = text.partition("=")
        yield name, value


def _plain(text: str) -> Any:
    """Return the value of a claim. Lists and objects are parsed as JSON, and anything else is a string."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"--claim: {text!r} is not JSON: {error}") from error


def _summary(page: dict[str, Any]) -> str:
    client = page["principal"] or "a client without an identity"
    mode = f"; mutual TLS is {page['mutualTls']}" if page["mutualTls"] else ""
    return f"{page['protocol']} to {page['proxy']} from {client}{mode}"


def _policy_table(policies: Sequence[dict[str, Any]], has_request: bool, proxy: str) -> str | TextTable:
    if not policies:
        return f"No AuthorizationPolicy applies to {proxy}."
    rows = [
        (_action(p), p["namespace"], p["name"], *((_matched_rules(p["rulesMet"]),) if has_request else ()), *rule)
        for p in policies
        for rule in _rules(p)
    ]
    matches = ("MATCHES",) if has_request else ()
    head = ("ACTION", "NAMESPACE", "POLICY", *matches, "RULE", "FROM", "TO", "WHEN")
    return wrap(TextTable(head, rows), head.index("FROM"))


def _rules(policy: dict[str, Any]) -> Iterator[Sequence[str]]:
    """Yield a row for each rule of a policy: its index and its conditions."""
    rules = policy.get("rules", ())
    for index, rule in enumerate(rules):
        yield str(index), *("; ".join(rule[part]) or "*" for part in ("from", "to", "when"))
    if policy.get("moreRules"):
        yield f"and {policy['moreRules']} more", "", "", ""
    elif not rules:
        yield "-", "nobody: it has no rules", "-", "-"


def _action(policy: dict[str, Any]) -> str:
    more = [f"({policy['provider']})"] if policy.get("provider") else []
    return " ".join([policy["action"], *more, *(["(dry run)"] if policy.get("dryRun") else [])])


def _matched_rules(rules: Sequence[int]) -> str:
    return f"rule {', '.join(map(str, rules))}" if rules else "-"
