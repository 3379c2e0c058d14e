"""Authentication of workloads by tokens from an OpenID Connect provider, which the operator configures.

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
from pilot.lib.logging.log import scope
from pilot.lib.tokens.jwks import LARGEST_SET, Jwk, JwksError, parse_jwks
from pilot.lib.tokens.jwt import TokenError, check_recipient, verify_token
from pilot.lib.tokens.unverified import unverified_claims
from pilot.xds.authn.identity import Caller, IdentityError, NoCredentials
from pilot.xds.authn.service_account import service_account_identity

TIMEOUT = 10.0
"""Timeout of a request to the provider, in seconds."""
REFRESH = 600.0
"""Number of seconds after which the next token triggers another fetch of the keys."""
AT_MOST_EVERY = 10.0
"""Minimum number of seconds between two fetches, so that not every token with an unknown key causes a request."""
_log = scope("authn")


class JwtRule(NamedTuple):
    """The issuer and audiences of accepted tokens. If `keys_uri` is "", it is read from the provider's discovery
    document."""

    issuer: str
    audiences: tuple[str, ...]
    keys_uri: str = ""


def parse_jwt_rule(text: str) -> JwtRule:
    """Return the rule in JWT_RULE. It is a JSON object with `issuer`, `audiences` and optionally `jwks_uri` or
    `jwksUri`.

    Raise FlagError if the rule is invalid.
    """
    try:
        plain = json.loads(text)
        uri = plain.get("jwks_uri", plain.get("jwksUri", ""))
        rule = JwtRule(plain["issuer"], tuple(plain.get("audiences", ())), uri)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FlagError(f"JWT_RULE: expected an object with issuer, jwks_uri and audiences: {error}") from None
    if not all(isinstance(part, str) and part for part in (rule.issuer, *rule.audiences)) or not isinstance(uri, str):
        raise FlagError("JWT_RULE: issuer, jwks_uri and audiences must be strings")
    return rule


Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the response body for a URL. Raises OSError, TimeoutError or aiohttp.ClientError if the request fails."""


async def fetch(url: str) -> bytes:
    """Return the response body for a URL, truncated at the size limit of key sets."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, raise_for_status=True) as response:
        return await response.content.read(LARGEST_SET + 1)


class Provider:
    """The key set of a provider. It is fetched on demand. If a fetch fails, the previous keys stay in force."""

    def __init__(self, rule: JwtRule, fetch: Fetch = fetch, now: Callable[[], float] = time.monotonic) -> None:
        self._rule, self._fetch, self._now = rule, fetch, now
        self._keys: Sequence[Jwk] = ()
        self._fetched = self._tried = float("-inf")
        self._turn = asyncio.Lock()

    async def keys(self, must_be_newer: bool = False) -> Sequence[Jwk]:
        """Return the keys. `must_be_newer` requests a fetch even if the refresh is not due yet. It is set if no current
        key fits.

        While a fetch is in progress, only callers that request a fetch wait for it, unless there are no keys yet.
        """
        if not must_be_newer and self._keys and (self._turn.locked() or not self._is_due()):
            return self._keys
        async with self._turn:
            now = self._now()
            if (must_be_newer or self._is_due()) and now >= self._tried + AT_MOST_EVERY:
                self._tried = now
                await self._renew(now)
            return self._keys

    def _is_due(self) -> bool:
        return self._now() >= self._fetched + REFRESH

    async def _renew(self, now: float) -> None:
        try:
            self._keys = parse_jwks(await self._fetch(self._rule.keys_uri or await self._find_uri()))
            self._fetched = now
        except (OSError, TimeoutError, aiohttp.ClientError, JwksError, ValueError) as error:
            _log.error(
                "cannot fetch the keys of %s; the previous keys stay in force: %s: %s",
                self._rule.issuer,
                type(error).__name__,
                error,
            )

    async def _find_uri(self) -> str:
        """Return the `jwks_uri` of the provider's discovery document. Raise JwksError if it has none."""
        described: Any = msgspec.json.decode(
            await self._fetch(self._rule.issuer.rstrip("/") + "/.well-known/openid-configuration")
        )
        uri = described.get("jwks_uri") if isinstance(described, dict) else None
        if not isinstance(uri, str) or not uri:
            raise JwksError("the provider's discovery document has no jwks_uri")
        return uri


class OidcTokens:
    """Authenticator for bearer tokens from a provider. `trust_domain` returns the mesh's current trust domain."""

    def __init__(
        self, rule: JwtRule, provider: Provider, trust_domain: Callable[[], str], now: Callable[[], float] = time.time
    ) -> None:
        self._rule, self._provider, self._trust_domain, self._now = rule, provider, trust_domain, now

    async def identify(self, caller: Caller) -> Sequence[str]:
        """Return the identity of the service account in the caller's token.

        Raise IdentityError if there is no valid token.
        """
        if not caller.token:
            raise NoCredentials("the request has no bearer token")
        try:
            claims = await self._claims(caller.token)
            check_recipient(claims, self._rule.issuer, self._rule.audiences)
        except TokenError as error:
            raise IdentityError(str(error)) from None
        return (service_account_identity(str(claims.get("sub")), self._trust_domain()),)

    async def _claims(self, token: str) -> Any:
        if unverified_claims(token).get("iss") != self._rule.issuer:  # no other keys could change this
            raise TokenError(f"the issuer of the token is not {self._rule.issuer}")
        keys = await self._provider.keys()
        try:
            return verify_token(token, keys, self._now())
        except TokenError:  # perhaps the key is newer than the last fetch
            newer_keys = await self._provider.keys(must_be_newer=True)
            if newer_keys is keys:
                raise
            return verify_token(token, newer_keys, self._now())
