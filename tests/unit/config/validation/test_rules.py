"""Validation of hosts of ServiceEntries, VirtualServices and DestinationRules."""

from __future__ import annotations

import pytest

from pilot.config.problem import error
from pilot.config.validation.rules import check_host

LABEL, LONG = "a" * 63, "a" * 64
LONGEST = ".".join((LABEL,) * 4)  # 255 characters


@pytest.mark.parametrize(
    "host",
    [
        "a",
        "A-1.b",
        "shop.example.com",
        "shop.example.com.",
        "1",
        "10",
        "1a.2b",
        "10.1a",
        "*",
        "*.example.com",
        "*-a.example.com",
        "*a.b",
        "*.a.",
        LABEL,
        f"*-{'a' * 61}",
        f"{LABEL}.b",
        f"a.{LABEL}",
        LONGEST,
        f"*{LONGEST[1:]}",
    ],
)
def test_valid_hosts(host: str) -> None:
    assert tuple(check_host("hosts[0]", host)) == ()


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("", "a name is required"),
        (f"{LONGEST}b", "must be at most 255 characters"),
        (f"{LONGEST}.", "must be at most 255 characters"),
        *(
            (f"a.{text}", f"'a.{text}' is not a domain name: the last label is a number")
            for text in ("1", "b.22", "é.٣")
        ),
        *(
            (text, f"{text!r} is not a domain name: invalid label {text!r}")
            for text in (LONG, "a_b", "-a", "a-", "**", f"*-{'a' * 62}", "é")
        ),
        *(
            (f"{text}.b", f"'{text}.b' is not a domain name: invalid label {text!r}")
            for text in (LONG, "", "a_b", "a-")
        ),
        *(
            (f"a.{text}", f"'a.{text}' is not a domain name: invalid label {text!r}")
            for text in (LONG, "b_c", "-b", "*", "é")
        ),
        ("a..b", "'a..b' is not a domain name: invalid label ''"),
        ("a..", "'a..' is not a domain name: invalid label ''"),
    ],
)
def test_invalid_hosts(host: str, message: str) -> None:
    assert tuple(check_host("hosts[0]", host)) == (error("bad-host", "hosts[0]", message),)
