"""Path templates of AuthorizationPolicies: `{*}` stands for one segment of a path, `{**}` for all that follow."""

from __future__ import annotations

import re

ONE, REST = "{*}", "{**}"
_LONGEST = 256  # in Envoy's words
# What a segment may be made of (pchar of RFC 3986 appendix A); `*` is left out, for Envoy's own templates use it.
_SEGMENT = re.compile(r"[-a-zA-Z0-9._~%!$&'()+,;:@=]+", re.ASCII)


def is_template(path: str) -> bool:
    """Returns whether a path has a place for something."""
    return ONE in path or REST in path


def to_envoy(path: str) -> str:
    """Returns a template as Envoy writes it: `*` and `**`."""
    return path.replace(REST, "**").replace(ONE, "*")


def find_template_fault(path: str) -> str:
    """Returns what is wrong with a path by the rules of templates, "" where nothing is. One without a place may have no braces."""
    if is_template(path):
        if not path.startswith("/"):
            return f"{path!r} does not begin with /"
        if len(to_envoy(path)) > _LONGEST:
            return f"longer than {_LONGEST} characters"
    rest_seen = False
    for segment in path.strip("/").split("/"):
        if segment in (ONE, REST):
            if rest_seen:
                return f"nothing that stands for segments may follow {REST}"
            rest_seen = segment == REST
        elif "{" in segment or "}" in segment:
            return f"braces are for {ONE} and {REST} alone, as whole segments"
        elif is_template(path) and not _SEGMENT.fullmatch(segment):
            return f"{segment!r} is not a segment of a path"
    return ""
