"""Matchers for the values in AuthorizationPolicies: exact, `prefix*`, `*suffix`, or `*` for any non-empty value.

Values that become part of a regular expression are quoted. A dot, for example, matches only a dot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2, value_pb2

from pilot.lib.regex import find_fault

StringMatcher = string_pb2.StringMatcher
ANY = "*"
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def quote(text: str) -> str:
    """Return a regular expression (RE2) that matches only this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def build_regex(pattern: str) -> string_pb2.StringMatcher | None:
    """Return the matcher for a regular expression, or None if Envoy would reject the expression or it is too large."""
    return None if find_fault(pattern) else StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex=pattern))


PRESENT = StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex=".+"))


def build_text(pattern: str, ignore_case: bool = False) -> string_pb2.StringMatcher:
    """Return the matcher for a value."""
    if pattern == ANY:
        return PRESENT
    if pattern.startswith(ANY):
        return StringMatcher(suffix=pattern[1:], ignore_case=ignore_case)
    if pattern.endswith(ANY):
        return StringMatcher(prefix=pattern[:-1], ignore_case=ignore_case)
    return StringMatcher(exact=pattern, ignore_case=ignore_case)


def build_header(name: str, pattern: str, ignore_case: bool = False) -> route_components_pb2.HeaderMatcher:
    """Return the matcher for a header. The pattern `*` requires only that the header is present."""
    if pattern == ANY:
        return route_components_pb2.HeaderMatcher(name=name, present_match=True)
    return route_components_pb2.HeaderMatcher(name=name, string_match=build_text(pattern, ignore_case))


def build_any_value(matchers: Sequence[value_pb2.ValueMatcher]) -> value_pb2.ValueMatcher:
    """Return a matcher that succeeds if any of the given matchers does. At least one matcher is required."""
    return (
        matchers[0]
        if len(matchers) == 1
        else value_pb2.ValueMatcher(or_match=value_pb2.OrMatcher(value_matchers=matchers))
    )


def build_text_value(pattern: str) -> value_pb2.ValueMatcher:
    """Return the matcher for a metadata value that is a string."""
    return value_pb2.ValueMatcher(string_match=build_text(pattern))


def build_list_value(item_matcher: value_pb2.ValueMatcher) -> value_pb2.ValueMatcher:
    """Return the matcher for a list with at least one matching item."""
    return value_pb2.ValueMatcher(list_match=value_pb2.ListMatcher(one_of=item_matcher))
