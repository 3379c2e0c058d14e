"""Validates filters in the Common Expression Language (CEL) by the rules that Envoy applies.

Envoy rejects a whole listener if one of its expressions has a syntax error, calls an unknown function, or loops.

https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.lib import regex
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import cut

_MAX_DEPTH = 31  # the limit of Envoy's parser
MAX_LENGTH = 16_384
"""The maximum number of characters in an expression. Envoy accepts 100,000, which take half a second to parse."""

_QUOTED = r'"""(?:[^\\]|\\.)*?"""|' + r"'''(?:[^\\]|\\.)*?'''|" + r'"(?:[^"\\\n\r]|\\.)*"|' + r"'(?:[^'\\\n\r]|\\.)*'"
_RAW = r'"""(?s:.)*?"""|' + r"'''(?s:.)*?'''|" + r'"[^"\n\r]*"|' + r"'[^'\n\r]*'"
_TOKEN = re.compile(
    rf"""(?P<space>[\t\n\f\r ]+|//[^\n]*)
    |(?P<raw>(?:[rR][bB]?|[bB][rR])(?:{_RAW}))
    |(?P<text>[bB]?(?:{_QUOTED}))
    |(?P<real>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<whole>(?:0x[0-9a-fA-F]+|[0-9]+)[uU]?)
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<quoted>`[-_a-zA-Z0-9./\ ]+`)
    |(?P<sign>\|\||&&|<=|>=|==|!=|[-+*/%!<>?:.,()\[\]{{}}])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:[abfnrtv\\?\"'`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|[0-3][0-7]{2})|(?P<wrong>\\.?)",
    re.DOTALL,
)
_ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_LITERALS = frozenset(("raw", "text", "real", "whole"))
_CONSTANTS = frozenset(("true", "false", "null"))
_WORDS = "as break const continue else for function if import in let loop package namespace return var void while"
_RESERVED = _CONSTANTS | frozenset(_WORDS.split(" "))
_OPERATORS = ({"||"}, {"&&"}, {"<", "<=", ">", ">=", "==", "!=", "in"}, {"+", "-"}, {"*", "/", "%"})
_LOOPS = frozenset(("all", "exists", "exists_one", "filter", "map"))

# The functions of Envoy's runtime, and the numbers of arguments that they accept.
_CONVERSIONS = ("bool", "bytes", "double", "duration", "dyn", "int", "size", "timestamp", "type", "uint")
_TESTS = ("contains", "endsWith", "matches", "startsWith")
_CLOCK = (
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
)
_GLOBAL: Mapping[str, tuple[int, ...]] = {**dict.fromkeys(_CONVERSIONS, (1,)), **dict.fromkeys(_TESTS, (2,))}
_METHODS: Mapping[str, tuple[int, ...]] = {"size": (0,), **dict.fromkeys(_TESTS, (1,)), **dict.fromkeys(_CLOCK, (0, 1))}
_OF_RE: Mapping[str, tuple[int, ...]] = {"extract": (3,), "capture": (2,), "captureN": (2,)}
_PEER = (
    *("subject_local_certificate", "subject_peer_certificate", "dns_san_local_certificate", "dns_san_peer_certificate"),
    *("uri_san_local_certificate", "uri_san_peer_certificate", "sha256_peer_certificate_digest", "tls_version"),
    "transport_failure_reason",
)
_REQUEST = "path url_path host scheme method headers referer useragent time id protocol query duration size total_size"
_RESPONSE = "code code_details flags grpc_status headers trailers size total_size backend_latency"
_XDS = (
    "node cluster_name cluster_metadata listener_direction listener_metadata route_name route_metadata "
    "virtual_host_name virtual_host_metadata upstream_host_metadata upstream_host_locality_metadata filter_chain_name"
)
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "request": tuple(_REQUEST.split()),
    "response": tuple(_RESPONSE.split()),
    "source": ("address", "port"),
    "destination": ("address", "port"),
    "connection": ("id", "mtls", "requested_server_name", "termination_details", *_PEER),
    "upstream": (
        *("address", "port", "local_address", "locality", "request_attempt_count", "cx_pool_ready_duration"),
        *_PEER,
    ),
    "xds": tuple(_XDS.split()),
    "metadata": (),
    "filter_state": (),
    "upstream_filter_state": (),
}
"""The attributes of Envoy, and their members. "()" stands for members of any name.
https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/advanced/attributes"""
_NOT_ATTRIBUTES = _RESERVED | {"re", "google"}


def find_fault(expression: str) -> str:
    """Return why Envoy rejects an expression, or "" if Envoy accepts it."""
    if len(expression) > MAX_LENGTH:
        return f"must be at most {MAX_LENGTH} characters"
    try:
        height = _Parser(list(_tokens(expression))).whole()
    except _SyntaxFault as fault:
        return str(fault)
    except RecursionError:
        height = _MAX_DEPTH + 1
    return f"nested deeper than {_MAX_DEPTH}" if height > _MAX_DEPTH else ""


