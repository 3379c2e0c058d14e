"""Builds an HTTPRewrite: another path before the request goes on. The other host is in `action`."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import regex_pb2

from pilot.config.networking.virtual_service import HTTPRewrite
from pilot.envoy.route.string_match import build_regex


def set_path_rewrite(action: route_components_pb2.RouteAction, rewrite: HTTPRewrite) -> None:
    """Sets another path. A regular expression comes before a prefix; what a prefix rewrite replaces is what the route's match matched."""
    if rewrite.uri_regex_rewrite is not None:
        pattern = build_regex(rewrite.uri_regex_rewrite.match)
        action.regex_rewrite.CopyFrom(
            regex_pb2.RegexMatchAndSubstitute(pattern=pattern, substitution=rewrite.uri_regex_rewrite.rewrite)
        )
    elif rewrite.uri:
        action.prefix_rewrite = rewrite.uri
