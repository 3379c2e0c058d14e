"""Rules as iptables-restore reads them, and what takes those of before away."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

from pilot.agent.capture.rule_language import (
    CaptureAction,
    CaptureChain,
    CaptureField,
    CaptureRule,
    CaptureTable,
    Match,
    Verb,
)

OURS = "ISTIO_"
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
MANY_PORTS = "-m multiport {}--dports"


def restore_text(chains: Iterable[CaptureChain], saved: str) -> str:
    """Returns what iptables-restore --noflush is given so that `chains` are all of ours. `saved` is what iptables-save says is there; each
    table changes at once."""
    ours, there = sorted(chains, key=lambda chain: chain.table.value), read_saved(saved)
    wanted = {table.value: list(found) for table, found in groupby(ours, key=lambda chain: chain.table)}
    tables = [table.value for table in CaptureTable if table.value in wanted or table.value in there]
    return "".join(_table(table, wanted.get(table, []), *there.get(table, ((), ()))) for table in tables)


def read_saved(saved: str) -> dict[str, tuple[list[str], list[str]]]:
    """Returns of each table that has any of ours: their names, and the rules of other chains that jump to them."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith(f":{OURS}"):
            found.setdefault(table, ([], []))[0].append(line[1:].split()[0])
        elif line.startswith("-A ") and not line.startswith(f"-A {OURS}") and _jumps_to_ours(line):
            found.setdefault(table, ([], []))[1].append(line.removeprefix("-A "))
    return found


def _jumps_to_ours(line: str) -> bool:
    words = shlex.split(line)
    return any(option in ("-j", "-g") and target.startswith(OURS) for option, target in pairwise(words))


def _table(table: str, chains: list[CaptureChain], there: Iterable[str], jumps: Iterable[str]) -> str:
    gone = [name for name in there if name not in {chain.name for chain in chains}]
    lines = [
        f"*{table}",
        *(f":{chain.name} - [0:0]" for chain in chains),  # made, or emptied
        *(f"-D {jump}" for jump in jumps),
        *(f"-F {name}" for name in gone),
        *(f"-X {name}" for name in gone),
        *(f"-A {chain.name} {rule_text(rule)}" for chain in chains for rule in chain.rules),
        *(f"-A {chain.hook.value} -j {chain.name}" for chain in chains if chain.hook),
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def rule_text(rule: CaptureRule) -> str:
    """Returns a rule without its chain."""
    return " ".join(_words(rule))


def _words(rule: CaptureRule) -> Iterator[str]:
    if rule.protocol:
        yield f"-p {rule.protocol}"
    yield from map(_match, rule.matches)
    yield f"-j {_target(rule.action)}"


def _match(match: Match) -> str:
    many = match.field is CaptureField.DESTINATION_PORT and len(match.values) > 1
    option = (MANY_PORTS if many else OPTIONS[match.field]).format("! " if match.negated else "")
    return f"{option} {','.join(map(str, match.values))}"


def _target(action: CaptureAction) -> str:
    return TARGETS[action.verb].format(action.argument, mark=action.mark)