class _SyntaxFault(Exception):
    """A syntax error. It is always caught in this module."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Argument(NamedTuple):
    """An argument of a call: its first token, its second-to-last token, the number of its tokens, and the height of its
    syntax tree."""

    first: _Token
    last_but_one: _Token
    tokens: int
    height: int


_MISTAKEN = {"=>": ">=", "=<": "<=", "=": "==", "&": "&&", "|": "||"}
_WORD_OPERATORS = {"and": "&&", "or": "||", "not": "!", "AND": "&&", "OR": "||", "NOT": "!"}
"""The operators that are meant by others, longest first, and by words."""


def _hint(expression: str, at: int) -> str:
    """Return a question that suggests an operator, or "" if none is similar to the text at a position."""
    meant = next((operator for text, operator in _MISTAKEN.items() if expression.startswith(text, at)), "")
    return f"; did you mean {meant}?" if meant else ""


def _tokens(expression: str) -> Iterator[_Token]:
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None or match.lastgroup is None:
            raise _SyntaxFault(f"position {at}: unexpected {expression[at : at + 12]!r}{_hint(expression, at)}")
        token = _Token(match.lastgroup, match[0], at)
        if token.kind == "text" and any(escape["wrong"] for escape in _ESCAPE.finditer(token.text)):
            raise _SyntaxFault(f"position {at}: {cut(token.text, 200)} has an invalid escape sequence")
        if token.kind == "whole" and _is_too_large(token.text.lower()):
            raise _SyntaxFault(f"position {at}: {cut(token.text, 40)} does not fit into 64 bits")
        if token.kind != "space":
            yield token
        at = match.end()
    yield _Token("end", "", at)


def _is_too_large(number: str) -> bool:
    plain = number.removesuffix("u")
    digits, base = (plain[2:], 16) if plain.startswith("0x") else (plain, 10)
    digits = digits.lstrip("0") or "0"
    return len(digits) > 20 or int(digits, base) >= (1 << 64 if plain != number else 1 << 63)


class _Parser:
    """Recursive descent parser.

    Each method consumes a part of the expression and returns the height of its syntax tree. Raise `_SyntaxFault` at the
    first unexpected token.
    """

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at = tokens, 0

    def whole(self) -> int:
        height = self._expression()
        if self._next.kind != "end":
            raise self._unexpected()
        return height

    def _expression(self) -> int:
        height = self._operands(0)
        if self._take("?"):
            height = max(height, self._operands(0))
            self._need(":")
            height = max(height, self._expression()) + 1
        return height

    def _operands(self, level: int) -> int:
        """Parse operands that are joined by operators of this or a higher precedence.

        Envoy balances chains of || and &&.
        """
        if level == len(_OPERATORS):
            return self._unary()
        height, chain = self._operands(level + 1), 0
        while self._next.kind in ("sign", "name") and self._next.text in _OPERATORS[level]:
            self._at += 1
            height = max(height, self._operands(level + 1))
            chain += 1
        return height + (min(chain, chain.bit_length()) if level < 2 else chain)

    def _unary(self) -> int:
        sign = self._next.text if self._next.kind == "sign" else ""
        while sign in ("!", "-") and self._take(sign):
            pass
        if sign == "!" and self._next.text == "-" and self._tokens[self._at + 1].kind in ("whole", "real"):
            self._at += 1
        height = self._primary()
        while self._next.kind == "sign" and self._next.text in (".", "["):
            if self._take("["):
                height = max(height, self._expression()) + 1
                self._need("]")
            else:
                self._need(".")
                height = max(height, self._member()) + 1
        return height + (sign in ("!", "-"))

    def _member(self) -> int:
        """Parse a field or a method call."""
        owner, name = self._tokens[self._at - 2], self._next
        if name.kind == "quoted":
            self._at += 1
            return 1
        self._name(_CONSTANTS | {"in"})
        if not self._take("("):
            return 1
        arguments = self._list(")")
        if name.text in _LOOPS:
            raise _SyntaxFault(f"position {name.at}: {name.text}() is a loop, which Envoy does not support")
        _check_call(name, arguments, _OF_RE if owner.text == "re" and name.text in _OF_RE else _METHODS)
        return max((a.height for a in arguments), default=1)

    def _primary(self) -> int:
        token = self._next
        if token.kind in _LITERALS or token.text in _CONSTANTS:
            self._at += 1
            return 1
        if self._take("("):
            height = self._expression() + 1
            self._need(")")
            return height
        if self._take("["):
            return max((a.height for a in self._list("]")), default=0) + 1
        if self._take("{"):
            return self._entries() + 1
        self._take(".")
        return self._reference()

    def _reference(self) -> int:
        """Parse a variable or a function call."""
        name = self._next
        self._name(_RESERVED)
        if not self._take("("):
            return 1
        arguments = self._list(")")
        if name.text != "has":
            _check_call(name, arguments, _GLOBAL)
        elif len(arguments) != 1 or arguments[0].tokens < 3 or arguments[0].last_but_one.text != ".":
            raise _SyntaxFault(f"position {name.at}: has() takes one field, such as has(request.headers.host)")
        return max(a.height for a in arguments) + 1  # every global function has at least one argument

    def _list(self, close: str) -> list[_Argument]:
        """Parse comma-separated expressions up to a closing bracket."""
        expressions: list[_Argument] = []
        while not self._take(close):
            if expressions:
                self._need(",")
                if close == "]" and self._take(close):
                    break
            start = self._at
            height = self._expression()
            expressions.append(_Argument(self._tokens[start], self._tokens[self._at - 2], self._at - start, height))
        return expressions

    def _entries(self) -> int:
        """Parse the entries of a map up to the closing bracket."""
        height = 0
        while not self._take("}"):
            if height:
                self._need(",")
                if self._take("}"):
                    break
            height = max(height, self._expression())
            self._need(":")
            height = max(height, self._expression())
        return height

    # -- tokens
    # ------------------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, sign: str) -> bool:
        """Consume the next token if it is `sign`. Return whether it was consumed."""
        is_next = self._next.kind == "sign" and self._next.text == sign
        self._at += is_next
        return is_next

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(f"expected {sign!r}")

    def _name(self, reserved: frozenset[str]) -> None:
        if self._next.kind != "name" or self._next.text in reserved:
            raise self._unexpected("expected a name")
        self._at += 1

    def _unexpected(self, instead: str = "") -> _SyntaxFault:
        token = self._next
        problem = "unexpected end of the expression" if token.kind == "end" else f"unexpected {token.text!r}"
        previous = self._tokens[self._at - 1].text if self._at else ""
        operator = _WORD_OPERATORS.get(token.text) or _WORD_OPERATORS.get(previous)
        hint = f"; did you mean {operator}?" if operator else ""
        return _SyntaxFault(f"position {token.at}: {problem}{', ' + instead if instead else ''}{hint}")


def _check_call(name: _Token, arguments: Sequence[_Argument], functions: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `_SyntaxFault` if a function does not take this number of arguments, or if the regular expression in a call
    of `matches` is invalid."""
    if len(arguments) not in functions.get(name.text, ()):
        raise _SyntaxFault(f"position {name.at}: Envoy has no function {name.text}() with {len(arguments)} arguments")
    if name.text == "matches" and arguments[-1].tokens == 1 and (last := arguments[-1].first).kind in ("raw", "text"):
        fault = regex.find_fault(_text_of(last))
        if fault:
            raise _SyntaxFault(f"position {last.at}: {fault}")


