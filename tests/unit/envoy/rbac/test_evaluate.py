"""Evaluation of claim matchers of RBAC rules."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.rbac.v3 import rbac_pb2
from envoy.type.matcher.v3 import metadata_pb2

from pilot.envoy.names import JWT_AUTHN_FILTER, JWT_PAYLOAD
from pilot.envoy.rbac.evaluate import RequestAttributes, rule_matches

CLAIMS = {"iss": "me", "nested": {"role": "admin"}, "groups": ["a", "b"], "text": "a", "number": 7}


def matcher(filter_name: str, *path: str, exact: str, in_list: bool = False) -> metadata_pb2.MetadataMatcher:
    value: dict[str, Any] = {"string_match": {"exact": exact}}
    if in_list:
        value = {"list_match": {"one_of": value}}
    return metadata_pb2.MetadataMatcher(filter=filter_name, path=[{"key": key} for key in path], value=value)


@pytest.mark.parametrize(
    ("claim_matcher", "expected"),
    [
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "iss", exact="me"), True),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "iss", exact="you"), False),
        (matcher("other", JWT_PAYLOAD, "iss", exact="me"), False),
        (matcher(JWT_AUTHN_FILTER, "other", "iss", exact="me"), False),
        (matcher(JWT_AUTHN_FILTER, exact="me"), False),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "nested", "role", exact="admin"), True),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "role", exact="admin"), False),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "iss", "role", exact="me"), False),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "groups", exact="b", in_list=True), True),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "groups", exact="c", in_list=True), False),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "text", exact="a", in_list=True), False),
        (matcher(JWT_AUTHN_FILTER, JWT_PAYLOAD, "number", exact="7"), False),
    ],
)
def test_claim_matchers(claim_matcher: metadata_pb2.MetadataMatcher, expected: bool) -> None:
    request = RequestAttributes(
        principal="", peer="", client="", destination="", port=80, server_name="", headers={}, claims=CLAIMS
    )
    any_permission, any_principal = rbac_pb2.Permission(any=True), rbac_pb2.Principal(any=True)
    by_permission = rbac_pb2.Policy(
        permissions=[rbac_pb2.Permission(metadata=claim_matcher)], principals=[any_principal]
    )
    by_principal = rbac_pb2.Policy(
        permissions=[any_permission], principals=[rbac_pb2.Principal(metadata=claim_matcher)]
    )
    assert rule_matches(by_permission, request) is expected
    assert rule_matches(by_principal, request) is expected
