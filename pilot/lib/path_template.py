"""Path templates in AuthorizationPolicies.

`{*}` matches one segment of a path, and `{**}` matches all remaining segments.
"""

from __future__ import annotations

import re

ONE, REST = "{*}", "{**}"
_MAX_LENGTH = 256  # in Envoy's syntax
# The characters of a segment (pchar of RFC 3986 appendix A) without `*`, which Envoy's templates use.
_SEGMENT = re.compile(r"[-a-zA-Z0-9._~%!$&'()+,;:@=]+", re.ASCII)


def is_template(path: str) -> bool:
    """Return whether a path contains `{*}` or `{**}`."""
    return ONE in path or REST in path


def to_envoy(path: str) -> str:
    """Return a template in Envoy's syntax, which uses `*` and `**`."""
    return path.replace(REST, "**").replace(ONE, "*")


def find_template_fault(path: str) -> str:
    """Return why a path is not a valid template, or "" if it is valid.

    A path that is not a template must not contain braces.
    """
    is_checked = is_template(path)
    if is_checked:
        if not path.startswith("/"):
            return f"{path!r} does not begin with /"
        if len(to_envoy(path)) > _MAX_LENGTH:
            return f"must be at most {_MAX_LENGTH} characters"
    rest_seen = False
    for segment in path.strip("/").split("/"):
        if segment in (ONE, REST):
            if rest_seen:
                return f"no {ONE} or {REST} may follow {REST}"
            rest_seen = segment == REST
        elif "{" in segment or "}" in segment:
            return f"braces may only form {ONE} or {REST}, as whole segments"
        elif is_checked and not _SEGMENT.fullmatch(segment):
            return f"{segment!r} is not a segment of a path"
    return ""
