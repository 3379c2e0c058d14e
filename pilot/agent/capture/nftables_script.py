"""Rules as `nft` shows them: one table of our own for each family of addresses, which is replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.agent.capture.rule_language import (
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


class Base(NamedTuple):
    """How nftables calls a chain that packets come by: its type, and its priority among others there."""

    type: str
    priority: int


BASES = {
    (CaptureTable.RAW, Hook.PREROUTING): Base("filter", -300),
    (CaptureTable.RAW, Hook.OUTPUT): Base("filter", -300),
    (CaptureTable.MANGLE, Hook.PREROUTING): Base("filter", -150),
    (CaptureTable.MANGLE, Hook.OUTPUT): Base("route", -150),
    (CaptureTable.NAT, Hook.PREROUTING): Base("nat", -100),
    (CaptureTable.NAT, Hook.OUTPUT): Base("nat", -100),
}


def chain_name(table: CaptureTable, name: str) -> str:
    """Returns the name of a chain in our one table; chains of two tables may have one name."""
    return f"{table.value}_{name}"


def script(chains: Mapping[Family, Sequence[CaptureChain]]) -> str:
    """Returns what `nft -f` would be given so that `chains` are all of ours; a family without chains has no table."""
    return "".join(_family(family, chains.get(family, ())) for family in Family)


def _family(family: Family, chains: Sequence[CaptureChain]) -> str:
    name = f"table {FAMILIES[family]} {TABLE}"
    gone = f"{name}\ndelete {name}\n"  # one that is not there cannot be deleted
    return (
        gone + f"{name} {{\n" + "".join("\n".join(_chain(chain, family)) + "\n" for chain in chains) + "}\n"
        if chains
        else gone
    )


def _chain(chain: CaptureChain, family: Family) -> Iterator[str]:
    yield f"  chain {chain_name(chain.table, chain.name)} {{"
    if chain.hook is not None:
        base = BASES[chain.table, chain.hook]
        yield f"    type {base.type} hook {chain.hook.value.lower()} priority {base.priority}; policy accept;"
    yield from (f"    {rule_text(rule, chain.table, family)}" for rule in chain.rules)
    yield "  }"


def rule_text(rule: CaptureRule, table: CaptureTable, family: Family) -> str:
    """Returns a rule of a chain."""
    return " ".join(_words(rule, table, family))


def _words(rule: CaptureRule, table: CaptureTable, family: Family) -> Iterable[str]:
    if rule.protocol:
        yield f"meta l4proto {rule.protocol}"
    for match in rule.matches:
        yield _match(match, rule.protocol, family)
    yield _statement(rule.action, table)


def _match(match: Match, protocol: str, family: Family) -> str:
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


def _statement(action: CaptureAction, table: CaptureTable) -> str:
    argument = chain_name(table, str(action.argument)) if action.verb is Verb.JUMP else action.argument
    return STATEMENTS[action.verb].format(argument, mark=action.mark)
