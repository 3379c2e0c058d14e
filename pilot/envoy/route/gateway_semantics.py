"""Finishes routes that follow the rules of the Gateway API where they differ from those of VirtualServices."""

from __future__ import annotations

import re

from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import regex_pb2

from pilot.envoy.route.string_match import build_regex

_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_REST_OF_PATH = r"/\2"


def set_gateway_semantics(route: route_components_pb2.Route) -> None:
    """Sets what is different in a route with destinations.

    A backend that is not there answers 500. A prefix that is replaced by "/" is taken away, and what is left begins with one slash.
    """
    action = route.route
    action.cluster_not_found_response_code = route_components_pb2.RouteAction.INTERNAL_SERVER_ERROR
    if action.prefix_rewrite == "/":
        prefix = _SPECIAL.sub(lambda found: "\\" + found[0], route.match.path_separated_prefix)
        pattern = build_regex(f"^{prefix}(/?)(.*)")
        action.prefix_rewrite = ""
        action.regex_rewrite.CopyFrom(regex_pb2.RegexMatchAndSubstitute(pattern=pattern, substitution=_REST_OF_PATH))
