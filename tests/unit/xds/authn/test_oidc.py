"""OpenID Connect tokens."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Awaitable, Callable

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


class OidcProvider:
    """A provider's documents by URL, a clock, and the tokens checked against them."""

    def __init__(self, rule: JwtRule = RULE) -> None:
        self.now, self.documents, self.fetches = 1000.0, {KEYS: OLD}, list[str]()
        self.answer: Callable[[], Awaitable[object]] = functools.partial(asyncio.sleep, 0)
        self.tokens = OidcTokens(rule, Provider(rule, self.fetch, lambda: self.now), lambda: "cluster.local")

    async def fetch(self, url: str) -> bytes:
        self.fetches.append(url)
        await self.answer()
        if url not in self.documents:
            raise ConnectionError(url)
        return self.documents[url]

    async def identify(self, bearer: str) -> list[str]:
        return list(await self.tokens.identify(Caller("10.0.0.1:5", {"authorization": f"Bearer {bearer}"})))


async def test_token_identifies_its_service_account() -> None:
    oidc = OidcProvider()
    for _ in range(2):
        assert await oidc.identify(token(iss=ISSUER)) == ["spiffe://cluster.local/ns/shop/sa/web"]
    assert oidc.fetches == [KEYS]


@pytest.mark.parametrize(
    ("bearer", "reason"),
    [
        (token(), "issuer of the token is not"),
        (token(iss=ISSUER, aud="other"), "is other, not istio-ca"),
        (token(iss=ISSUER, sub="somebody"), "is not a service account"),
        (token(iss=ISSUER, exp=1), "expired"),
        (sign(claims(iss=ISSUER), other_key()), "no key of the set"),
        ("", "no bearer token"),
    ],
)
async def test_invalid_token_is_rejected(bearer: str, reason: str) -> None:
    with pytest.raises(IdentityError, match=reason):
        await OidcProvider().identify(bearer)


async def test_keys_uri_is_discovered() -> None:
    oidc = OidcProvider(RULE._replace(keys_uri="", issuer=ISSUER + "/"))
    oidc.documents[f"{ISSUER}/.well-known/openid-configuration"] = json.dumps({"jwks_uri": KEYS}).encode()
    assert await oidc.identify(token(iss=ISSUER + "/"))
    for document in (b"[]", b"{", b'{"jwks_uri": 7}'):
        oidc = OidcProvider(RULE._replace(keys_uri=""))
        oidc.documents[f"{ISSUER}/.well-known/openid-configuration"] = document
        with pytest.raises(IdentityError, match="no key of the set"):
            await oidc.identify(token(iss=ISSUER))


async def test_unknown_key_triggers_a_rate_limited_fetch() -> None:
    oidc = OidcProvider()
    new = sign(claims(iss=ISSUER), other_key(), kid="two")
    with pytest.raises(IdentityError):
        await oidc.identify(new)
    oidc.documents[KEYS] = NEW
    with pytest.raises(IdentityError, match="no key of the set"):
        await oidc.identify(new)
    assert len(oidc.fetches) == 1, "the last fetch was too recent"
    oidc.now += AT_MOST_EVERY
    assert await oidc.identify(new)
    assert len(oidc.fetches) == 2


async def test_tokens_of_other_issuers_do_not_cause_requests_to_the_provider() -> None:
    oidc = OidcProvider()
    for bearer in (token(), "junk", "a.b.c"):
        with pytest.raises(IdentityError):
            await oidc.identify(bearer)
    assert oidc.fetches == []


async def test_slow_provider_delays_only_tokens_with_unknown_keys() -> None:
    oidc, end = OidcProvider(), asyncio.Event()
    assert await oidc.identify(token(iss=ISSUER))
    oidc.answer = end.wait
    oidc.now += AT_MOST_EVERY
    junk = [asyncio.create_task(oidc.identify(sign(claims(iss=ISSUER), other_key(), kid="two"))) for _ in range(100)]
    await asyncio.sleep(0)
    for seconds in (0, REFRESH):
        oidc.now += seconds
        assert await asyncio.wait_for(oidc.identify(token(iss=ISSUER)), 5)
    assert not any(task.done() for task in junk)
    end.set()
    await asyncio.gather(*junk, return_exceptions=True)
    assert oidc.fetches == [KEYS] * 3  # the last one because of the new time


async def test_keys_are_kept_while_the_provider_is_down(caplog: pytest.LogCaptureFixture) -> None:
    oidc = OidcProvider()
    assert await oidc.identify(token(iss=ISSUER))
    for broken in (None, b"{"):
        oidc.documents = {KEYS: broken} if broken else {}
        oidc.now += REFRESH
        with caplog.at_level(logging.ERROR):
            assert await oidc.identify(token(iss=ISSUER))
    assert "stay in force" in caplog.text
    oidc.documents, oidc.now = {KEYS: NEW}, oidc.now + REFRESH
    with pytest.raises(IdentityError):
        await oidc.identify(token(iss=ISSUER))


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
def test_invalid_rule_is_rejected(text: str) -> None:
    with pytest.raises(FlagError, match="JWT_RULE"):
        build_authenticate(AuthenticationSettings(jwt_rule=text), {}, lambda: "cluster.local")


def test_rule_fields_in_camel_and_snake_case() -> None:
    for name in ("jwks_uri", "jwksUri"):
        assert parse_jwt_rule(json.dumps({"issuer": ISSUER, "audiences": ["istio-ca"], name: KEYS})) == RULE


async def test_oidc_is_tried_before_kubernetes() -> None:
    rule = json.dumps({"issuer": ISSUER, "audiences": ["istio-ca"], "jwks_uri": "http://127.0.0.1:9/keys"})
    authenticate = build_authenticate(AuthenticationSettings(jwt_rule=rule), {}, lambda: "cluster.local")
    with pytest.raises(
        IdentityError, match=r"client certificate: .*; OpenID Connect token: the request has no bearer token"
    ):
        await authenticate(Caller("10.0.0.1:5"))


async def test_key_refresh_schedule() -> None:
    oidc = OidcProvider()
    provider = Provider(RULE, oidc.fetch, lambda: oidc.now)
    for seconds, force, fetches in (
        (0, False, 1),
        (AT_MOST_EVERY, False, 1),
        (0, True, 2),
        (AT_MOST_EVERY - 1, True, 2),
        (REFRESH, False, 3),
    ):
        oidc.now += seconds
        keys = await (provider.keys(True) if force else provider.keys())
        assert (len(oidc.fetches), len(keys)) == (fetches, 1)
