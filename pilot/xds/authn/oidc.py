"""Tokens of an OpenID Connect provider that the operator names, for workloads whose service accounts it vouches for.

https://openid.net/specs/openid-connect-discovery-1_0.html
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import aiohttp
import msgspec

from pilot.lib.flags import FlagError
from pilot.lib.jwks import LARGEST_SET, Jwk, JwksError, parse_jwks
from pilot.lib.jwt import TokenError, audiences_of, verify_token
from pilot.lib.log import scope
from pilot.xds.authn.service_account import service_account_identity
from pilot.xds.identity import Caller, IdentityError

TIMEOUT = 10.0
"""Seconds for the provider to answer."""
REFRESH = 600.0
"""Seconds after which keys are fetched again before the next token is looked at."""
AT_MOST_EVERY = 10.0
"""Seconds between two attempts, whatever tokens come: who sends unknown keys does not make us ask."""
_log = scope("authn")


class JwtRule(NamedTuple):
    """Whose tokens are accepted. `keys_uri` is "" where the provider says itself where its keys are."""

    issuer: str
    audiences: tuple[str, ...]
    keys_uri: str = ""


def parse_jwt_rule(text: str) -> JwtRule:
    """Returns what JWT_RULE says: a JSON object with issuer, audiences and perhaps jwks_uri, in either spelling of JSON. FlagError for anything
    else."""
    try:
        plain = json.loads(text)
        uri = plain.get("jwks_uri", plain.get("jwksUri", ""))
        rule = JwtRule(plain["issuer"], tuple(plain.get("audiences", ())), uri)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FlagError(f"JWT_RULE: an object with issuer, jwks_uri and audiences is expected: {error}") from None
    if not all(isinstance(part, str) and part for part in (rule.issuer, *rule.audiences)) or not isinstance(uri, str):
        raise FlagError("JWT_RULE: issuer, jwks_uri and audiences are texts")
    return rule


Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the body at a URL. OSError, TimeoutError or aiohttp.ClientError where there is none."""


async def fetch(url: str) -> bytes:
    """Returns at most a set of keys' bytes of what is at a URL."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, raise_for_status=True) as response:
        return await response.content.read(LARGEST_SET + 1)


class Provider:
    """The keys of a provider. They are fetched when they are needed; where that fails, those of before stay."""

    def __init__(self, rule: JwtRule, fetch: Fetch = fetch, now: Callable[[], float] = time.monotonic) -> None:
        self._rule, self._fetch, self._now = rule, fetch, now
        self._keys: Sequence[Jwk] = ()
        self._fetched = self._tried = float("-inf")
        self._turn = asyncio.Lock()

    async def keys(self, must_be_newer: bool = False) -> Sequence[Jwk]:
        """Returns the keys. `must_be_newer` says that those of before did not do."""
        async with self._turn:
            now = self._now()
            if (must_be_newer or now >= self._fetched + REFRESH) and now >= self._tried + AT_MOST_EVERY:
                self._tried = now
                await self._renew(now)
            return self._keys

    async def _renew(self, now: float) -> None:
        try:
            self._keys = parse_jwks(await self._fetch(self._rule.keys_uri or await self._find_uri()))
            self._fetched = now
        except (OSError, TimeoutError, aiohttp.ClientError, JwksError, ValueError) as error:
            _log.error("the keys of %s stay as they were: %s: %s", self._rule.issuer, type(error).__name__, error)

    async def _find_uri(self) -> str:
        """Returns where the provider says that its keys are. JwksError where it does not."""
        described: Any = msgspec.json.decode(
            await self._fetch(self._rule.issuer.rstrip("/") + "/.well-known/openid-configuration")
        )
        uri = described.get("jwks_uri") if isinstance(described, dict) else None
        if not isinstance(uri, str) or not uri:
            raise JwksError("the provider does not say where its keys are")
        return uri


class OidcTokens:
    """An authenticator of bearer tokens of a provider; `trust_domain` returns the mesh's of now."""

    def __init__(
        self, rule: JwtRule, provider: Provider, trust_domain: Callable[[], str], now: Callable[[], float] = time.time
    ) -> None:
        self._rule, self._provider, self._trust_domain, self._now = rule, provider, trust_domain, now

    async def identify(self, caller: Caller) -> Sequence[str]:
        """Returns the identity of the service account that a token names. IdentityError where the caller brings none that is accepted."""
        if not caller.token:
            raise IdentityError("no bearer token was brought")
        try:
            claims = await self._claims(caller.token)
            named = audiences_of(claims)
        except TokenError as error:
            raise IdentityError(str(error)) from None
        if claims.get("iss") != self._rule.issuer:
            raise IdentityError(f"the issuer of the token is not {self._rule.issuer}")
        if not set(named) & set(self._rule.audiences):
            raise IdentityError(
                f"the token is for {', '.join(named) or 'nobody'}, not for {', '.join(self._rule.audiences)}"
            )
        return (service_account_identity(str(claims.get("sub")), self._trust_domain()),)

    async def _claims(self, token: str) -> Any:
        try:
            return verify_token(token, await self._provider.keys(), self._now())
        except TokenError:  # perhaps by a key that is newer than ours
            return verify_token(token, await self._provider.keys(must_be_newer=True), self._now())
