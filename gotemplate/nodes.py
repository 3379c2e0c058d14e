"""The syntax tree of a template. Applied to a node, `str` returns its source as in Go's error messages."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias


class TextNode(NamedTuple):
    text: str


class LiteralNode(NamedTuple):
    """A constant: a string, a number, a boolean or nil. `source` is its source in the template."""

    position: int
    source: str
    value: Any

    def __str__(self) -> str:
        return self.source


class DotNode(NamedTuple):
    position: int

    def __str__(self) -> str:
        return "."


class WordNode(NamedTuple):
    """The name of a function."""

    position: int
    name: str

    def __str__(self) -> str:
        return self.name


class FieldsNode(NamedTuple):
    """`.A.B`: fields of the dot."""

    position: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


class VariableNode(NamedTuple):
    """`$x.A.B`: a variable or its fields. `slot` is the index of the variable."""

    position: int
    name: str
    slot: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.name, *self.names))


class ChainNode(NamedTuple):
    """`(pipeline).A.B`: fields of the value of a pipeline."""

    position: int
    base: Operand
    names: tuple[str, ...]

    def __str__(self) -> str:
        base = f"({self.base})" if isinstance(self.base, PipeNode) else str(self.base)
        return ".".join((base, *self.names))


class CommandNode(NamedTuple):
    """An operand with its arguments."""

    position: int
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return " ".join(f"({o})" if isinstance(o, PipeNode) else str(o) for o in self.operands)


class PipeNode(NamedTuple):
    """A pipeline of commands, and the variables that it sets. `assigns` is true for `=` and false for `:=`."""

    position: int
    names: tuple[str, ...]
    slots: tuple[int, ...]
    assigns: bool
    commands: tuple[CommandNode, ...]

    def __str__(self) -> str:
        head = f"{', '.join(self.names)} {'=' if self.assigns else ':='} " if self.names else ""
        return head + " | ".join(map(str, self.commands))


Operand: TypeAlias = LiteralNode | DotNode | WordNode | FieldsNode | VariableNode | ChainNode | PipeNode


class ActionNode(NamedTuple):
    position: int
    pipe: PipeNode


class BranchNode(NamedTuple):
    """An `if`, `with` or `range` action. `keyword` is the name of the action."""

    position: int
    keyword: str
    pipe: PipeNode
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


class TemplateNode(NamedTuple):
    """`template "name" pipeline`. `context` is the source of the action for error messages."""

    position: int
    name: str
    pipe: PipeNode | None
    context: str


class JumpNode(NamedTuple):
    """`break` or `continue`."""

    position: int
    keyword: str


Node: TypeAlias = TextNode | ActionNode | BranchNode | TemplateNode | JumpNode


class DefinitionNode(NamedTuple):
    """A named template. `slots` is the maximum number of variables that are in scope at once."""

    name: str
    text: str
    body: tuple[Node, ...]
    slots: int
