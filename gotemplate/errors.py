"""What is wrong with a template, in Go's words: users search for them."""

from __future__ import annotations


class TemplateError(Exception):
    """A template cannot be parsed or executed. The text begins with the template's name, the line from 1 and, of an execution, the column."""


class ActionError(Exception):
    """An action of a template cannot be evaluated; its place is not known yet. Functions of templates raise it, or any ValueError."""


class LocatedError(Exception):
    """An action cannot be evaluated. `position` is in the template's text, `context` is the node as the template writes it."""

    def __init__(self, position: int, context: str, message: str) -> None:
        super().__init__(message)
        self.position, self.context, self.message = position, context, message


def place(text: str, position: int) -> tuple[int, int]:
    """Returns the line, from 1, and the bytes before a position on that line."""
    start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, len(text[start:position].encode())
