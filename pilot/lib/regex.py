"""Validates regular expressions with RE2, the engine that Envoy uses.

https://github.com/google/re2/wiki/Syntax

RE2 matches in linear time, but an expression of a few characters can compile to a large program: `[\\pL]{300}` has
360,000 instructions, which take 130 ms and 8 MB. Therefore, the size of a program is limited, and so is the total cost
of all expressions in an object (see `one_budget`).
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

import re2

MAX_LENGTH = 1024
MAX_COST = 250_000
"""The maximum total cost of the distinct expressions in an object.

The unit is an instruction of a program, which takes about 0.5 µs. 2,000 expressions of 60 characters stay below the
maximum.
"""
_PER_EXPRESSION, _PER_PROPERTY, _PER_FAULT = 16, 256, 16_384
"""The costs of each expression, of each Unicode property such as `\\pL`, and of an expression that is invalid."""
LONGEST_SEARCHED = 256
"""Maximum length of a text that is searched."""
_LARGE_PROGRAM = 1024
"""The maximum number of instructions of a program that is kept in RE2's cache. The cache has 128 entries."""

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20  # bytes; it is sufficient for 43,000 instructions


_SEARCH_OPTIONS = re2.Options()
_SEARCH_OPTIONS.log_errors = False
_SEARCH_OPTIONS.max_mem = 128 << 10  # bytes; it is sufficient for 5,000 instructions, which take 3 ms


class _Checked(NamedTuple):
    fault: str
    cost: int


class _Budget:
    """The remaining budget, and the expressions whose cost has already been deducted."""

    __slots__ = ("patterns", "rest")

    def __init__(self) -> None:
        self.rest = MAX_COST
        self.patterns: set[str] = set()


_budget: ContextVar[_Budget | None] = ContextVar("regex_budget", default=None)
_OVER_BUDGET = f"the regular expressions of this object are too complex: more than {MAX_COST} instructions in total"


class _BudgetScope(AbstractContextManager[None]):
    """The context of one object. A class, because a generator takes three times as long, and each object has one."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[_Budget | None] = _budget.set(_Budget())

    def __exit__(self, *_: object) -> None:
        _budget.reset(self._token)


def one_budget() -> AbstractContextManager[None]:
    """Limit the total cost of the distinct expressions that are checked in this context."""
    return _BudgetScope()


def find_fault(pattern: str) -> str:
    """Return why a pattern is invalid, or "" if it is valid.

    The result depends neither on the cache nor on the machine: costs are counted, not measured. The expression that
    exhausts the budget is still accepted. Later new expressions are rejected without being compiled.
    """
    if len(pattern) > MAX_LENGTH:
        return f"must be at most {MAX_LENGTH} characters"
    budget = _budget.get()
    if budget is not None and pattern not in budget.patterns:
        budget.rest -= _PER_EXPRESSION + _PER_PROPERTY * (pattern.count(r"\p") + pattern.count(r"\P"))
        if budget.rest < 0:
            return _OVER_BUDGET
        budget.rest -= _checked(pattern).cost
        budget.patterns.add(pattern)
    return _checked(pattern).fault


def is_found(pattern: str, text: str) -> bool:
    """Return whether a valid and searchable pattern matches a part of a text of at most `LONGEST_SEARCHED`
    characters."""
    if len(text) > LONGEST_SEARCHED:
        return False
    expression = _searchable(pattern)
    return expression is not None and expression.search(text) is not None


def is_searchable(pattern: str) -> bool:
    """Return whether the program of a valid pattern is small enough for `is_found`."""
    return _searchable(pattern) is not None


@functools.lru_cache(maxsize=64)
def _searchable(pattern: str) -> Any:
    """Return the compiled pattern, or None if its program is too large.

    An object can contain the same pattern thousands of times. The cache holds at most 64 × 128 KiB.
    """
    try:
        expression = re2.compile(pattern, options=_SEARCH_OPTIONS)
    except re2.error:
        return None
    if expression.programsize > _LARGE_PROGRAM:
        re2.purge()
    return expression


@functools.lru_cache(maxsize=1024)
def _checked(pattern: str) -> _Checked:
    try:
        size = re2.compile(pattern, options=_OPTIONS).programsize
    except UnicodeError:
        return _Checked("it contains characters that UTF-8 cannot encode", _PER_FAULT)
    except re2.error as reason:
        text = reason.args[0] if reason.args else reason
        return _Checked(text.decode(errors="replace") if isinstance(text, bytes) else str(text), _PER_FAULT)
    if size > _LARGE_PROGRAM:
        re2.purge()
    return _Checked("", size)
