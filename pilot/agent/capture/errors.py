"""What goes wrong while rules are put into the kernel."""

from __future__ import annotations


class RulesError(Exception):
    """The rules were not taken; the text says by whom, and why."""


class CaptureCheckError(Exception):
    """Connections do not reach the proxy; the text says what was tried."""
