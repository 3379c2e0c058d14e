"""User and group IDs of proxies on OpenShift."""

from __future__ import annotations

import pytest

from webhook.inject.openshift import proxy_ids

USERS, GROUPS = "openshift.io/sa.scc.uid-range", "openshift.io/sa.scc.supplemental-groups"


@pytest.mark.parametrize(
    ("annotations", "ids"),
    [
        ({}, (1337, 1337)),
        ({USERS: "1000/10"}, (1009, 1009)),
        ({USERS: "1000-1019"}, (1019, 1019)),
        ({USERS: "1000/10", GROUPS: "2000/5,3000/9"}, (1009, 2004)),
        ({USERS: "none", GROUPS: "2000-2003"}, (1337, 2003)),
        ({GROUPS: "x,2000/5"}, (1337, 1337)),
        ({USERS: f"1/{'1' * 5000}"}, (1337, 1337)),
    ],
)
def test_proxy_ids(annotations: dict[str, str], ids: tuple[int, int]) -> None:
    assert proxy_ids(annotations) == ids
