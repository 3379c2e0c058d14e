"""Rules by the programs of iptables, where they are on this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from pilot.agent.capture.errors import RulesError
from pilot.agent.capture.iptables_text import restore_text
from pilot.agent.capture.rule_language import CaptureChain, Family

PROGRAMS = {Family.V4: "iptables", Family.V6: "ip6tables"}


def there(family: Family = Family.V4) -> bool:
    """Returns whether the programs of a family of addresses are on this machine."""
    return all(shutil.which(f"{PROGRAMS[family]}-{what}") for what in ("save", "restore"))


def text(family: Family, chains: Sequence[CaptureChain]) -> str:
    """Returns what iptables-restore is given so that `chains` are all of ours; "" where there is nothing to do. RulesError where the rules that
    are there cannot be read."""
    return restore_text(chains, _run([f"{PROGRAMS[family]}-save"]))


def apply(chains: Mapping[Family, Sequence[CaptureChain]]) -> None:
    """Makes `chains` all of ours in the network namespace of the process, each table at once. RulesError where a program does not take them."""
    for family in Family:
        if (chains.get(family) or there(family)) and (wanted := text(family, chains.get(family, ()))):
            _run([f"{PROGRAMS[family]}-restore", "--noflush", "--wait"], wanted)


def _run(command: list[str], given: str = "") -> str:
    """Returns what a program prints. RulesError where it is not there or fails."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RulesError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise RulesError(f"{command[0]}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
