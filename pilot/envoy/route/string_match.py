"""Builds Envoy's string matchers. https:

www.envoyproxy.io/docs/envoy/latest/api-v3/type/matcher/v3/string.proto
"""

from __future__ import annotations

from envoy.type.matcher.v3 import regex_pb2, string_pb2

from pilot.config.networking.virtual_service import StringMatch

ANYTHING = "*"  # not a regular expression: users write it for "is there"


def build_string_matcher(match: StringMatch) -> string_pb2.StringMatcher | None:
    """Returns None for a match that says nothing."""
    if match.exact is not None:
        return string_pb2.StringMatcher(exact=match.exact)
    if match.prefix is not None:
        return string_pb2.StringMatcher(prefix=match.prefix)
    if match.regex is not None:
        return string_pb2.StringMatcher(safe_regex=build_regex(match.regex))
    return None


def build_regex(regex: str) -> regex_pb2.RegexMatcher:
    """Returns the matcher of a regular expression (RE2) that has to match the whole text."""
    return regex_pb2.RegexMatcher(regex=regex)


def means_present(match: StringMatch) -> bool:
    """Returns whether a match only asks whether the value is there: without any kind of match, or with the regular expression `*`."""
    return match.regex == ANYTHING or (match.exact is None and match.prefix is None and match.regex is None)
