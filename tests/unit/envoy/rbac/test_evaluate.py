"""Claims of tokens as rules of Envoy look at them, and what a rule says of TLS."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.type.matcher.v3 import metadata_pb2

from pilot.config.networking.destination_rule import ClientTLSSettings, DestinationRule, Subset, TrafficPolicy
from pilot.envoy.endpoint.endpoint_policy import _mtls
from pilot.envoy.names import JWT_AUTHN_FILTER, JWT_PAYLOAD
from pilot.envoy.rbac.evaluate import RequestAttributes, _metadata

CLAIMS = {"iss": "me", "nested": {"role": "admin"}, "groups": ["a", "b"], "text": "a", "number": 7}


def matcher(filter_name: str, *path: str, exact: str, in_list: bool = False) -> metadata_pb2.MetadataMatcher:
    value: dict[str, Any] = {"string_match": {"exact": exact}}
    if in_list:
        value = {"list_match": {"one_of": value}}
    return metadata_pb2.MetadataMatcher(filter=filter_name, path=[{"key": key} for key in path], value=value)


@pytest.mark.parametrize(
    ("made", "meets"),
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
def test_a_claim_is_met_by_its_value_in_the_payload_of_the_token(
    made: metadata_pb2.MetadataMatcher, meets: bool
) -> None:
    call = RequestAttributes(
        principal="", peer="", client="", destination="", port=80, server_name="", headers={}, claims=CLAIMS
    )
    assert _metadata(made, call) is meets


def policy(mode: str) -> TrafficPolicy:
    return TrafficPolicy(tls=ClientTLSSettings(mode=mode))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "subset", "expected"),
    [
        (None, None, None),
        ("ISTIO_MUTUAL", None, True),
        ("SIMPLE", None, False),
        ("ISTIO_MUTUAL", "DISABLE", False),
        ("SIMPLE", "ISTIO_MUTUAL", True),
        (None, "ISTIO_MUTUAL", True),
        ("ISTIO_MUTUAL", "", True),
    ],
)
def test_the_word_of_a_subset_comes_before_that_of_its_rule(
    rule: str | None, subset: str | None, expected: bool | None
) -> None:
    said = DestinationRule(host="a", traffic_policy=policy(rule) if rule else None)
    part = Subset(name="v1", traffic_policy=policy(subset) if subset else None) if subset is not None else None
    assert _mtls(said, part, 80) is expected
