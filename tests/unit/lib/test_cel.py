"""CEL expressions that Envoy accepts and rejects. The end-to-end tests check the lists against Envoy."""

from __future__ import annotations

import pytest

from pilot.lib.cel import find_fault, find_unknown_attributes

ACCEPTED = [
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
REJECTED = [
    "",
    "1 +",
    "a b",
    "(a",
    "a)",
    "a ? b",
    "a == 'x",
    "1 = 1",
    "a & b",
    "a$",
    "a and true",
    "'a' 'b'",
    "if",
    "a.in",
    "size()",
    "size(1, 2)",
    "foo(1)",
    "request.foo(1)",
    "getHours(request.time)",
    "string(1)",
    "has(request)",
    "has(a['b'])",
    "[1, 2].exists(x, x > 1)",
    "[1].map(x, x)",
    "'a'.matches('[')",
    r"'\q'",
    "9223372036854775808",
    "18446744073709551616u",
    "lowerAscii('A')",
    "1" + " + 1" * 40,
    "a" + ".b" * 40,
    "(" * 40 + "a" + ")" * 40,
    "[" * 2000,
    "`a`",
]


@pytest.mark.parametrize("expression", ACCEPTED, ids=lambda e: e[:40])
def test_accepted_expressions(expression: str) -> None:
    assert find_fault(expression) == ""


@pytest.mark.parametrize("expression", REJECTED, ids=lambda e: e[:40])
def test_rejected_expressions(expression: str) -> None:
    assert find_fault(expression) != ""


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("", "position 0: unexpected end of the expression, expected a name"),
        ("1 +", "position 3: unexpected end of the expression, expected a name"),
        ("a b", "position 2: unexpected 'b'"),
        ("response.code >= 400 and true", "position 21: unexpected 'and'; did you mean &&?"),
        ("a.startsWith('b'", "position 16: unexpected end of the expression, expected ','"),
        ("(a", "position 2: unexpected end of the expression, expected ')'"),
        ("a)", "position 1: unexpected ')'"),
        ("a ? b", "position 5: unexpected end of the expression, expected ':'"),
        ("a == 'x", 'position 5: unexpected "\'x"'),
        ("not has(a.b)", "position 4: unexpected 'has'; did you mean !?"),
        ("1 = 1 and much more", "position 2: unexpected '= 1 and much'; did you mean ==?"),
        ("if", "position 0: unexpected 'if', expected a name"),
        ("a.in", "position 2: unexpected 'in', expected a name"),
        ("a.true", "position 2: unexpected 'true', expected a name"),
        ("-!a", "position 1: unexpected '!', expected a name"),
        ("a[1", "position 3: unexpected end of the expression, expected ']'"),
        ("a[]", "position 2: unexpected ']', expected a name"),
        ("[1 2]", "position 3: unexpected '2', expected ','"),
        ("{1}", "position 2: unexpected '}', expected ':'"),
        ("{1: 2 3}", "position 6: unexpected '3', expected ','"),
        ("{,}", "position 1: unexpected ',', expected a name"),
        ("f(,)", "position 2: unexpected ',', expected a name"),
        ("size(1,)", "position 7: unexpected ')', expected a name"),
        ("1 == size()", "position 5: Envoy has no function size() with 0 arguments"),
        ("a.getHours('a', 'b')", "position 2: Envoy has no function getHours() with 2 arguments"),
        ("re.captureN('a')", "position 3: Envoy has no function captureN() with 1 arguments"),
        ("x.extract(1, 2, 3)", "position 2: Envoy has no function extract() with 3 arguments"),
        ("has()", "position 0: has() takes one field, such as has(request.headers.host)"),
        ("has(a.b, a.c)", "position 0: has() takes one field, such as has(request.headers.host)"),
        ("[1].map(x, x)", "position 4: map() is a loop, which Envoy does not support"),
        ("'a'.matches('[')", "position 12: missing ]: ["),
        ("matches(a, r'[')", "position 11: missing ]: ["),
        (r"a == '\x4'", r"position 5: '\x4' has an invalid escape sequence"),
        ("a > 0x8000000000000000", "position 4: 0x8000000000000000 does not fit into 64 bits"),
        ("0x10000000000000000u", "position 0: 0x10000000000000000u does not fit into 64 bits"),
        ("1" * 5000, f"position 0: {'1' * 40}… (4960 more characters) does not fit into 64 bits"),
        (r"'\U00110000'", r"position 0: '\U00110000' has an invalid escape sequence"),
        (r"matches(a, r'\')", "position 11: trailing \\"),
        (r"matches(a, '\x41\050\101')", "position 11: missing ): A(A"),
        (r"matches(a, '\ud800')", "position 11: it contains characters that UTF-8 cannot encode"),
        ("1" * 16_385, "must be at most 16384 characters"),
    ],
    ids=lambda text: text[:20],
)
def test_fault_messages(expression: str, fault: str) -> None:
    assert find_fault(expression) == fault


