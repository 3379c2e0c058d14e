"""Values that took exponential or quadratic time to check: without linear checks, these tests do not end."""

from __future__ import annotations

import pytest

from pilot.config.validation.format_string import is_known
from pilot.config.validation.traffic.headers import check_format

N = 500_000


@pytest.mark.parametrize(
    "text",
    [
        '%A(["' + '"" ' * N + "x",
        "%A([" + '"" ' * N + "])",
        "%A(" * N,
        "%A(\\" * N,
        '%A([")%' * N,
        '%A(["" ' * N,
        "%A( " + " " * N + "[",
        "%" + " " * N,
    ],
)
def test_nested_header_format_is_rejected_in_linear_time(text: str) -> None:
    assert [p.code for p in check_format("", text, "bad-header-value")] == ["bad-header-value"]


@pytest.mark.parametrize("text", ["%REQ(a)% " * N, "%% " * N, '%A([ "a" , "b""c" ,])%', "no operator" * N])
def test_long_formats_are_read_to_their_end(text: str) -> None:
    assert {p.message[:4] for p in check_format("", text)} <= {"%A(["}


@pytest.mark.parametrize(
    "argument",
    [
        "COALESCE({" + '"operators"' * N + ")",
        "REQ(" + ")" * N + "x",
        "REQ(" + ") " * N + "x",
        "FILTER_STATE(a" + ":FIELD" * N + ":)",
        "COMMON_DURATION(" + "a:" * N + ")",
    ],
)
def test_operator_arguments_are_checked_in_linear_time(argument: str) -> None:
    assert not is_known(argument) or argument.startswith("FILTER_STATE")
