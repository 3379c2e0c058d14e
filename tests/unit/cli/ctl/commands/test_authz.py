"""Output of pilotctl authz check."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import click
import pytest
from click.testing import CliRunner

from pilot.cli.ctl.client import PageClient
from pilot.cli.pilotctl import pilotctl
from testing.mesh.objects import make
from tests.unit.debug.pages.test_authz import ALLOW_CALLER, CALLER, DELEGATING, DENY_X, make_check, policy, to_operation


def run_check(check: Any, *words: str) -> str:
    """Return the output of the command for a page that answers in this process."""

    def get(_: PageClient, page: str, **query: str) -> Any:
        assert (page, query["proxyID"]) == ("authz", "web-0")
        return check(query.get("request"))

    with mock.patch.object(PageClient, "get", get):
        result = CliRunner().invoke(pilotctl, ["authz", "check", "web-0", *words], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output.removesuffix("\n")


def test_output_shows_the_decision_and_matching_rules() -> None:
    ask = make_check(
        ALLOW_CALLER,
        DENY_X,
        DELEGATING,
        policy("tried", to_operation("paths: ['*']", "DENY"), "{istio.io/dry-run: 'true'}"),
    )
    assert run_check(ask, "--path", "/x/1", "--from-principal", CALLER, "--port", "8080") == (
        "DENIED: AuthorizationPolicy a/no-x matches with spec.rules[0]\n"
        "HTTP to web-0.a from spiffe://cluster.local/ns/a/sa/caller; mutual TLS is PERMISSIVE\n"
        "\n"
        "ACTION           NAMESPACE   POLICY    MATCHES   RULE   FROM                                     TO          WHEN\n"
        "CUSTOM (judge)   a           asks      -         0      *                                        path /vip   *\n"
        "ALLOW            a           callers   rule 0    0      principal cluster.local/ns/a/sa/caller   *           *\n"
        "DENY             a           no-x      rule 0    0      *                                        path /x*    *\n"
        "DENY (dry run)   a           tried     rule 0    0      *                                        path *      *"
    )
    assert run_check(ask, "--path", "/vip", "--from-principal", CALLER).startswith(
        "DELEGATED: AuthorizationPolicy a/asks delegates"
    )


def test_output_lists_policies_without_a_request() -> None:
    assert run_check(make_check(DENY_X)) == (
        "Plain text is accepted: mutual TLS is PERMISSIVE by default, as no PeerAuthentication applies.\n\n"
        "ACTION   NAMESPACE   POLICY   RULE   FROM   TO         WHEN\nDENY     a           no-x     0      *      path /x*   *"
    )
    assert run_check(make_check(policy("none", "rules: []"))).endswith("nobody: it has no rules   -    -")
    assert run_check(make_check()).endswith("\n\nNo AuthorizationPolicy applies to web-0.a.")
    strict = make("PeerAuthentication", "default", "{mtls: {mode: STRICT}}")
    assert run_check(make_check(ALLOW_CALLER, strict)).startswith(
        "Plain text is rejected: mutual TLS is STRICT because of PeerAuthentication a/default.\n"
    )
    text = " ".join(run_check(make_check(ALLOW_CALLER)).split())
    assert ", but AuthorizationPolicy a/callers requires an identity. " in text


def test_headers_and_claims_come_from_flags() -> None:
    when = "rules: [{when: [{key: 'request.headers[a]', values: [b=c]}, {key: 'request.auth.claims[g]', values: [v]}]}]"
    ask = make_check(policy("p", when))
    assert run_check(ask, "--header", "A=b=c", "--claim", 'g=["v"]').startswith("ALLOWED")
    assert json.loads(run_check(ask, "--header", "a=b=c", "--claim", "g=w", "-o", "json"))["decision"] == "denied"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "GET POST"), "'GET POST': expected one method in upper case, such as GET"),
        (("--method", "get"), "'get': expected one method in upper case, such as GET"),
        (("--path", "/a b"), "'/a b': expected a path that begins with / and contains no spaces, such as /a%20b"),
        (("--path", "/\udcff"), "not valid UTF-8; percent-encode other bytes"),
        (
            ("--from-namespace", "a b"),
            "'a b': expected the name of a namespace: at most 63 lower-case letters, digits and hyphens",
        ),
        (("--header", "a b=c"), "'a b=c': expected NAME=VALUE"),
        (("--claim", "=x"), "'=x': expected NAME=VALUE"),
        (("--tcp", "--method", "GET"), "--tcp and --method are mutually exclusive"),
        (("--tcp", "--header", "a=b"), "--tcp and --header are mutually exclusive"),
        (
            ("--from-principal", CALLER, "--from-namespace", "a"),
            "--from-principal and --from-namespace are mutually exclusive",
        ),
    ],
)
def test_request_that_no_client_can_make_is_rejected(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        run_check(make_check(), *words)
    assert raised.value.message == message


def test_identity_outside_kubernetes_is_accepted() -> None:
    short = run_check(make_check(ALLOW_CALLER), "--from-principal", "a/caller")
    assert short.startswith("ALLOWED: AuthorizationPolicy a/callers matches with spec.rules[0]\n")
    assert f"from spiffe://{CALLER}; " in short
    assert "from spiffe://bank/teller" in run_check(make_check(), "--from-principal", "spiffe://bank/teller")
