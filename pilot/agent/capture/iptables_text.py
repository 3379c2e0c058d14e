"""Rules in the format of iptables-restore, and the removal of existing rules."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

from pilot.agent.capture.capture_rules import (
    CaptureAction,
    CaptureChain,
    CaptureField,
    CaptureRule,
    CaptureTable,
    Match,
    Verb,
)

CHAIN_PREFIX = "ISTIO_"
OPTIONS = {
    CaptureField.SOURCE: "{}-s",
    CaptureField.DESTINATION: "{}-d",
    CaptureField.SOURCE_PORT: "{}--sport",
    CaptureField.DESTINATION_PORT: "{}--dport",
    CaptureField.INPUT: "{}-i",
    CaptureField.OUTPUT: "{}-o",
    CaptureField.USER: "-m owner {}--uid-owner",
    CaptureField.GROUP: "-m owner {}--gid-owner",
    CaptureField.MARK: "-m mark {}--mark",
    CaptureField.CONNECTION_MARK: "-m connmark {}--mark",
    CaptureField.STATE: "-m conntrack {}--ctstate",
}
TARGETS = {
    Verb.JUMP: "{}",
    Verb.RETURN: "RETURN",
    Verb.ACCEPT: "ACCEPT",
    Verb.DROP: "DROP",
    Verb.REDIRECT: "REDIRECT --to-ports {}",
    Verb.TPROXY: "TPROXY --on-port {} --tproxy-mark {mark}",
    Verb.MARK: "MARK --set-mark {}",
    Verb.SAVE_MARK: "CONNMARK --save-mark",
    Verb.RESTORE_MARK: "CONNMARK --restore-mark",
    Verb.ZONE: "CT --zone {}",
}
MULTIPORT = "-m multiport {}--dports"


def build_restore_input(chains: Iterable[CaptureChain], saved: str) -> str:
    """Return the input for `iptables-restore --noflush` that replaces all chains of the mesh with `chains`.

    `saved` is the output of iptables-save. Each table is replaced atomically.
    """
    ordered, existing = sorted(chains, key=lambda chain: chain.table.value), parse_saved(saved)
    by_table = {table.value: list(group) for table, group in groupby(ordered, key=lambda chain: chain.table)}
    tables = [table.value for table in CaptureTable if table.value in by_table or table.value in existing]
    return "".join(_table_lines(table, by_table.get(table, []), *existing.get(table, ((), ()))) for table in tables)


def parse_saved(saved: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the existing chains of the mesh and the rules of other chains that jump to them, keyed by table."""
    tables: dict[str, tuple[list[str], list[str]]] = {}
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith(f":{CHAIN_PREFIX}"):
            tables.setdefault(table, ([], []))[0].append(line[1:].split()[0])
        elif line.startswith("-A ") and not line.startswith(f"-A {CHAIN_PREFIX}") and _jumps_to_mesh_chain(line):
            tables.setdefault(table, ([], []))[1].append(line.removeprefix("-A "))
    return tables


def _jumps_to_mesh_chain(line: str) -> bool:
    words = shlex.split(line)
    return any(option in ("-j", "-g") and target.startswith(CHAIN_PREFIX) for option, target in pairwise(words))


def _table_lines(table: str, chains: list[CaptureChain], existing: Iterable[str], jumps: Iterable[str]) -> str:
    obsolete = [name for name in existing if name not in {chain.name for chain in chains}]
    lines = [
        f"*{table}",
        *(f":{chain.name} - [0:0]" for chain in chains),  # creates or flushes the chain
        *(f"-D {jump}" for jump in jumps),
        *(f"-F {name}" for name in obsolete),
        *(f"-X {name}" for name in obsolete),
        *(f"-A {chain.name} {format_rule(rule)}" for chain in chains for rule in chain.rules),
        *(f"-A {chain.hook.value} -j {chain.name}" for chain in chains if chain.hook),
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def format_rule(rule: CaptureRule) -> str:
    """Return a rule as iptables options, without its chain."""
    return " ".join(_words(rule))


def _words(rule: CaptureRule) -> Iterator[str]:
    if rule.protocol:
        yield f"-p {rule.protocol}"
    yield from map(_format_match, rule.matches)
    yield f"-j {_format_target(rule.action)}"


def _format_match(match: Match) -> str:
    is_multiport = match.field is CaptureField.DESTINATION_PORT and len(match.values) > 1
    option = (MULTIPORT if is_multiport else OPTIONS[match.field]).format("! " if match.negated else "")
    return f"{option} {','.join(map(str, match.values))}"


def _format_target(action: CaptureAction) -> str:
    return TARGETS[action.verb].format(action.argument, mark=action.mark)
