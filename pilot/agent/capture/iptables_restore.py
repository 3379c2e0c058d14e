"""Applies rules with the iptables programs, if they are installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from pilot.agent.capture.capture_rules import CaptureChain, Family, RulesError
from pilot.agent.capture.iptables_text import build_restore_input

PROGRAMS = {Family.V4: "iptables", Family.V6: "ip6tables"}


def is_installed(family: Family = Family.V4) -> bool:
    """Return whether the programs for an IP family are installed."""
    return all(shutil.which(f"{PROGRAMS[family]}-{command}") for command in ("save", "restore"))


def restore_input(family: Family, chains: Sequence[CaptureChain]) -> str:
    """Return the input for iptables-restore that replaces all chains of the mesh, or "" if there is nothing to do.

    Raises RulesError if the existing rules cannot be read.
    """
    return build_restore_input(chains, _run([f"{PROGRAMS[family]}-save"]))


def apply(chains: Mapping[Family, Sequence[CaptureChain]]) -> None:
    """Replace all chains of the mesh in the network namespace of the process.

    Each table is replaced atomically. Raises RulesError.
    """
    for family in Family:
        if (chains.get(family) or is_installed(family)) and (text := restore_input(family, chains.get(family, ()))):
            _run([f"{PROGRAMS[family]}-restore", "--noflush", "--wait"], text)


def _run(command: list[str], stdin: str = "") -> str:
    """Return the standard output of a program. Raises RulesError if the program is missing or fails."""
    try:
        process = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RulesError(f"{command[0]}: {error.strerror}") from error
    if process.returncode:
        raise RulesError(f"{command[0]}: {process.stderr.strip() or f'exit status {process.returncode}'}")
    return process.stdout
