"""User and group IDs of proxies on OpenShift, from the ranges that are assigned to namespaces.

https://docs.redhat.com/en/documentation/openshift_container_platform/latest/html/authentication_and_authorization/managing-pod-security-policies
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from webhook.inject.request import PROXY_ID

_USERS, _GROUPS = "openshift.io/sa.scc.uid-range", "openshift.io/sa.scc.supplemental-groups"
_RANGE = re.compile(r"(\d{1,19})([/-])(\d{1,19})(?!\d)")


def proxy_ids(annotations: Mapping[str, str]) -> tuple[int, int]:
    """Return the proxy's user and group ID for a namespace with these annotations.

    The user ID is the last ID of the user range, and the group ID is the last ID of the first group range. If a range
    is missing or invalid, the ID is 1337.
    """
    users = annotations.get(_USERS, "")
    groups = annotations.get(_GROUPS, users).partition(",")[0]
    return _last(users), _last(groups)


def _last(text: str) -> int:
    match = _RANGE.match(text)
    if match is None:
        return PROXY_ID
    first, separator, second = int(match[1]), match[2], int(match[3])
    return first + second - 1 if separator == "/" else second
