"""The trees of pipelines → functions that evaluate them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gotemplate.access import read_fields
from gotemplate.errors import ActionError, LocatedError, TemplateError
from gotemplate.function import ANY, Function, check
from gotemplate.nodes import (
    ChainNode,
    CommandNode,
    DotNode,
    FieldsNode,
    LiteralNode,
    Operand,
    PipeNode,
    VariableNode,
    WordNode,
)
from gotemplate.values import GoStruct

Slots = list[Any]
Evaluate = Callable[[Any, Slots], Any]
"""Evaluates with the dot and the variables of one execution."""
_NOTHING: Any = object()
_LITERALS = {
    "int": "integer",
    "int64": "integer",
    "float64": "float",
    "string": "string",
    "bool": "bool",
}  # by the parameter's type


class Expressions:
    """Compiles with the functions that there are."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions

    def pipe(self, pipe: PipeNode) -> Evaluate:
        """Returns what evaluates a pipeline and sets its variables, if it has one; a range sets its own."""
        evaluate = self._command(pipe.commands[0], None)
        for command in pipe.commands[1:]:
            evaluate = self._command(command, evaluate)
        if len(pipe.slots) != 1:
            return evaluate
        slot = pipe.slots[0]

        def assign(dot: Any, slots: Slots) -> Any:
            value = slots[slot] = evaluate(dot, slots)
            return value

        return assign

    def _command(self, command: CommandNode, final: Evaluate | None) -> Evaluate:
        """Returns what evaluates a command; `final` gives its last argument, where a command before it has a value."""
        first = command.operands[0]
        if isinstance(first, WordNode):
            return self._call(command, first, command.operands[1:], final)
        arguments = [self._operand(o) for o in command.operands[1:]] + ([final] if final else [])
        if isinstance(first, FieldsNode | VariableNode | ChainNode) and first.names and arguments:
            return self._method(command, first, arguments)
        if isinstance(first, LiteralNode) and first.value is None:
            return _failing(first, "nil is not a command")
        if arguments:
            return _failing(first, f"can't give argument to non-function {first}")
        return self._operand(first)

    def _operand(self, node: Operand) -> Evaluate:
        match node:
            case LiteralNode():
                value = node.value
                return lambda dot, slots: value
            case DotNode():
                return lambda dot, slots: dot
            case FieldsNode():
                return _field_chain(node, node.names, lambda dot, slots: dot)
            case VariableNode():
                slot = node.slot
                base: Evaluate = lambda dot, slots: slots[slot]  # noqa: E731
                return _field_chain(node, node.names, base) if node.names else base
            case ChainNode():
                return _field_chain(node, node.names, self._operand(node.base))
            case WordNode():
                return self._call(CommandNode(node.position, (node,)), node, (), None)
            case PipeNode():
                return self.pipe(node)
        raise AssertionError(node)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(
        self, command: CommandNode, word: WordNode, operands: tuple[Operand, ...], final: Evaluate | None
    ) -> Evaluate:
        """Returns what calls a function. TemplateError is raised when it is run where the number of arguments is wrong."""
        function = self._functions[word.name]
        arguments = [self._operand(o) for o in operands] + ([final] if final else [])
        if function.lazy:
            return _lazy(command, function, arguments)
        if wrong := function.wrong_count(len(arguments)):
            return _failing(word, f"wrong number of args for {word.name}: {wrong}")
        checked = [
            _checked(function.kind_of(i), a, o)
            for i, (a, o) in enumerate(zip(arguments, (*operands, command), strict=False))
        ]
        return _calling(command, word, function.call, checked)

    def _method(
        self, command: CommandNode, first: FieldsNode | VariableNode | ChainNode, arguments: list[Evaluate]
    ) -> Evaluate:
        """Returns what calls a method with arguments; a field that is none takes no arguments."""
        *before, name = first.names
        if before or isinstance(first, VariableNode):
            base = self._operand(first._replace(names=tuple(before)))
        else:
            base = self._operand(first.base) if isinstance(first, ChainNode) else _dot

        def evaluate(dot: Any, slots: Slots) -> Any:
            receiver = base(dot, slots)
            method = receiver.method(name) if isinstance(receiver, GoStruct) else None
            if method is None:
                raise LocatedError(first.position, str(first), f"{name} is not a method but has arguments")
            values = [a(dot, slots) for a in arguments]
            try:
                return method(*values)
            except Exception as error:
                raise LocatedError(command.position, str(command), f"error calling {name}: {error}") from error

        return evaluate


def _dot(dot: Any, slots: Slots) -> Any:
    return dot


def _failing(node: Any, message: str) -> Evaluate:
    """Returns what fails whenever it is evaluated."""

    def fail(dot: Any, slots: Slots) -> Any:
        raise LocatedError(node.position, str(node), message)

    return fail


def _field_chain(node: Any, names: tuple[str, ...], base: Evaluate) -> Evaluate:
    """Returns what reads fields one after another, maps without a call for each."""
    first, rest = names[0], names[1:]

    def read(dot: Any, slots: Slots) -> Any:
        receiver = base(dot, slots)
        try:
            if type(receiver) is dict:
                receiver = receiver.get(first, _NOTHING)
                if receiver is _NOTHING:
                    return None
                return read_fields(receiver, rest, from_map=True) if rest else receiver
            return read_fields(receiver, names)
        except ActionError as error:
            raise LocatedError(node.position, str(node), str(error)) from error

    return read


def _checked(kind: Any, argument: Evaluate, node: Any) -> Evaluate:
    """Returns what evaluates an argument and looks whether it is of its parameter's type."""
    if kind is ANY:
        return argument

    def evaluate(dot: Any, slots: Slots) -> Any:
        value = argument(dot, slots)
        if kind.takes(value):
            return value
        try:
            return check(kind, value)
        except ActionError as error:
            raise LocatedError(node.position, str(node), _of_literal(node, kind, str(error))) from error

    return evaluate


def _of_literal(node: Any, kind: Any, message: str) -> str:
    """Returns the message about an argument: of a constant it says how the template writes it."""
    if not isinstance(node, LiteralNode):
        return message
    if node.value is None:
        return f"cannot assign nil to {kind.name}"
    wanted = _LITERALS.get(kind.name)
    return f"expected {wanted}; found {node}" if wanted else f"can't handle {node} for arg of type {kind.name}"


def _calling(command: CommandNode, word: WordNode, call: Callable[..., Any], arguments: list[Evaluate]) -> Evaluate:
    """Returns what evaluates the arguments and calls a function with them."""
    name = word.name

    def failed(error: Exception) -> LocatedError:
        return LocatedError(command.position, str(command), f"error calling {name}: {error}")

    if len(arguments) == 1:
        only = arguments[0]

        def evaluate_one(dot: Any, slots: Slots) -> Any:
            value = only(dot, slots)
            try:
                return call(value)
            except (LocatedError, TemplateError):
                raise
            except Exception as error:
                raise failed(error) from error

        return evaluate_one

    def evaluate(dot: Any, slots: Slots) -> Any:
        values = [a(dot, slots) for a in arguments]
        try:
            return call(*values)
        except (LocatedError, TemplateError):
            raise
        except Exception as error:
            raise failed(error) from error

    return evaluate


def _lazy(command: CommandNode, function: Function, arguments: list[Evaluate]) -> Evaluate:
    """Returns what calls `and` or `or`, which evaluate no more arguments than they need."""
    if not arguments:
        return _failing(command, f"wrong number of args for {command.operands[0]}: want at least 1 got 0")
    call = function.call
    return lambda dot, slots: call(arguments, dot, slots)