def _text_of(token: _Token) -> str:
    """Return the value of a string literal, or "" if the literal consists of bytes."""
    prefix = token.text[: len(token.text) - len(token.text.lstrip("rRbB"))].lower()
    quotes = 3 if token.text[len(prefix) :].startswith(('"""', "'''")) and len(token.text) >= len(prefix) + 6 else 1
    value = token.text[len(prefix) + quotes : -quotes]
    return "" if "b" in prefix else value if "r" in prefix else _ESCAPE.sub(_character, value)


def _character(escape: re.Match[str]) -> str:
    kind, digits = escape[0][1], escape[0][2:]
    if kind in "xXuU":
        return chr(int(digits, 16))
    return chr(int(kind + digits, 8)) if kind.isdecimal() else _ESCAPES.get(kind, kind)


def find_unknown_attributes(expression: str) -> Iterator[str]:
    """Yield a message for each attribute of a valid expression that Envoy does not have. It makes the result an error,
    which is equivalent to false."""
    tokens = list(_tokens(expression))
    for index, token in enumerate(tokens[:-1]):
        is_member = index > 0 and tokens[index - 1].text in (".", "?.")
        if token.kind != "name" or is_member or token.text in _NOT_ATTRIBUTES or tokens[index + 1].text == "(":
            continue
        names = _ATTRIBUTES.get(token.text)
        member = tokens[index + 2].text if tokens[index + 1].text == "." and index + 2 < len(tokens) else ""
        if names is None:
            listing = f"attributes begin with {', '.join(_ATTRIBUTES)}"
            yield f"unknown attribute {cut(token.text, 40)}{did_you_mean(token.text, _ATTRIBUTES)}; {listing}"
        elif names and member and member not in names:
            listing = f"attributes of {token.text} are {', '.join(names)}"
            yield f"unknown attribute {token.text}.{cut(member, 40)}{did_you_mean(member, names)}; {listing}"
