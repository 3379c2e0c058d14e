"""Parses the tokens of a template into its syntax tree and those of the templates that it defines."""

from __future__ import annotations

from collections.abc import Collection

from gotemplate.constants import parse_literal, unquote
from gotemplate.errors import TemplateError
from gotemplate.lexer import Token, fault, tokens
from gotemplate.nodes import (
    ActionNode,
    BranchNode,
    ChainNode,
    CommandNode,
    DefinitionNode,
    DotNode,
    FieldsNode,
    JumpNode,
    LiteralNode,
    Node,
    Operand,
    PipeNode,
    TemplateNode,
    TextNode,
    VariableNode,
    WordNode,
)

_CONSTANTS = {"true": True, "false": False, "nil": None}
_BRANCHES = ("if", "with", "range")
_END = Token("end", "EOF", 0)


def parse_definitions(name: str, text: str, functions: Collection[str]) -> dict[str, DefinitionNode]:
    """Return the templates in a source, keyed by name. They are the source itself and those that `define` and `block`
    define.

    `functions` are the names of the functions that can be called. Raises TemplateError for a syntax error.
    """
    parser = _Parser(name, text, functions)
    body, keyword = parser.body("")
    if keyword:
        raise parser.wrong(f"unexpected {{{{{keyword}}}}}")
    main = DefinitionNode(name, text, body, parser.most)
    definitions = parser.definitions
    if name not in definitions or not _is_blank(body):
        definitions[name] = main
    return definitions


def _is_blank(body: tuple[Node, ...]) -> bool:
    return all(isinstance(node, TextNode) and not node.text.strip() for node in body)


