"""Errors of templates. Their messages equal Go's, so that users find explanations of them."""

from __future__ import annotations


class TemplateError(Exception):
    """A template cannot be parsed or executed.

    The message starts with the template's name and the line. For execution errors, the column follows.
    """


class ActionError(Exception):
    """An action cannot be evaluated. The caller adds the position.

    Template functions raise this error or ValueError.
    """


class LocatedError(Exception):
    """An action cannot be evaluated. `position` is an offset in the template. `context` is the source of the node."""

    def __init__(self, position: int, context: str, message: str) -> None:
        super().__init__(message)
        self.position, self.context, self.message = position, context, message


def place(text: str, position: int) -> tuple[int, int]:
    """Return the line and column of a position. Lines are counted from 1, and columns in bytes from 0."""
    start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, len(text[start:position].encode())
