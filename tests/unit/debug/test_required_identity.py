"""The policies that reject callers without an identity."""

from __future__ import annotations

import pytest

from pilot.debug.required_identity import identity_policies
from testing.mesh.objects import make
from testing.mesh.world import rows_of

NAMED, ANYBODY = "{from: [{source: {namespaces: [b]}}]}", "{to: [{operation: {methods: [GET]}}]}"


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ((), []),
        ((f"{{rules: [{NAMED}]}}",), ["p0"]),
        ((f"{{rules: [{NAMED}]}}", f"{{rules: [{NAMED}]}}"), ["p0", "p1"]),
        ((f"{{rules: [{NAMED}]}}", f"{{rules: [{ANYBODY}]}}"), []),
        (("{rules: [{when: [{key: source.principal, values: [x]}]}]}",), ["p0"]),
        (("{rules: [{when: [{key: source.principal, notValues: [x]}]}]}",), []),
        (("{action: DENY, rules: [{from: [{source: {notPrincipals: ['*']}}]}]}",), ["p0"]),
        (("{action: DENY, rules: [{from: [{source: {notPrincipals: ['*'], ipBlocks: [10.0.0.0/8]}}]}]}",), []),
        (("{action: DENY, rules: [{from: [{source: {notPrincipals: ['*']}}], " + ANYBODY[1:] + "]}",), []),
        ((f"{{action: DENY, rules: [{NAMED}]}}",), []),
    ],
)
def test_policies_that_reject_callers_without_an_identity(specs: tuple[str, ...], expected: list[str]) -> None:
    policies = [make("AuthorizationPolicy", f"p{number}", spec, "a") for number, spec in enumerate(specs)]
    assert [row.name for row in identity_policies(rows_of(policies).values())] == expected


def test_dry_run_has_no_effect() -> None:
    policy = make("AuthorizationPolicy", "p", f"{{rules: [{NAMED}]}}", "a", annotations="{istio.io/dry-run: 'true'}")
    assert identity_policies(rows_of([policy]).values()) == []
