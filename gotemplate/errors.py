"""Errors of templates. Their messages equal Go's, because users search for them."""

from __future__ import annotations


class TemplateError(Exception):
    """A template cannot be parsed or executed.

    The message starts with the template's name and the line, and for execution errors the column.
    """


class ActionError(Exception):
    """An action cannot be evaluated; the caller adds its position. Template functions raise this or ValueError."""


class LocatedError(Exception):
    """An action cannot be evaluated. `position` is an offset in the template's text, `context` the node's source."""

    def __init__(self, position: int, context: str, message: str) -> None:
        super().__init__(message)
        self.position, self.context, self.message = position, context, message


def place(text: str, position: int) -> tuple[int, int]:
    """Return the line, counted from 1, and the column in bytes, counted from 0."""
    start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, len(text[start:position].encode())