@pytest.mark.parametrize(
    "expression",
    [
        "9223372036854775807",
        "0x7FFFFFFFFFFFFFFF",
        "18446744073709551615u",
        "0xFFFFFFFFFFFFFFFFu",
        "true.a",
        "!!-1",
        "size(a) == size('b')",
        "[]",
        "{}",
        "a.matches(b'[')",
        "a.matches(b)",
        "'a'.getHours() == a.getHours('UTC')",
        "{'a': 1, 'b': 2,}['b']",
        "re.capture('a', 'b')",
        "a in b in c",
        " " * 16_383 + "a",
        "0" * 16_000 + "1",
        """'a'.matches(b'é')""",
        """'a'.matches(r'\\\\')""",
    ],
    ids=lambda text: text[:20],
)
def test_boundary_expressions_are_accepted(expression: str) -> None:
    assert find_fault(expression) == ""


@pytest.mark.parametrize(
    ("form", "times"),
    [
        ("(@)", 30),
        ("[@]", 30),
        ("[1, @]", 30),
        ("{'a': @}", 30),
        ("{@: 1}", 30),
        ("a[@]", 30),
        ("@[0]", 30),
        ("@.b", 30),
        ("size(@)", 30),
        ("a.contains(@)", 30),
        ("@.contains('x')", 30),
        ("re.extract(@, 'b', 'c')", 30),
        ("a ? b : @", 30),
        ("@ ? a : b", 30),
        ("@ + 1", 30),
        ("1 + @", 30),
        ("@ < 2", 30),
        ("!(@)", 15),
        ("-(@)", 15),
        ("(@ ? a : b)", 15),
        ("(b ? @ : a)", 15),
        ("a || (@)", 15),
        ("has(@.b)", 15),
        ("a && (b || @)", 10),
        ("(1 + 2 + @)", 10),
        ("(a || b || c || @)", 10),
        ("(@ && b && c && d && e && f && g && h)", 7),
    ],
)
def test_nesting_limits(form: str, times: int) -> None:
    expressions = ["a"]
    for _ in range(times + 1):
        expressions.append(form.replace("@", expressions[-1]))
    assert find_fault(expressions[times]) == ""
    assert find_fault(expressions[times + 1]) == "nested deeper than 31"


@pytest.mark.parametrize(
    ("expression", "starts"),
    [
        ("response.status >= 400", ["unknown attribute response.status; attributes of response are code,"]),
        ("reqest.path == 'a'", ["unknown attribute reqest; did you mean request?; attributes begin with request,"]),
        ("request.headers['x'].size() > 0 && re.extract('a', 'b', 'c') == metadata.a.b", []),
    ],
)
def test_unknown_attributes(expression: str, starts: list[str]) -> None:
    messages = list(find_unknown_attributes(expression))
    assert len(messages) == len(starts)
    assert all(message.startswith(start) for message, start in zip(messages, starts, strict=True))
