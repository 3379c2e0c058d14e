"""Who proxies run as on OpenShift: by the ranges of users and groups that a namespace is given.

https://docs.redhat.com/en/documentation/openshift_container_platform/latest/html/authentication_and_authorization/managing-pod-security-policies
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from webhook.inject.request import PROXY_ID

_USERS, _GROUPS = "openshift.io/sa.scc.uid-range", "openshift.io/sa.scc.supplemental-groups"
_RANGE = re.compile(r"(\d+)([/-])(\d+)")


def proxy_ids(annotations: Mapping[str, str]) -> tuple[int, int]:
    """Returns the user and group of the proxies of a namespace with these annotations: the last of its range of users, and of its first
    range of groups; the usual ones where a range is not said or wrong."""
    users = annotations.get(_USERS, "")
    groups = annotations.get(_GROUPS, users).partition(",")[0]
    return _last(users), _last(groups)


def _last(text: str) -> int:
    found = _RANGE.match(text)
    if found is None:
        return PROXY_ID
    first, how, second = int(found[1]), found[2], int(found[3])
    return first + second - 1 if how == "/" else second
