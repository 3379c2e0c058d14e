"""Applies rules with the iptables programs, if they are installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from pilot.agent.capture.capture_rules import CaptureChain, Family, RulesError
from pilot.agent.capture.iptables_text import build_restore_input

PROGRAMS = {Family.V4: "iptables", Family.V6: "ip6tables"}


def is_installed(family: Family = Family.V4, variant: str = "") -> bool:
    """Return whether the programs for an IP family are installed.

    `variant` is legacy or nft. If empty, the system's default is used.
    """
    return all(shutil.which(_program(family, variant, command)) for command in ("save", "restore"))


def restore_input(family: Family, chains: Sequence[CaptureChain], variant: str = "") -> str:
    """Return the input for iptables-restore that replaces all chains of the mesh, or "" if there is nothing to do.

    Raises RulesError if the existing rules cannot be read.
    """
    return build_restore_input(chains, _run([_program(family, variant, "save")]))


def apply(chains: Mapping[Family, Sequence[CaptureChain]], variant: str = "") -> None:
    """Replace all chains of the mesh in the network namespace of the process.

    Each table is replaced atomically. Raises RulesError.
    """
    for family in Family:
        if not chains.get(family) and not is_installed(family, variant):
            continue
        if text := restore_input(family, chains.get(family, ()), variant):
            _run([_program(family, variant, "restore"), "--noflush", "--wait"], text)


def _program(family: Family, variant: str, command: str) -> str:
    return "-".join(filter(None, (PROGRAMS[family], variant, command)))


def _run(command: list[str], stdin: str = "") -> str:
    """Return the standard output of a program. Raises RulesError if the program is missing or fails."""
    try:
        process = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RulesError(f"{command[0]}: {error.strerror}") from error
    if process.returncode:
        raise RulesError(f"{command[0]}: {process.stderr.strip() or f'exit status {process.returncode}'}")
    return process.stdout
