"""What goes wrong while rules are put into the kernel."""

from __future__ import annotations


class NotApplied(Exception):
    """The rules were not taken; the text says by whom, and why."""


class NotCaptured(Exception):
    """Connections do not reach the proxy; the text says what was tried."""
