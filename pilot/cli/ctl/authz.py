"""pilotctl authz check: which policies does a workload have, and which of them decides about a request?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import answers, asks
from pilot.cli.ctl.output import CommandResult, TextTable

_WORDS = {"allowed": "ALLOWED", "denied": "DENIED", "asked": "UP TO AN AUTHORIZER"}


@click.group()
def authz() -> None:
    """Who may call a workload."""


@authz.command()
@click.argument("proxy")
@click.option("--method", metavar="GET", help="method of HTTP (GET)")
@click.option("--path", metavar="/x", help="path, as it is after the mesh's normalization (/)")
@click.option("--host", help="host")
@click.option(
    "--from-principal", "principal", help="identity of the client, DOMAIN/ns/NAMESPACE/sa/ACCOUNT; none: plain text"
)
@click.option("--from-namespace", "namespace", help="namespace of the client, for its account default")
@click.option("--from-ip", "ip", metavar="ADDRESS", help="address that connects")
@click.option(
    "--remote-ip",
    "remoteIp",
    metavar="ADDRESS",
    help="address of the client behind trusted proxies (that of --from-ip)",
)
@click.option("--to-ip", "toIp", metavar="ADDRESS", help="address that is called (the workload's own)")
@click.option("--sni", metavar="NAME", help="name in the TLS handshake")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="header of the request; may be repeated")
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=VALUE",
    help="claim of a valid token, as text or JSON; may be repeated",
)
@click.option("--port", type=int, metavar="NUMBER", help="port that the workload listens on")
@click.option("--tcp", is_flag=True, default=None, help="a connection of which only TCP is known")
@answers
@asks
def check(client: PageClient, proxy: str, **described: Any) -> CommandResult:
    """The policies of a workload, and, for a request that is described, which of them decides.

    PROXY is its name, POD.NAMESPACE or a part of it.
    """
    question = _question(**described)
    found = client.get("authz", proxyID=proxy, **({"request": json.dumps(question)} if question else {}))
    return CommandResult(found, _parts(found, bool(question)))


def _parts(found: dict[str, Any], asked: bool) -> Iterator[str | TextTable]:
    if asked:
        yield f"{_WORDS[found['decision']]}: {found['why']}"
        yield _about(found)
        yield ""
    yield _policies(found["policies"], asked, found["proxy"])


def _question(headers: Sequence[str], claims: Sequence[str], **named: Any) -> dict[str, Any]:
    """Returns the request that the flags describe; {} where none does."""
    question = {field: value for field, value in named.items() if value is not None}
    if headers:
        question["headers"] = dict(_pairs("--header", headers))
    if claims:
        question["claims"] = {name: _plain(value) for name, value in _pairs("--claim", claims)}
    return question


def _pairs(flag: str, texts: Sequence[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise CommandError(f"{flag} {text!r}: expected NAME=VALUE")
        yield name, value


def _plain(text: str) -> Any:
    """Returns the value of a claim: lists and objects are JSON, anything else is text."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"--claim: {text!r} is not JSON: {error}") from error


def _about(found: dict[str, Any]) -> str:
    client = found["principal"] or "a client without identity"
    mode = f"; mutual TLS is {found['mutualTls']}" if found["mutualTls"] else ""
    return f"{found['protocol']} to {found['proxy']} from {client}{mode}"


def _policies(policies: Sequence[dict[str, Any]], asked: bool, proxy: str) -> str | TextTable:
    if not policies:
        return f"No AuthorizationPolicy is for {proxy}."
    rows = [(_action(p), p["namespace"], p["name"], *((_met(p["rulesMet"]),) if asked else ())) for p in policies]
    return TextTable(("ACTION", "NAMESPACE", "POLICY", *(("MEETS",) if asked else ())), rows)


def _action(policy: dict[str, Any]) -> str:
    more = [f"({policy['provider']})"] if policy.get("provider") else []
    return " ".join([policy["action"], *more, *(["(tried)"] if policy.get("dryRun") else [])])


def _met(rules: Sequence[int]) -> str:
    return f"rule {', '.join(map(str, rules))}" if rules else "-"
