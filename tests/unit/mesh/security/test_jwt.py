"""Sources of the keys of JWT rules, and the generated filter configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.config.kinds.istio import REQUEST_AUTHENTICATION
from pilot.config.security.request_authentication import JwksKey
from pilot.envoy.http_filter.jwt_authn import UNUSABLE_KEYS
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
