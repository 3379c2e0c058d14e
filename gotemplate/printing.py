"""Formats values as Go prints them in template output and with %v."""

from __future__ import annotations

from typing import Any

from gotemplate.floats import shortest
from gotemplate.values import GoStruct


def output(value: Any) -> str:
    """Return the output of an action whose value is `value`."""
    if type(value) is str:
        return value
    return "<no value>" if value is None else to_text(value)


def to_text(value: Any, verb: str = "v") -> str:
    """Return a value as %v prints it. Map keys are sorted, and nil is <nil>. `verb` may also be +v."""
    if isinstance(value, str):
        return str(value)
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return shortest(value)
    if isinstance(value, GoStruct):
        return value.printed(verb)
    if isinstance(value, dict):
        return f"map[{' '.join(f'{to_text(k, verb)}:{to_text(value[k], verb)}' for k in sorted(value))}]"
    return f"[{' '.join(to_text(item, verb) for item in value)}]"


def join_printed(values: tuple[Any, ...]) -> str:
    """Join values as Go's Sprint does, with a space between two operands if neither is a string."""
    parts: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            parts.append(" ")
        parts.append(to_text(value))
    return "".join(parts)


def line_printed(values: tuple[Any, ...]) -> str:
    """Join values as Go's Sprintln does, with spaces between all operands and a newline at the end."""
    return " ".join(to_text(value) for value in values) + "\n"
