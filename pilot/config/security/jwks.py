"""Key sets of issuers of tokens, which are fetched from where RequestAuthentications say."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.security.request_authentication import JWTRule
from pilot.lib.duration import Duration

DEFAULT_TIMEOUT = Duration.of(5)


class JwksKey(NamedTuple):
    """Names a key set: by its URL, or, where `uri` is "", by the issuer whose OpenID configuration tells the URL."""

    issuer: str
    uri: str

    def __str__(self) -> str:
        return self.uri or self.issuer


class JwksSource(NamedTuple):
    """A key set that is to be fetched, and the nanoseconds that it may take."""

    key: JwksKey
    timeout: int


def jwks_source(rule: JWTRule) -> JwksSource | None:
    """Returns where the keys of a rule come from; None for one that has them."""
    if rule.jwks or not (rule.jwks_uri or rule.issuer):
        return None
    key = JwksKey("", rule.jwks_uri) if rule.jwks_uri else JwksKey(rule.issuer, "")
    return JwksSource(key, rule.timeout or DEFAULT_TIMEOUT)
