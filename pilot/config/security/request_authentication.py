"""security.istio.io RequestAuthentication.
https://istio.io/latest/docs/reference/config/security/request_authentication/
"""

from __future__ import annotations

from pilot.config.base import Strict
from pilot.config.selector import PolicyTargetReference, WorkloadSelector
from pilot.lib.duration import Duration


class RequestAuthentication(Strict, frozen=True):
    """Defines which JSON Web Tokens workloads accept."""

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


class JWTHeader(Strict, frozen=True):
    name: str = ""
    prefix: str = ""


class ClaimToHeader(Strict, frozen=True):
    header: str = ""
    claim: str = ""
