"""Tokens of an OpenID Connect provider."""

from __future__ import annotations

import json
import logging

import pytest

from pilot.bootstrap.security.port_auth import build_authenticate
from pilot.lib.flags import FlagError
from pilot.settings.security import AuthenticationSettings
from pilot.xds.authn.identity import Caller, IdentityError
from pilot.xds.authn.oidc import AT_MOST_EVERY, REFRESH, JwtRule, OidcTokens, Provider, parse_jwt_rule
from testing.security.certificates import rsa_key
from testing.security.tokens import claims, jwk, other_key, sign, token

ISSUER, KEYS = "https://issuer.example.com", "https://issuer.example.com/keys"
RULE = JwtRule(ISSUER, ("istio-ca",), KEYS)
OLD, NEW = json.dumps({"keys": [jwk(rsa_key())]}).encode(), json.dumps({"keys": [jwk(other_key(), "two")]}).encode()


class World:
    """What is at which URL, and the time."""

    def __init__(self, rule: JwtRule = RULE) -> None:
        self.now, self.at, self.asked = 1000.0, {KEYS: OLD}, list[str]()
        self.tokens = OidcTokens(rule, Provider(rule, self.fetch, lambda: self.now), lambda: "cluster.local")

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.at:
            raise ConnectionError(url)
        return self.at[url]

    async def identify(self, made: str) -> list[str]:
        return list(await self.tokens.identify(Caller("10.0.0.1:5", {"authorization": f"Bearer {made}"})))


async def test_a_token_of_the_provider_is_its_service_accounts() -> None:
    world = World()
    for _ in range(2):
        assert await world.identify(token(iss=ISSUER)) == ["spiffe://cluster.local/ns/shop/sa/web"]
    assert world.asked == [KEYS]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (token(), "issuer of the token is not"),
        (token(iss=ISSUER, aud="other"), "for other, not for istio-ca"),
        (token(iss=ISSUER, sub="somebody"), "is not a service account"),
        (token(iss=ISSUER, exp=1), "expired"),
        (sign(claims(iss=ISSUER), other_key()), "no key of the set"),
        ("", "no bearer token"),
    ],
)
async def test_other_tokens_are_refused(made: str, reason: str) -> None:
    with pytest.raises(IdentityError, match=reason):
        await World().identify(made)


async def test_the_provider_says_where_its_keys_are() -> None:
    world = World(RULE._replace(keys_uri="", issuer=ISSUER + "/"))
    world.at[f"{ISSUER}/.well-known/openid-configuration"] = json.dumps({"jwks_uri": KEYS}).encode()
    assert await world.identify(token(iss=ISSUER + "/"))
    for described in (b"[]", b"{", b'{"jwks_uri": 7}'):
        world = World(RULE._replace(keys_uri=""))
        world.at[f"{ISSUER}/.well-known/openid-configuration"] = described
        with pytest.raises(IdentityError, match="no key of the set"):
            await world.identify(token(iss=ISSUER))


async def test_an_unknown_key_is_asked_for_but_not_for_each_token() -> None:
    world = World()
    new = sign(claims(iss=ISSUER), other_key(), kid="two")
    with pytest.raises(IdentityError):
        await world.identify(new)
    world.at[KEYS] = NEW
    with pytest.raises(IdentityError, match="no key of the set"):
        await world.identify(new)
    assert len(world.asked) == 1, "a moment ago"
    world.now += AT_MOST_EVERY
    assert await world.identify(new)
    assert len(world.asked) == 2


async def test_keys_survive_a_provider_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    assert await world.identify(token(iss=ISSUER))
    for broken in (None, b"{"):
        world.at = {KEYS: broken} if broken else {}
        world.now += REFRESH
        with caplog.at_level(logging.ERROR):
            assert await world.identify(token(iss=ISSUER))
    assert "stay in force" in caplog.text
    world.at, world.now = {KEYS: NEW}, world.now + REFRESH
    with pytest.raises(IdentityError):
        await world.identify(token(iss=ISSUER))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"issuer": 7}',
        '{"issuer": ""}',
        '{"issuer": "a", "audiences": [7]}',
        '{"issuer": "a", "jwks_uri": 7}',
    ],
)
def test_a_rule_that_cannot_be_understood(text: str) -> None:
    with pytest.raises(FlagError, match="JWT_RULE"):
        build_authenticate(AuthenticationSettings(jwt_rule=text), {}, lambda: "cluster.local")


def test_a_rule_in_both_spellings() -> None:
    for name in ("jwks_uri", "jwksUri"):
        assert parse_jwt_rule(json.dumps({"issuer": ISSUER, "audiences": ["istio-ca"], name: KEYS})) == RULE


async def test_the_provider_is_asked_before_kubernetes() -> None:
    rule = json.dumps({"issuer": ISSUER, "audiences": ["istio-ca"], "jwks_uri": "http://127.0.0.1:9/keys"})
    authenticate = build_authenticate(AuthenticationSettings(jwt_rule=rule), {}, lambda: "cluster.local")
    with pytest.raises(
        IdentityError, match=r"client certificate: .*; OpenID Connect token: the request has no bearer token"
    ):
        await authenticate(Caller("10.0.0.1:5"))


async def test_keys_are_fetched_again_when_they_are_old_or_did_not_do() -> None:
    world = World()
    provider = Provider(RULE, world.fetch, lambda: world.now)
    for seconds, newer, fetches in (
        (0, False, 1),
        (AT_MOST_EVERY, False, 1),
        (0, True, 2),
        (AT_MOST_EVERY - 1, True, 2),
        (REFRESH, False, 3),
    ):
        world.now += seconds
        found = await (provider.keys(True) if newer else provider.keys())
        assert (len(world.asked), len(found)) == (fetches, 1)
