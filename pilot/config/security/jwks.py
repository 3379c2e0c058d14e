"""Key sets of token issuers, which are fetched from the URLs in RequestAuthentications."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.security.request_authentication import JWTRule
from pilot.lib.duration import Duration

DEFAULT_TIMEOUT = Duration.of(5)


class JwksKey(NamedTuple):
    """The name of a key set: its URL, or the issuer whose OpenID configuration has the URL if `uri` is ""."""

    issuer: str
    uri: str

    def __str__(self) -> str:
        return self.uri or self.issuer


class JwksSource(NamedTuple):
    """A key set to fetch. `timeout` is in nanoseconds."""

    key: JwksKey
    timeout: int


def jwks_source(rule: JWTRule) -> JwksSource | None:
    """Return the source of a rule's keys, or None if the rule contains its keys."""
    if rule.jwks or not (rule.jwks_uri or rule.issuer):
        return None
    key = JwksKey("", rule.jwks_uri) if rule.jwks_uri else JwksKey(rule.issuer, "")
    return JwksSource(key, rule.timeout or DEFAULT_TIMEOUT)
