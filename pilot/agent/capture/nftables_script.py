"""Rules as an nft script. Each IP family has one table, which is replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.agent.capture.capture_rules import (
    CaptureAction,
    CaptureChain,
    CaptureField,
    CaptureRule,
    CaptureTable,
    Family,
    Hook,
    Match,
    Verb,
)

TABLE = "istio-proxy"
FAMILIES = {Family.V4: "ip", Family.V6: "ip6"}
FIELDS = {
    CaptureField.SOURCE: "{family} saddr",
    CaptureField.DESTINATION: "{family} daddr",
    CaptureField.SOURCE_PORT: "{protocol} sport",
    CaptureField.DESTINATION_PORT: "{protocol} dport",
    CaptureField.INPUT: "iifname",
    CaptureField.OUTPUT: "oifname",
    CaptureField.USER: "meta skuid",
    CaptureField.GROUP: "meta skgid",
    CaptureField.MARK: "meta mark",
    CaptureField.CONNECTION_MARK: "ct mark",
    CaptureField.STATE: "ct state",
}
INTERFACES = (CaptureField.INPUT, CaptureField.OUTPUT)
STATEMENTS = {
    Verb.RETURN: "return",
    Verb.ACCEPT: "accept",
    Verb.DROP: "drop",
    Verb.REDIRECT: "redirect to :{}",
    Verb.TPROXY: "tproxy to :{} meta mark set {mark} accept",
    Verb.MARK: "meta mark set {}",
    Verb.SAVE_MARK: "ct mark set meta mark",
    Verb.RESTORE_MARK: "meta mark set ct mark",
    Verb.ZONE: "ct zone set {}",
    Verb.JUMP: "jump {}",
}


class BaseChain(NamedTuple):
    """The type and priority of a base chain."""

    type: str
    priority: int


BASE_CHAINS = {
    (CaptureTable.RAW, Hook.PREROUTING): BaseChain("filter", -300),
    (CaptureTable.RAW, Hook.OUTPUT): BaseChain("filter", -300),
    (CaptureTable.MANGLE, Hook.PREROUTING): BaseChain("filter", -150),
    (CaptureTable.MANGLE, Hook.OUTPUT): BaseChain("route", -150),
    (CaptureTable.NAT, Hook.PREROUTING): BaseChain("nat", -100),
    (CaptureTable.NAT, Hook.OUTPUT): BaseChain("nat", -100),
}


def chain_name(table: CaptureTable, name: str) -> str:
    """Return the unique name of a chain in the mesh's nftables table. Chains of different iptables tables can share a
    name."""
    return f"{table.value}_{name}"


def build_script(chains: Mapping[Family, Sequence[CaptureChain]]) -> str:
    """Return the script for `nft -f` that replaces all chains of the mesh. A family without chains gets no table."""
    return "".join(_format_family(family, chains.get(family, ())) for family in Family)


def _format_family(family: Family, chains: Sequence[CaptureChain]) -> str:
    name = f"table {FAMILIES[family]} {TABLE}"
    delete = f"{name}\ndelete {name}\n"  # created first, because deleting a missing table is an error
    return (
        delete + f"{name} {{\n" + "".join("\n".join(_chain_lines(chain, family)) + "\n" for chain in chains) + "}\n"
        if chains
        else delete
    )


def _chain_lines(chain: CaptureChain, family: Family) -> Iterator[str]:
    yield f"  chain {chain_name(chain.table, chain.name)} {{"
    if chain.hook is not None:
        base = BASE_CHAINS[chain.table, chain.hook]
        yield f"    type {base.type} hook {chain.hook.value.lower()} priority {base.priority}; policy accept;"
    yield from (f"    {format_rule(rule, chain.table, family)}" for rule in chain.rules)
    yield "  }"


def format_rule(rule: CaptureRule, table: CaptureTable, family: Family) -> str:
    """Return a rule in nft syntax."""
    return " ".join(_words(rule, table, family))


def _words(rule: CaptureRule, table: CaptureTable, family: Family) -> Iterable[str]:
    if rule.protocol:
        yield f"meta l4proto {rule.protocol}"
    for match in rule.matches:
        yield _format_match(match, rule.protocol, family)
    yield _format_statement(rule.action, table)


def _format_match(match: Match, protocol: str, family: Family) -> str:
    field = FIELDS[match.field].format(family=FAMILIES[family], protocol=protocol)
    values = [
        f'"{str(value).replace("+", "*")}"' if match.field in INTERFACES else str(value).lower()
        for value in match.values
    ]
    text = (
        ",".join(values)
        if match.field is CaptureField.STATE
        else values[0]
        if len(values) == 1
        else f"{{ {', '.join(values)} }}"
    )
    return f"{field} {'!= ' if match.negated else ''}{text}"


def _format_statement(action: CaptureAction, table: CaptureTable) -> str:
    argument = chain_name(table, str(action.argument)) if action.verb is Verb.JUMP else action.argument
    return STATEMENTS[action.verb].format(argument, mark=action.mark)