class _Parser:
    """A recursive-descent parser. A variable occupies a slot while it is in scope."""

    def __init__(self, name: str, text: str, functions: Collection[str]) -> None:
        self._name, self._text, self._functions = name, text, functions
        self._tokens = list(tokens(name, text))
        self._here = 0
        self._variables = ["$"]
        self._loops = self._depth = 0
        self.most = 1
        self.definitions: dict[str, DefinitionNode] = {}

    # -- tokens --------------------------------------------------------------------------------------------------------

    def wrong(self, message: str, token: Token | None = None) -> TemplateError:
        """Return a parse error at a token, which defaults to the current token."""
        at = token or self._tokens[min(self._here, len(self._tokens)) - 1]
        return fault(self._name, self._text, at.position, message)

    def _peek(self) -> Token:
        return self._tokens[self._here] if self._here < len(self._tokens) else _END

    def _next(self) -> Token:
        token = self._peek()
        self._here += 1
        return token

    def _skip_space(self) -> Token:
        """Skip space tokens and return the next token without consuming it."""
        while self._peek().kind == "space":
            self._here += 1
        return self._peek()

    def _close(self, context: str) -> None:
        token = self._skip_space()
        if token.kind != "close":
            raise self.wrong(f"unexpected {_shown(token)} in {context}", token)
        self._here += 1

    # -- statements ----------------------------------------------------------------------------------------------------

    def body(self, inside: str) -> tuple[tuple[Node, ...], str]:
        """Return the nodes up to the terminating action, and the action's keyword.

        The keyword is end or else, or "" at the end of the template.
        """
        nodes: list[Node] = []
        self._depth += bool(inside)
        while (token := self._next()) is not _END:
            if token.kind == "text":
                nodes.append(TextNode(token.text))
                continue
            word = self._skip_space()
            if word.kind == "word" and word.text in ("end", "else"):
                self._here += 1
                if not inside:
                    raise self.wrong(f"unexpected {{{{{word.text}}}}}", word)
                self._depth -= 1
                return tuple(nodes), word.text
            if (node := self._statement(word)) is not None:
                nodes.append(node)
        if inside:
            raise self.wrong("unexpected EOF")
        return tuple(nodes), ""

    def _statement(self, word: Token) -> Node | None:
        keyword = word.text if word.kind == "word" else ""
        if keyword in (*_BRANCHES, "define", "block", "template", "break", "continue"):
            self._here += 1
            if keyword in _BRANCHES:
                return self._branch(word)
            if keyword == "define":
                self._define()
                return None
            if keyword in ("block", "template"):
                return self._call(word)
            return self._jump(word)
        pipe = self._pipe("command", declares=True)
        self._close("command")
        return ActionNode(word.position, pipe)

    def _branch(self, word: Token) -> BranchNode:
        scope_size = len(self._variables)
        keyword = word.text
        pipe = self._pipe(keyword, declares=True, pair=keyword == "range")
        self._close(keyword)
        self._loops += keyword == "range"
        body, terminator = self.body(keyword)
        self._loops -= keyword == "range"
        otherwise = self._otherwise(keyword) if terminator == "else" else self._ended()
        del self._variables[scope_size:]
        return BranchNode(word.position, keyword, pipe, body, otherwise)

    def _ended(self) -> tuple[Node, ...]:
        self._close("end")
        return ()

    def _otherwise(self, keyword: str) -> tuple[Node, ...]:
        """Return the nodes after `else`. An `else if` or `else with` is a nested branch that shares the `end`."""
        word = self._skip_space()
        if word.kind == "word" and word.text == keyword and keyword in ("if", "with"):
            self._here += 1
            return (self._branch(word),)
        self._close("input")
        body, terminator = self.body("else")
        if terminator == "else":
            raise self.wrong("expected end; found {{else}}")
        self._close("end")
        return body

    def _jump(self, word: Token) -> JumpNode:
        if not self._loops:
            raise self.wrong(f"{{{{{word.text}}}}} outside {{{{range}}}}", word)
        self._close(f"{{{{{word.text}}}}}")
        return JumpNode(word.position, word.text)

    def _define(self) -> None:
        if self._depth:
            raise self.wrong("unexpected <define> in command")
        name = self._name_of("define clause")
        self._close("define clause")
        self._definition(name)

    def _definition(self, name: str) -> None:
        """Parse the body of a definition up to its `end`, and store it. The definition has its own variables."""
        outer, self._variables = self._variables, ["$"]
        loops, self._loops = self._loops, 0
        most, self.most = self.most, 1
        body, terminator = self.body("define")
        if terminator != "end":
            raise self.wrong("unexpected {{else}} in define clause")
        self._close("define end")
        definition = DefinitionNode(name, self._text, body, self.most)
        if name not in self.definitions or not _is_blank(body):
            if name in self.definitions and not _is_blank(self.definitions[name].body):
                raise self.wrong(f'template: multiple definition of template "{name}"')
            self.definitions[name] = definition
        self._variables, self._loops, self.most = outer, loops, most

    def _name_of(self, context: str) -> str:
        token = self._skip_space()
        if token.kind not in ("string", "raw"):
            raise self.wrong(f"unexpected {_quoted(token.text)} in {context}", token)
        self._here += 1
        return unquote(token.text)

    def _call(self, word: Token) -> TemplateNode:
        context = f"{word.text} clause"
        name_position = self._skip_space().position
        name = self._name_of(context)
        pipe = None if self._skip_space().kind == "close" else self._pipe(context)
        if word.text == "block" and pipe is None:
            raise self.wrong("missing value for block clause")
        self._close(context)
        if word.text == "block":
            self._definition(name)
        return TemplateNode(name_position, name, pipe, f"{{{{template {_quoted(name)}{f' {pipe}' if pipe else ''}}}}}")

    # -- pipelines -----------------------------------------------------------------------------------------------------

    def _pipe(self, context: str, declares: bool = False, pair: bool = False) -> PipeNode:
        first = self._skip_space()
        names, assigns = self._targets(pair) if declares else ((), False)
        commands = [self._command(context)]
        while self._skip_space().text == "|" and self._peek().kind == "sign":
            self._here += 1
            if self._skip_space().kind == "close" or self._peek().text == ")":
                break
            commands.append(self._command(context))
        for command in commands[1:]:
            if isinstance(command.operands[0], LiteralNode | DotNode):
                raise self.wrong(f"non executable command in pipeline stage {commands.index(command) + 1}")
        slots = tuple(self._slot(name, assigns) for name in names)
        return PipeNode(first.position, names, slots, assigns, tuple(commands))

    def _targets(self, pair: bool) -> tuple[tuple[str, ...], bool]:
        """Return the variables that a pipeline sets, and whether it assigns to existing ones.

        If it sets none, no token is consumed.
        """
        start, names = self._here, []
        while self._skip_space().kind == "variable":
            names.append(self._next().text)
            sign = self._skip_space()
            if sign.kind == "declare" or sign.text == "=":
                self._here += 1
                return tuple(names), sign.text == "="
            if sign.text != "," or not pair or len(names) > 1:
                if sign.text == ",":
                    raise self.wrong(f"too many declarations in {'range' if pair else 'command'}", sign)
                break
            self._here += 1
        self._here = start
        return (), False

    def _slot(self, name: str, assigns: bool) -> int:
        if assigns:
            return self._slot_of(name)
        self._variables.append(name)
        self.most = max(self.most, len(self._variables))
        return len(self._variables) - 1

    def _slot_of(self, name: str) -> int:
        for slot, variable in reversed(list(enumerate(self._variables))):
            if variable == name:
                return slot
        raise self.wrong(f'undefined variable "{name}"', self._tokens[self._here - 1])

    def _command(self, context: str) -> CommandNode:
        start, operands = self._skip_space(), []
        while (operand := self._operand()) is not None:
            operands.append(operand)
            if self._peek().kind != "space":
                break
            self._skip_space()
        token = self._peek()
        if token.kind not in ("close", "space", "end") and token.text not in ("|", ")"):
            raise self.wrong(f"unexpected {_shown(token)} in {'operand' if operands else context}", token)
        if not operands:
            raise self.wrong(
                f'unexpected "|" in {context}' if token.text == "|" else f"missing value for {context}", token
            )
        return CommandNode(start.position, tuple(operands))

    def _operand(self) -> Operand | None:
        term = self._term()
        if term is None or self._peek().kind != "field":
            return term
        position, names = self._peek().position, []
        while self._peek().kind == "field":
            names.append(self._next().text[1:])
        if isinstance(term, FieldsNode | VariableNode):
            return term._replace(position=position, names=term.names + tuple(names))
        if isinstance(term, LiteralNode | DotNode):
            raise self.wrong(f"unexpected . after term {_quoted(str(term))}")
        return ChainNode(position, term, tuple(names))

    def _term(self) -> Operand | None:
        token = self._peek()
        kind, text, position = token
        if kind not in ("word", "dot", "variable", "field", "char", "number", "string", "raw") and text != "(":
            return None
        self._here += 1
        if kind == "word":
            return self._word(token)
        if kind == "dot":
            return DotNode(position)
        if kind == "variable":
            return VariableNode(position, text, self._slot_of(text), ())
        if kind == "field":
            return FieldsNode(position, (text[1:],))
        if text == "(":
            return self._parenthesis()
        return LiteralNode(position, text, self._literal(token))

    def _word(self, token: Token) -> Operand:
        if token.text in _CONSTANTS:
            return LiteralNode(token.position, token.text, _CONSTANTS[token.text])
        if token.text not in self._functions:
            raise self.wrong(f'function "{token.text}" not defined', token)
        return WordNode(token.position, token.text)

    def _parenthesis(self) -> PipeNode:
        pipe = self._pipe("parenthesized pipeline", declares=True)
        token = self._skip_space()
        if token.text != ")":
            raise self.wrong("unclosed left paren", token)
        self._here += 1
        return pipe

    def _literal(self, token: Token) -> object:
        try:
            return parse_literal(token.kind, token.text)
        except ValueError as error:
            raise self.wrong(str(error), token) from error


def _shown(token: Token) -> str:
    return (
        f"<{token.text}>"
        if token.kind in ("word", "field", "dot", "variable")
        else _quoted(token.text)
        if token.kind != "end"
        else "EOF"
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
