"""Sources of the keys of JWT rules, and the generated filter configuration."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

from pilot.config.kinds.istio import REQUEST_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.config.problem import MAX_PROBLEMS
from pilot.config.security.request_authentication import JwksKey
from pilot.envoy.http_filter.jwt_authn import UNUSABLE_KEYS
from pilot.envoy.listener import policy_filters
from pilot.mesh.analysis.policy import request_authentication_problems
from pilot.mesh.security.jwt import JwksServer, TokenRule, remote_key_sets, token_rules
from testing.mesh.listeners import WEB_POD, http, listeners, service
from testing.mesh.objects import make, world
from testing.mesh.world import World

KEYS = json.dumps({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]})
URI = "http://issuer.a.svc.cluster.local:8080/keys"
SERVICE = make("Service", "issuer", "{clusterIP: 10.96.0.9, ports: [{name: http, port: 8080}]}")
POLICY = make("RequestAuthentication", "r", f"{{jwtRules: [{{issuer: i, jwksUri: '{URI}'}}]}}")
MODE = "PILOT_JWT_ENABLE_REMOTE_JWKS"


def rule(harness: World) -> TokenRule:
    (token_rule,) = token_rules(harness.mesh, REQUEST_AUTHENTICATION.table(harness.mesh).all_keys())
    return token_rule


def fetched_uris(harness: World) -> list[str]:
    return [str(source.key) for source in remote_key_sets(harness.mesh)]


def test_fetched_keys_are_used_in_the_rule() -> None:
    harness = world(POLICY)
    assert (rule(harness).keys, fetched_uris(harness)) == ("", [URI])
    harness.mesh.commit([(harness.mesh.jwks, JwksKey("", URI), KEYS)])
    assert rule(harness).keys == KEYS
    harness.mesh.commit([(harness.mesh.jwks, JwksKey("", URI), None)])
    assert rule(harness).keys == ""


@pytest.mark.parametrize("mode", ["true", "hybrid", "envoy"])
def test_proxies_fetch_keys_from_mesh_services_when_enabled(mode: str) -> None:
    harness = world(POLICY, SERVICE, **{MODE: mode})
    assert rule(harness).server == JwksServer("issuer.a.svc.cluster.local", 8080)
    assert fetched_uris(harness) == []


def test_control_plane_fetches_external_keys_except_in_envoy_mode() -> None:
    assert fetched_uris(world(POLICY, **{MODE: "hybrid"})) == [URI]
    harness = world(POLICY, **{MODE: "envoy"})
    assert fetched_uris(harness) == []
    assert rule(harness).server == JwksServer("issuer.a.svc.cluster.local", 8080)


def provider(*objects: Any, **environ: str) -> Any:
    """Return the only provider of a workload's JWT filter."""
    by_name = listeners(service("web", "[{name: http, port: 80}]"), WEB_POD, *objects, **environ)
    config = next(
        f for f in http(by_name["virtualInbound"])["httpFilters"] if f["name"] == "envoy.filters.http.jwt_authn"
    )["typedConfig"]
    (jwt_provider,) = config["providers"].values()
    return jwt_provider


def test_cve_2026_31837_unknown_keys_reject_every_token() -> None:
    assert provider(POLICY)["localJwks"]["inlineString"] == UNUSABLE_KEYS


def test_remote_jwks_configuration() -> None:
    assert provider(POLICY, SERVICE, **{MODE: "true"})["remoteJwks"] == {
        "httpUri": {"uri": URI, "cluster": "outbound|8080||issuer.a.svc.cluster.local", "timeout": "5s"},
        "cacheDuration": "300s",
    }


# -- limits for a workload ---------------------------------------------------------------------------------------------

LIMIT = "PILOT_JWKS_MAX_BYTES"


def inline(name: str, *issuers: str, namespace: str = "a", keys: str = KEYS) -> dict[str, Any]:
    rules = [{"issuer": issuer, "jwks": keys} for issuer in issuers]
    return make("RequestAuthentication", name, json.dumps({"jwtRules": rules}), namespace)


def keys_by_issuer(harness: World) -> dict[str, str]:
    rules = token_rules(harness.mesh, REQUEST_AUTHENTICATION.table(harness.mesh).all_keys())
    return {token_rule.rule.issuer: token_rule.keys for token_rule in rules}


def test_large_key_set_in_many_rules_is_sent_only_up_to_the_limit() -> None:
    large = json.dumps({"keys": [json.loads(KEYS)["keys"][0] | {"x": "x" * 200_000}]})
    harness = world(inline("many", *(f"i{n:03}" for n in range(256)), keys=large))
    sent = [issuer for issuer, keys in keys_by_issuer(harness).items() if keys]
    assert sent == ["i000", "i001"]
    problems = request_authentication_problems(harness.mesh, ObjectKey("a", "many"))
    assert [problem.path for problem in problems[:MAX_PROBLEMS]] == [f"spec.jwtRules[{n}]" for n in range(2, 102)]
    assert f"exceed 524288 bytes ({LIMIT}); the rule's tokens are rejected" in problems[0].message


def test_key_sets_over_the_limit_reject_every_token() -> None:
    assert provider(inline("r", "i"), **{LIMIT: str(len(KEYS))})["localJwks"]["inlineString"] == KEYS
    assert provider(inline("r", "i"), **{LIMIT: str(len(KEYS) - 1)})["localJwks"]["inlineString"] == UNUSABLE_KEYS


def test_policies_of_a_namespace_do_not_use_up_the_limit_of_the_root_namespace() -> None:
    harness = world(inline("a", "i", "j"), inline("z", "mesh", namespace="istio-system"), **{LIMIT: str(2 * len(KEYS))})
    assert keys_by_issuer(harness) == {"i": KEYS, "j": "", "mesh": KEYS}
    harness = world(
        *(inline(f"a{n}", *(f"{n}-{m}" for m in range(100))) for n in range(5)),
        inline("z", "mesh", namespace="istio-system"),
    )
    assert (len(keys_by_issuer(harness)), keys_by_issuer(harness)["mesh"]) == (256, KEYS)


def test_rules_within_the_limits_are_no_problem() -> None:
    harness = world(inline("r", *map(str, range(100))))
    assert "" not in keys_by_issuer(harness).values()
    assert request_authentication_problems(harness.mesh, ObjectKey("a", "r")) == ()


def test_filter_of_previous_key_sets_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Filter:
        pass

    monkeypatch.setattr(policy_filters, "build_jwt_authn", lambda *_: Filter())
    harness, policies = world(inline("r", "i")), (ObjectKey("a", "r"),)
    previous = weakref.ref(policy_filters.jwt_authentication(harness.mesh, policies, False))
    harness.apply_objects(inline("r", "j"))
    assert policy_filters.jwt_authentication(harness.mesh, policies, False) is not previous()
    gc.collect()
    assert previous() is None
