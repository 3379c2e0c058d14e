"""Compiles statements into functions that write their output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gotemplate.access import entries
from gotemplate.errors import ActionError, LocatedError
from gotemplate.expressions import Evaluate, Expressions, Slots
from gotemplate.nodes import ActionNode, BranchNode, JumpNode, Node, TemplateNode, TextNode
from gotemplate.printing import output
from gotemplate.values import is_true

Write = Callable[[str], None]
Run = Callable[[Any, Slots, Write], str]
"""A function that executes a statement with the dot and the variables, and writes its output.

It returns "break" or "continue" to leave the current iteration.
"""
Find = Callable[[str], Callable[[Any, Write], None]]
"""Returns a function that executes the template with a name. Raises KeyError if it is not defined."""


def _nothing(dot: Any, slots: Slots, write: Write) -> str:
    return ""


class Statements:
    """Compiler of statements. `find` looks up other templates."""

    def __init__(self, expressions: Expressions, find: Find) -> None:
        self._expressions, self._find = expressions, find

    def body(self, nodes: tuple[Node, ...]) -> Run:
        """Compile a sequence of statements."""
        steps = [self._statement(node) for node in nodes]
        if not steps:
            return _nothing
        if len(steps) == 1:
            return steps[0]

        def run(dot: Any, slots: Slots, write: Write) -> str:
            for step in steps:
                if jump := step(dot, slots, write):
                    return jump
            return ""

        return run

    def _statement(self, node: Node) -> Run:
        match node:
            case TextNode():
                return _text(node.text)
            case ActionNode():
                return self._action(node)
            case BranchNode():
                return self._range(node) if node.keyword == "range" else self._branch(node)
            case TemplateNode():
                return self._call(node)
            case JumpNode():
                keyword = node.keyword
                return lambda dot, slots, write: keyword
        raise AssertionError(node)

    def _action(self, node: ActionNode) -> Run:
        evaluate = self._expressions.pipe(node.pipe)
        if node.pipe.names:

            def assign(dot: Any, slots: Slots, write: Write) -> str:
                evaluate(dot, slots)
                return ""

            return assign

        def run(dot: Any, slots: Slots, write: Write) -> str:
            value = evaluate(dot, slots)
            write(value if type(value) is str else output(value))
            return ""

        return run

    def _branch(self, node: BranchNode) -> Run:
        evaluate = self._expressions.pipe(node.pipe)
        body, otherwise = self.body(node.body), self.body(node.otherwise)
        changes_dot = node.keyword == "with"

        def run(dot: Any, slots: Slots, write: Write) -> str:
            value = evaluate(dot, slots)
            if is_true(value):
                return body(value if changes_dot else dot, slots, write)
            return otherwise(dot, slots, write)

        return run

    def _range(self, node: BranchNode) -> Run:
        evaluate: Evaluate = self._expressions.pipe(node.pipe._replace(slots=(), names=()))
        body, otherwise = self.body(node.body), self.body(node.otherwise)
        key_slot, value_slot = _loop_slots(node)

        def run(dot: Any, slots: Slots, write: Write) -> str:
            ran = False
            try:
                for key, item in entries(evaluate(dot, slots)):
                    ran = True
                    if key_slot:
                        slots[key_slot] = key
                    if value_slot:
                        slots[value_slot] = item
                    if body(item, slots, write) == "break":
                        break
            except ActionError as error:
                raise LocatedError(node.pipe.position, str(node.pipe), str(error)) from error
            return "" if ran else otherwise(dot, slots, write)

        return run

    def _call(self, node: TemplateNode) -> Run:
        evaluate = self._expressions.pipe(node.pipe) if node.pipe else None

        def run(dot: Any, slots: Slots, write: Write) -> str:
            try:
                execute = self._find(node.name)
            except KeyError:
                raise LocatedError(node.position, node.context, f'template "{node.name}" not defined') from None
            execute(evaluate(dot, slots) if evaluate else None, write)
            return ""

        return run


def _text(text: str) -> Run:
    def run(dot: Any, slots: Slots, write: Write) -> str:
        write(text)
        return ""

    return run


def _loop_slots(node: BranchNode) -> tuple[int, int]:
    """Return the slots of a loop's key and value variables. The slot 0 means that there is no variable."""
    slots = node.pipe.slots
    if len(slots) == 2:
        return slots[0], slots[1]
    return 0, slots[0] if slots else 0
