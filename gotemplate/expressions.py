"""Compiles pipelines into functions that evaluate them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gotemplate.access import read_fields
from gotemplate.errors import ActionError, LocatedError, TemplateError
from gotemplate.function import ANY, Function, ParameterType, check
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
"""A function that evaluates an expression with the dot and the variables of one execution."""
_NOTHING: Any = object()
_LITERALS = {
    "int": "integer",
    "int64": "integer",
    "float64": "float",
    "string": "string",
    "bool": "bool",
}
"""Mapping from parameter types to Go's names for literals of the type."""


class Expressions:
    """Compiler of pipelines."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions

    def pipe(self, pipe: PipeNode) -> Evaluate:
        """Compile a pipeline and the assignment of its value to variables. A range statement sets its own variables
        instead."""
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
        """Compile a command. `final` evaluates the previous command, whose value becomes the last argument."""
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
                return _dot_chain(node, node.names)
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
        """Compile a function call. If the number of arguments is wrong, the evaluation fails."""
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
        """Compile a method call with arguments. If the field is not a method, the evaluation fails."""
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
    """Return a function that always fails."""

    def fail(dot: Any, slots: Slots) -> Any:
        raise LocatedError(node.position, str(node), message)

    return fail


def _field_chain(node: Any, names: tuple[str, ...], base: Evaluate) -> Evaluate:
    """Compile the access to a chain of fields. Maps have a fast path."""
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


def _dot_chain(node: FieldsNode, names: tuple[str, ...]) -> Evaluate:
    """Compile the access to a chain of fields of the dot, which is the most frequent one."""

    def read(dot: Any, slots: Slots) -> Any:
        try:
            return read_fields(dot, names)
        except ActionError as error:
            raise LocatedError(node.position, str(node), str(error)) from error

    return read


def _checked(kind: ParameterType, argument: Evaluate, node: Any) -> Evaluate:
    """Return a function that evaluates an argument and checks its type. The most frequent type has a fast path."""
    if kind is ANY or (isinstance(node, LiteralNode) and kind.takes(node.value)):
        return argument
    usual = kind.types[0]

    def evaluate(dot: Any, slots: Slots) -> Any:
        value = argument(dot, slots)
        if type(value) is usual or kind.takes(value):
            return value
        try:
            return check(kind, value)
        except ActionError as error:
            raise LocatedError(node.position, str(node), _of_literal(node, kind, str(error))) from error

    return evaluate


def _of_literal(node: Any, kind: Any, message: str) -> str:
    """Return the error message for an argument. Like Go's message, it quotes the source of a constant."""
    if not isinstance(node, LiteralNode):
        return message
    if node.value is None:
        return f"cannot assign nil to {kind.name}"
    expected = _LITERALS.get(kind.name)
    return f"expected {expected}; found {node}" if expected else f"can't handle {node} for arg of type {kind.name}"


def _calling(command: CommandNode, word: WordNode, call: Callable[..., Any], arguments: list[Evaluate]) -> Evaluate:
    """Return a function that evaluates the arguments and makes the call. One and two arguments have fast paths."""
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
    if len(arguments) == 2:
        first, second = arguments

        def evaluate_two(dot: Any, slots: Slots) -> Any:
            one, other = first(dot, slots), second(dot, slots)
            try:
                return call(one, other)
            except (LocatedError, TemplateError):
                raise
            except Exception as error:
                raise failed(error) from error

        return evaluate_two

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
    """Return a function that evaluates `and` or `or` with short-circuiting."""
    if not arguments:
        return _failing(command, f"wrong number of args for {command.operands[0]}: want at least 1 got 0")
    call = function.call
    return lambda dot, slots: call(arguments, dot, slots)
