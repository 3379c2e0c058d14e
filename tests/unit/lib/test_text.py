"""Text of others, made safe to show."""

from __future__ import annotations

import os

import pytest

from pilot.debug.page import encode
from pilot.lib.path_template import find_template_fault
from pilot.lib.regex import MAX_LENGTH, find_fault
from pilot.lib.text import cut, human_size, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcödé", "plain text, ünïcödé"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x1b[31mred\x00", r"\x1b[31mred\x00"),
        ("a\x85b\x9bc\x7f", r"a\x85b\x9bc\x7f"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        (os.fsdecode(b"caf\xe9.yaml"), r"caf\xe9.yaml"),
        ("\ud83d", r"\ud83d"),
        ("", ""),
    ],
)
def test_one_line(text: str, shown: str) -> None:
    assert one_line(text) == shown
    shown.encode()


@pytest.mark.parametrize(("length", "fault"), [(1024, ""), (1025, "must be at most 1024 characters")])
def test_expressions_have_a_length(length: int, fault: str) -> None:
    assert find_fault("a" * length) == fault


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/a/{*}/b/{**}", ""),
        ("/a/{**}/b", ""),
        ("a/{*}", "'a/{*}' does not begin with /"),
        ("/a/{**}/{*}", "no {*} or {**} may follow {**}"),
        ("/a{*}", "braces may only form {*} or {**}, as whole segments"),
        ("/a b/{*}", "'a b' is not a segment of a path"),
        ("/a b", ""),
        (f"/{'a' * 253}/{{*}}", ""),
        (f"/{'a' * 254}/{{*}}", "must be at most 256 characters"),
        (f"/{'a' * 300}", ""),
    ],
)
def test_what_is_wrong_with_a_path_of_templates(path: str, fault: str) -> None:
    assert find_template_fault(path) == fault


def test_cut() -> None:
    assert cut("12345", 5) == "12345"
    assert cut("123456", 5) == "12345… (1 more characters)"


def test_a_page_shows_file_names_that_are_no_utf8() -> None:
    problem = {
        "file": os.fsdecode(b"/etc/caf\xe9.yaml"),
        "message": "two\nlines",
        "lines": [1, None],
        os.fsdecode(b"\xff"): True,
    }
    assert (
        encode([problem], {}).body
        == rb'[{"file":"/etc/caf\\xe9.yaml","message":"two\nlines","lines":[1,null],"\\xff":true}]'
    )
    assert encode([problem], {"pretty": ""}).body.startswith(b"[\n    {\n")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (999, "999B"),
        (1000, "1.0kB"),
        (33_210, "33.2kB"),
        (10**6, "1.0MB"),
        (10**9, "1.0GB"),
        (1_400_000_000, "1.4GB"),
    ],
)
def test_sizes_as_people_read_them(size: int, shown: str) -> None:
    assert human_size(size) == shown


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("/a/.*", ""),
        ("(a", "missing ): (a"),
        ("a" * MAX_LENGTH, ""),
        ("a" * (MAX_LENGTH + 1), f"must be at most {MAX_LENGTH} characters"),
        ("\ud800", "it contains characters that UTF-8 cannot encode"),
    ],
    ids=["right", "open", "long", "too-long", "surrogate"],
)
def test_what_is_wrong_with_a_pattern(pattern: str, fault: str) -> None:
    assert find_fault(pattern) == fault
