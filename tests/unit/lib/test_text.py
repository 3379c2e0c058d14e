"""Display and validation of untrusted text."""

from __future__ import annotations

import os

import pytest

from pilot.debug.page import encode
from pilot.lib.path_template import find_template_fault
from pilot.lib.regex import find_fault
from pilot.lib.text import cut, human_size, one_line


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_one_line(text: str, expected: str) -> None:
    assert one_line(text) == expected
    expected.encode()


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
def test_path_template_faults(path: str, fault: str) -> None:
    assert find_template_fault(path) == fault


def test_cut() -> None:
    assert cut("12345", 5) == "12345"
    assert cut("123456", 5) == "12345… (1 more characters)"


def test_debug_page_with_non_utf8_file_names() -> None:
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
    ("size", "expected"),
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
def test_human_size(size: int, expected: str) -> None:
    assert human_size(size) == expected


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("/a/.*", ""),
        ("(a", "missing ): (a"),
        ("a" * 1024, ""),
        ("a" * 1025, "must be at most 1024 characters"),
        ("\ud800", "it contains characters that UTF-8 cannot encode"),
    ],
    ids=["valid", "unclosed", "long", "too-long", "surrogate"],
)
def test_regex_faults(pattern: str, fault: str) -> None:
    assert find_fault(pattern) == fault
