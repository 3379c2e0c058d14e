"""Rules as `nft` shows them: one table of our own for each family of addresses, which is replaced as a whole."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.agent.capture.rules import Action, Chain, Family, Field, Hook, Match, Rule, Table, Verb

TABLE = "istio-proxy"
FAMILIES = {Family.V4: "ip", Family.V6: "ip6"}
FIELDS = {
    Field.SOURCE: "{family} saddr", Field.DESTINATION: "{family} daddr", Field.SOURCE_PORT: "{protocol} sport",
    Field.DESTINATION_PORT: "{protocol} dport", Field.INPUT: "iifname", Field.OUTPUT: "oifname", Field.USER: "meta skuid",
    Field.GROUP: "meta skgid", Field.MARK: "meta mark", Field.CONNECTION_MARK: "ct mark", Field.STATE: "ct state",
}  # fmt: skip
INTERFACES = (Field.INPUT, Field.OUTPUT)
STATEMENTS = {
    Verb.RETURN: "return", Verb.ACCEPT: "accept", Verb.DROP: "drop", Verb.REDIRECT: "redirect to :{}",
    Verb.TPROXY: "tproxy to :{} meta mark set {mark} accept", Verb.MARK: "meta mark set {}", Verb.SAVE_MARK: "ct mark set meta mark",
    Verb.RESTORE_MARK: "meta mark set ct mark", Verb.ZONE: "ct zone set {}", Verb.JUMP: "jump {}",
}  # fmt: skip


class Base(NamedTuple):
    """How nftables calls a chain that packets come by: its type, and its priority among others there."""

    type: str
    priority: int


BASES = {
    (Table.RAW, Hook.PREROUTING): Base("filter", -300), (Table.RAW, Hook.OUTPUT): Base("filter", -300),
    (Table.MANGLE, Hook.PREROUTING): Base("filter", -150), (Table.MANGLE, Hook.OUTPUT): Base("route", -150),
    (Table.NAT, Hook.PREROUTING): Base("nat", -100), (Table.NAT, Hook.OUTPUT): Base("nat", -100),
}  # fmt: skip


def chain_name(table: Table, name: str) -> str:
    """Returns the name of a chain in our one table; chains of two tables may have one name."""
    return f"{table.value}_{name}"


def script(chains: Mapping[Family, Sequence[Chain]]) -> str:
    """Returns what `nft -f` would be given so that `chains` are all of ours; a family without chains has no table."""
    return "".join(_family(family, chains.get(family, ())) for family in Family)


def _family(family: Family, chains: Sequence[Chain]) -> str:
    name = f"table {FAMILIES[family]} {TABLE}"
    gone = f"{name}\ndelete {name}\n"  # one that is not there cannot be deleted
    return gone + f"{name} {{\n" + "".join("\n".join(_chain(chain, family)) + "\n" for chain in chains) + "}\n" if chains else gone


def _chain(chain: Chain, family: Family) -> Iterator[str]:
    yield f"  chain {chain_name(chain.table, chain.name)} {{"
    if chain.hook is not None:
        base = BASES[chain.table, chain.hook]
        yield f"    type {base.type} hook {chain.hook.value.lower()} priority {base.priority}; policy accept;"
    yield from (f"    {rule_text(rule, chain.table, family)}" for rule in chain.rules)
    yield "  }"


def rule_text(rule: Rule, table: Table, family: Family) -> str:
    """Returns a rule of a chain."""
    return " ".join(_words(rule, table, family))


def _words(rule: Rule, table: Table, family: Family) -> Iterable[str]:
    if rule.protocol:
        yield f"meta l4proto {rule.protocol}"
    for match in rule.matches:
        yield _match(match, rule.protocol, family)
    yield _statement(rule.action, table)


def _match(match: Match, protocol: str, family: Family) -> str:
    field = FIELDS[match.field].format(family=FAMILIES[family], protocol=protocol)
    values = [f'"{str(value).replace("+", "*")}"' if match.field in INTERFACES else str(value).lower() for value in match.values]
    text = ",".join(values) if match.field is Field.STATE else values[0] if len(values) == 1 else f"{{ {', '.join(values)} }}"
    return f"{field} {'!= ' if match.negated else ''}{text}"


def _statement(action: Action, table: Table) -> str:
    argument = chain_name(table, str(action.argument)) if action.verb is Verb.JUMP else action.argument
    return STATEMENTS[action.verb].format(argument, mark=action.mark)
