"""security.istio.io RequestAuthentication, and the key sets of token issuers.

https://istio.io/latest/docs/reference/config/security/request_authentication/
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pilot.config.base import Strict
from pilot.config.selector import PolicyTargetReference, WorkloadSelector
from pilot.lib.duration import Duration


class RequestAuthentication(Strict, frozen=True):
    """Specifies which JSON Web Tokens workloads accept."""

    selector: WorkloadSelector | None = None
    target_ref: PolicyTargetReference | None = None
    target_refs: tuple[PolicyTargetReference, ...] = ()
    jwt_rules: tuple[JWTRule, ...] = ()


class JWTRule(Strict, frozen=True):
    issuer: str = ""
    audiences: tuple[str, ...] = ()
    jwks_uri: str = ""
    jwks: str = ""
    from_headers: tuple[JWTHeader, ...] = ()
    from_params: tuple[str, ...] = ()
    output_payload_to_header: str = ""
    from_cookies: tuple[str, ...] = ()
    forward_original_token: bool = False
    output_claim_to_headers: tuple[ClaimToHeader, ...] = ()
    timeout: Duration | None = None
    space_delimited_claims: tuple[str, ...] = ()
    presence: Literal["OPTIONAL", "REQUIRED"] = "OPTIONAL"


class JWTHeader(Strict, frozen=True):
    name: str = ""
    prefix: str = ""


class ClaimToHeader(Strict, frozen=True):
    header: str = ""
    claim: str = ""


DEFAULT_TIMEOUT = Duration.of(5)
NO_KEYS = '{"keys": []}'
"""A key set for rules that accept no token."""
MOST_RULES = 256
"""Maximum number of JWT rules in one object, and of all JWT rules that apply to one workload.

The JWT filter of a proxy has a provider for each rule.
"""


class JwksKey(NamedTuple):
    """The key of a JSON Web Key set: its URL or, if `uri` is "", the issuer whose OpenID configuration contains the
    URL."""

    issuer: str
    uri: str

    def __str__(self) -> str:
        return self.uri or self.issuer


class JwksSource(NamedTuple):
    """A JSON Web Key set to fetch. `timeout` is in nanoseconds."""

    key: JwksKey
    timeout: int


def jwks_source(rule: JWTRule) -> JwksSource | None:
    """Return the JSON Web Key set to fetch for a rule.

    Return None if the rule contains its keys, or has neither a jwksUri nor an issuer.
    """
    if rule.jwks or not (rule.jwks_uri or rule.issuer):
        return None
    key = JwksKey("", rule.jwks_uri) if rule.jwks_uri else JwksKey(rule.issuer, "")
    return JwksSource(key, rule.timeout or DEFAULT_TIMEOUT)
