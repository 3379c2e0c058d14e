"""pilotctl authz check: which policies does a workload have, and which of them decides about a request?"""
from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

from pilot.cli.ctl.client import Client, CommandError
from pilot.cli.ctl.output import add_output, as_json, table

# The flags that describe a request: name, field of the question, what it is
_FLAGS = (
    ("--method", "method", "GET", "method of HTTP (GET)"),
    ("--path", "path", "/x", "path, as it is after the mesh's normalization (/)"),
    ("--host", "host", "HOST", "host"),
    ("--from-principal", "principal", "PRINCIPAL", "identity of the client, DOMAIN/ns/NAMESPACE/sa/ACCOUNT; none: plain text"),
    ("--from-namespace", "namespace", "NAMESPACE", "namespace of the client, for its account default"),
    ("--from-ip", "ip", "ADDRESS", "address that connects"),
    ("--remote-ip", "remoteIp", "ADDRESS", "address of the client behind trusted proxies (that of --from-ip)"),
    ("--to-ip", "toIp", "ADDRESS", "address that is called (the workload's own)"),
    ("--sni", "sni", "NAME", "name in the TLS handshake"),
)
_WORDS = {"allowed": "ALLOWED", "denied": "DENIED", "asked": "UP TO AN AUTHORIZER"}


def add_to(commands: Any) -> None:
    group = commands.add_parser("authz", help="who may call a workload")
    parser = group.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "check", help="the policies of a workload, and, for a request that is described, which of them decides"
    )
    parser.add_argument("proxy", metavar="PROXY", help="name of the proxy, <pod>.<namespace> or a part of it")
    for flag, field, shown, about in _FLAGS:
        parser.add_argument(flag, dest=field, metavar=shown, help=about)
    parser.add_argument("--header", action="append", metavar="NAME=VALUE", help="header of the request; may be repeated")
    parser.add_argument("--claim", action="append", metavar="NAME=VALUE", help="claim of a valid token, as text or JSON; may be repeated")
    parser.add_argument("--port", type=int, metavar="NUMBER", help="port that the workload listens on")
    parser.add_argument("--tcp", action="store_true", default=None, help="a connection of which only TCP is known")
    add_output(parser)
    parser.set_defaults(run=run)


def run(client: Client, arguments: argparse.Namespace) -> str:
    question = _question(arguments)
    found = client.get("authz", proxyID=arguments.proxy, **({"request": json.dumps(question)} if question else {}))
    if arguments.output == "json":
        return as_json(found)
    lines = [f"{_WORDS[found['decision']]}: {found['why']}", _about(found), ""] if question else []
    return "\n".join([*lines, _policies(found["policies"], bool(question), found["proxy"])])


def _question(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the request that the flags describe; {} where none does."""
    named = {field: getattr(arguments, field) for field in (*(f[1] for f in _FLAGS), "port", "tcp")}
    question = {field: value for field, value in named.items() if value is not None}
    if arguments.header:
        question["headers"] = dict(_pairs("--header", arguments.header))
    if arguments.claim:
        question["claims"] = {name: _plain(value) for name, value in _pairs("--claim", arguments.claim)}
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


def _policies(policies: Sequence[dict[str, Any]], asked: bool, proxy: str) -> str:
    if not policies:
        return f"No AuthorizationPolicy is for {proxy}."
    rows = [(_action(p), p["namespace"], p["name"], *((_met(p["rulesMet"]),) if asked else ())) for p in policies]
    return table(("ACTION", "NAMESPACE", "POLICY", *(("MEETS",) if asked else ())), rows)


def _action(policy: dict[str, Any]) -> str:
    more = [f"({policy['provider']})"] if policy.get("provider") else []
    return " ".join([policy["action"], *more, *(["(tried)"] if policy.get("dryRun") else [])])


def _met(rules: Sequence[int]) -> str:
    return f"rule {', '.join(map(str, rules))}" if rules else "-"
