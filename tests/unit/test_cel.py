"""Which filters Envoy takes: each row was given to Envoy 1.40, and the end-to-end tests ask it again."""
from __future__ import annotations

import pytest

from pilot.lib.cel import find_fault

TAKEN = [
    "response.code >= 400 || request.url_path.startsWith('/breaking')",
    "request.headers['x'] == \"a\"",
    "has(request.auth.principal) && !(connection.mtls)",
    "response.code in [1, 2, 3,]",
    "a ? b : c ? d : e",
    "{'a': 1,}.a == 0x1F",
    r"r'\d' == '\\d'",
    "'''a'b''' + b'abc'.size()",
    "request.time.getHours('UTC') < .5",
    "matches(request.path, 'a') || request.path.matches('a.*')",
    "re.extract('a', 'b', 'c') == 'x'",
    "duration('1s') > timestamp('2020-01-01T00:00:00Z') - request.time",
    "!-1 == - -1",
    ".a.`b-c`.for",
    "true // all",
    "(" * 20 + "a" + ")" * 20,
    "a" + " || a" * 300,
]
REFUSED = [
    "", "1 +", "a b", "(a", "a)", "a ? b", "a == 'x", "1 = 1", "a & b", "a$", "a and true", "'a' 'b'", "if", "a.in", "size()", "size(1, 2)",
    "foo(1)", "request.foo(1)", "getHours(request.time)", "string(1)", "has(request)", "has(a['b'])", "[1, 2].exists(x, x > 1)", "[1].map(x, x)",
    "'a'.matches('[')", r"'\q'", "9223372036854775808", "18446744073709551616u", "lowerAscii('A')", "1" + " + 1" * 40, "a" + ".b" * 40,
    "(" * 40 + "a" + ")" * 40, "[" * 2000, "`a`",
]  # fmt: skip


@pytest.mark.parametrize("expression", TAKEN, ids=lambda e: e[:40])
def test_what_envoy_takes(expression: str) -> None:
    assert find_fault(expression) == ""


@pytest.mark.parametrize("expression", REFUSED, ids=lambda e: e[:40])
def test_what_envoy_refuses(expression: str) -> None:
    assert find_fault(expression) != ""


def test_a_fault_says_where_it_is() -> None:
    assert find_fault("response.code >= 400 and true") == "position 21: 'and' does not belong there"
    assert find_fault("a.startsWith('b'") == "position 16: the expression ends too early, ',' is expected"
