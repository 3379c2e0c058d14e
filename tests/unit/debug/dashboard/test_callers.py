"""The callers that AuthorizationPolicies admit."""

from __future__ import annotations

import pytest

from pilot.debug.dashboard.callers import list_callers
from testing.mesh.objects import make
from testing.mesh.world import rows_of

WEB = "from: [{source: {serviceAccounts: [b/web]}}]"
READ = "to: [{operation: {methods: [GET, HEAD], paths: [/v1/*]}}]"
V2 = "to: [{operation: {paths: [/v2/*]}}]"


def callers(*specs: str) -> list[tuple[str, list[str], list[str]]]:
    policies = [make("AuthorizationPolicy", f"p{number}", spec, "a") for number, spec in enumerate(specs)]
    return [
        (f"{c.namespace}/{c.account}", [r.text for r in c.requests], [f"{r.text} by {r.by.name}" for r in c.exceptions])
        for c in list_callers(list(rows_of(policies).values()))
    ]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ((), [("/", [], [])]),
        ((f"{{action: DENY, rules: [{{{V2}}}]}}",), [("/", [], ["/v2/* by p0"])]),
        ((f"{{rules: [{{{WEB}}}]}}",), [("b/web", ["every request"], [])]),
        ((f"{{rules: [{{{WEB}, {READ}}}]}}",), [("b/web", ["GET, HEAD /v1/*"], [])]),
        ((f"{{rules: [{{{READ}}}]}}",), [("/", ["GET, HEAD /v1/*"], [])]),
        (
            (f"{{rules: [{{{WEB}, {READ}}}, {{{WEB}, {V2}}}]}}", f"{{action: DENY, rules: [{{{V2}}}]}}"),
            [("b/web", ["GET, HEAD /v1/*", "/v2/*"], ["/v2/* by p1"])],
        ),
        (
            (
                f"{{rules: [{{{WEB}}}]}}",
                f"{{action: DENY, rules: [{{from: [{{source: {{namespaces: [b]}}}}], {V2}}}]}}",
            ),
            [("b/web", ["every request"], ["/v2/* by p1"])],
        ),
        (
            (
                f"{{rules: [{{{WEB}}}]}}",
                f"{{action: DENY, rules: [{{from: [{{source: {{namespaces: [c]}}}}], {V2}}}]}}",
            ),
            [("b/web", ["every request"], [])],
        ),
        (
            (
                f"{{rules: [{{{WEB}}}]}}",
                "{action: DENY, rules: [{from: [{source: {notNamespaces: [c]}}], to: [{operation: {ports: ['80']}}]}]}",
            ),
            [("b/web", ["every request"], ["port 80 by p1"])],
        ),
        (
            (f"{{rules: [{{{WEB}, when: [{{key: 'request.headers[x]', notValues: [y]}}]}}]}}",),
            [("b/web", ["every request if request.headers[x] is not y"], [])],
        ),
        (
            ("{rules: [{to: [{operation: {notMethods: [POST], hosts: [h]}}]}]}",),
            [("/", ["host h methods other than POST"], [])],
        ),
    ],
)
def test_callers_have_their_requests_and_exceptions(
    policies: tuple[str, ...], expected: list[tuple[str, list[str], list[str]]]
) -> None:
    assert callers(*policies) == expected


def test_policies_in_dry_run_mode_have_no_effect() -> None:
    policy = make("AuthorizationPolicy", "p", f"{{action: DENY, rules: [{{{V2}}}]}}", "a")
    policy["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    (everybody,) = list_callers(list(rows_of([policy]).values()))
    assert everybody.exceptions == ()
