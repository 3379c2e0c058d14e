"""The syntax tree of a template. `str` of a node is its source as Go's error messages show it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias


class TextNode(NamedTuple):
    text: str


class LiteralNode(NamedTuple):
    """A constant: string, number, boolean or nil. `source` is its spelling in the template."""

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
    """`$x.A.B`; `slot` is the index of the variable."""

    position: int
    name: str
    slot: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.name, *self.names))


class ChainNode(NamedTuple):
    """`(pipeline).A.B`"""

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
    """A pipeline of commands, and the variables set to its value. `assigns` is true for `=`, false for `:=`."""

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
    """`if`, `with` or `range`, by `keyword`."""

    position: int
    keyword: str
    pipe: PipeNode
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


class TemplateNode(NamedTuple):
    """`template "name" pipeline`; `context` is the action's source for error messages."""

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
    """A named template. `slots` is the largest number of variables in scope at once."""

    name: str
    text: str
    body: tuple[Node, ...]
    slots: int
