"""The decision whether a regular expression takes linear time, and the uses of `re` in a module."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from tools.lint_regexes import is_linear, uses


@pytest.mark.parametrize(
    "pattern",
    ["a*b", "(ab)*(a)*", r"(\w+\.)*\w+", "(a|b)*c", "(?:a{0,61}b)*", r'"(?:[^"\\]|\\.)*"', "(?:a?)*", "(?=a*)b*"],
)
def test_linear_expressions(pattern: str) -> None:
    assert is_linear(pattern, anchored=True)


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*", "(a|a)*b", "(?:a(?:b?)?)*c", r"(?:\w+\s?)*x", r'(?:[ ]*"[^"]*"[ ]*,?)*x', "(a|ab|b)*c", "((a|b)*c?)*"],
)
def test_exponential_expressions_are_reported(pattern: str) -> None:
    assert not is_linear(pattern, anchored=True)


@pytest.mark.parametrize("pattern", ["a*a*b", r"\d+\w*:", "[^b]*b?[^b]*c", '{.*"operators".*}', "(?i)k+K+x"])
def test_polynomial_expressions_are_reported(pattern: str) -> None:
    assert not is_linear(pattern, anchored=True)


@pytest.mark.parametrize("pattern", ["a+b", "a+$", "x.*y", "a(?:a+c)?", r"%\([^)]*\)", "(?m)^a+b|c+d", r"(?m)^\s+x"])
def test_searches_that_begin_anywhere_are_reported(pattern: str) -> None:
    assert is_linear(pattern, anchored=True)
    assert not is_linear(pattern)


@pytest.mark.parametrize("pattern", ["a+", "^x.*y", r"\Ax.*y", "(?m)^a+:$", r"\[(\d+)\]$", "[a-z]+|[0-9]+"])
def test_linear_searches(pattern: str) -> None:
    assert is_linear(pattern)


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(a)?(?(1)b|c)"])
def test_references_to_groups_are_reported(pattern: str) -> None:
    assert not is_linear(pattern)


@pytest.mark.parametrize(
    ("code", "name", "pattern", "methods"),
    [
        ("X = re.compile('a')\nX.match(b)\nX.fullmatch(c)", "X", "a", {"match", "fullmatch"}),
        ("X = re.compile('a')\nf(X)", "X", "a", {"search"}),
        ("X = re.compile('a').fullmatch", "X", "a", {"fullmatch"}),
        ("X = re.compile('a' 'b')\nX.sub(c)", "X", "ab", {"sub"}),
        ("X = {1: re.compile('a')}", "compile", None, {"search"}),
        ("re.sub('a', 'b', 'c')", "sub", "a", {"sub"}),
        ("re.search('a' + chr(66), 'c')", "search", None, {"search"}),
    ],
)
def test_uses(code: str, name: str, pattern: str | None, methods: set[str]) -> None:
    names: dict[str, Any] = {"re": re}
    tree = ast.parse(code)
    exec(ast.unparse(tree.body[0]), names)
    (use,) = uses(tree, names)
    assert (use.name, use.pattern, set(use.methods)) == (name, pattern, methods)


def test_flags_of_a_use() -> None:
    (use,) = uses(ast.parse("re.fullmatch('a', b, re.ASCII | re.DOTALL)"), {})
    assert use.flags == re.ASCII | re.DOTALL


def test_expression_that_is_accepted_matches_long_texts() -> None:
    pattern = "(?:ab?)*c"
    assert is_linear(pattern, anchored=True)
    assert re.fullmatch(pattern, "ab" * 100_000) is None
