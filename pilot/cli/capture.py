"""pilot-agent istio-iptables and istio-clean-iptables: install and remove a pod's traffic redirection."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from pilot.agent.capture.capture_settings import CaptureSettings
from pilot.lib.flags import FlagError
from pilot.lib.logging import log
from pilot.settings.parse import load_sections
from pilot.settings.usage import flag_sections

HELP = frozenset({"--help", "-h"})
USAGE = (
    "pilot-agent istio-iptables, istio-clean-iptables: "
    "install or remove the iptables rules that redirect a pod's traffic to its proxy\n"
)
ALWAYS = ("--reconcile", "--force-apply")
"""Flags that have no effect, because the rules are always replaced."""
_log = log.scope("default")


def capture(argv: Sequence[str]) -> int:
    """Install the redirection rules in the network namespace, and return the exit status."""
    return _run(argv, clean=False)


def release(argv: Sequence[str]) -> int:
    """Remove the redirection rules from the network namespace, and return the exit status."""
    return _run(argv, clean=True)


def _run(argv: Sequence[str], clean: bool) -> int:
    if not HELP.isdisjoint(argv):
        print(USAGE + flag_sections(CaptureSettings()), end="")
        return 0
    arguments = [word for word in argv if word.partition("=")[0] not in ALWAYS]
    loaded = load_sections(CaptureSettings(), arguments, os.environ, strict=True)
    settings = loaded.settings
    try:
        log.configure(settings.log.output_level, settings.log.as_json, settings.log.targets)
    except ValueError as error:
        raise FlagError(str(error)) from error
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    from pilot.agent.capture.istio_iptables import run

    return run(
        dataclasses.replace(settings, operation=dataclasses.replace(settings.operation, clean=True))
        if clean
        else settings
    )
