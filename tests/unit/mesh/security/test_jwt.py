"""Where the keys of a token rule come from, in what proxies are sent."""

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


def rule(made: World) -> TokenRule:
    (found,) = token_rules(made.mesh, REQUEST_AUTHENTICATION.table(made.mesh).all_keys())
    return found


def wanted(made: World) -> list[str]:
    return [str(source.key) for source in remote_key_sets(made.mesh)]


def test_keys_that_were_fetched_are_the_rules() -> None:
    made = world(POLICY)
    assert (rule(made).keys, wanted(made)) == ("", [URI])
    made.mesh.commit([(made.mesh.jwks, JwksKey("", URI), KEYS)])
    assert rule(made).keys == KEYS
    made.mesh.commit([(made.mesh.jwks, JwksKey("", URI), None)])
    assert rule(made).keys == ""


@pytest.mark.parametrize("mode", ["true", "hybrid", "envoy"])
def test_proxies_fetch_keys_of_a_service_themselves_where_the_settings_say_so(mode: str) -> None:
    made = world(POLICY, SERVICE, **{MODE: mode})
    assert rule(made).server == JwksServer("issuer.a.svc.cluster.local", 8080)
    assert wanted(made) == []


def test_keys_of_no_service_are_ours_to_fetch_unless_proxies_fetch_all() -> None:
    assert wanted(world(POLICY, **{MODE: "hybrid"})) == [URI]
    alone = world(POLICY, **{MODE: "envoy"})
    assert wanted(alone) == []
    assert rule(alone).server == JwksServer("issuer.a.svc.cluster.local", 8080)


def provider(*objects: Any, **environ: str) -> Any:
    """The one provider of the filter of tokens of a workload."""
    found = listeners(service("web", "[{name: http, port: 80}]"), WEB_POD, *objects, **environ)
    config = next(
        f for f in http(found["virtualInbound"])["httpFilters"] if f["name"] == "envoy.filters.http.jwt_authn"
    )["typedConfig"]
    (only,) = config["providers"].values()
    return only


def test_cve_2026_31837_where_keys_are_not_known_they_are_nobodys() -> None:
    assert provider(POLICY)["localJwks"]["inlineString"] == UNUSABLE_KEYS


def test_a_proxy_that_fetches_keys_knows_where() -> None:
    assert provider(POLICY, SERVICE, **{MODE: "true"})["remoteJwks"] == {
        "httpUri": {"uri": URI, "cluster": "outbound|8080||issuer.a.svc.cluster.local", "timeout": "5s"},
        "cacheDuration": "300s",
    }
