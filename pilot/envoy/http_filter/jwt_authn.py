"""The filter that validates JSON Web Tokens.

It rejects requests with an invalid token, and requests without the token of a rule whose `presence` is REQUIRED.
"""

from __future__ import annotations

from envoy.config.core.v3 import http_uri_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import empty_pb2

from pilot.config.security.request_authentication import DEFAULT_TIMEOUT
from pilot.envoy.names import JWT_AUTHN_FILTER, JWT_PAYLOAD, outbound_cluster
from pilot.envoy.well_known_types import build_duration, pack
from pilot.lib.duration import Duration
from pilot.lib.tokens.envoy_jwks import has_keys
from pilot.mesh.security.jwt import JwksServer, TokenRule

# The private key was discarded. An issuer with unknown keys has this public key, so that all its tokens are invalid.
UNUSABLE_KEYS = (
    '{"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "nobody", "e": "AQAB", '
    '"n": "pQlXtdxxORs-nqibVMC6QSvD3qB7fSmMQ35z0XAQQYml-9TH5LbXqk72gkwTS8Ye6Up8BlADDD7V7pvdQ1zHdN9bsfj_qeNvhBg4'
    "kSVF2Vc2_03mh62QvlfD0oId4S23Y7eog5mhwQFS_ul33M1gU2nRblZx0i2tiipkFiMMZIRMeFuf0-nAvMUp2gHTtB6VYS_eTQeT"
    "JxquBj3eWchVP1niHCtMO8DlZ85bIctHpOQG3NiHBNBjcBJfIy24bQ9ntzBiTbn04l4wz6VgdzFKJ8jAdODMM-Svbu1tAVg7dW6w"
    'bSd8BzfD632pKtHOTdFiSjkwNX1qxPpcjEhbUNXQEw"}]}'
)
_CACHE_DURATION = Duration.of(300)  # for keys that the proxy fetches itself
_SPACE_DELIMITED = ("permission", "scope")

JwtRules = tuple[TokenRule, ...]
Requirement = config_pb2.JwtRequirement


def build_jwt_authn(rules: JwtRules, clear_route_cache: bool = False) -> hcm_pb2.HttpFilter:
    """Return the filter for one or more JWT rules.

    If `clear_route_cache` is set, the route is selected again after validation, because routes may depend on claims. If
    there are several issuers, a request passes if one token is valid or if no token is invalid, because issuers may
    share a header. If rules require their tokens, a request passes if these tokens are valid.
    """
    names = [f"origins-{i}" for i in range(len(rules))]
    lenient = [_any([Requirement(provider_name=n), Requirement(allow_missing=empty_pb2.Empty())]) for n in names]
    requires = lenient[0]
    if len(rules) > 1:
        every = Requirement(requires_all=config_pb2.JwtRequirementAndList(requirements=lenient))
        requires = _any([*(Requirement(provider_name=n) for n in names), every])
    if required := [Requirement(provider_name=n) for n, r in zip(names, rules, strict=True) if _is_required(r)]:
        every = Requirement(requires_all=config_pb2.JwtRequirementAndList(requirements=required))
        requires = every if len(required) > 1 else required[0]
    config = config_pb2.JwtAuthentication(
        providers={n: _build_provider(r, clear_route_cache) for n, r in zip(names, rules, strict=True)},
        rules=[config_pb2.RequirementRule(match=route_components_pb2.RouteMatch(prefix="/"), requires=requires)],
        bypass_cors_preflight=True,
    )
    return hcm_pb2.HttpFilter(name=JWT_AUTHN_FILTER, typed_config=pack(config))


def _is_required(token_rule: TokenRule) -> bool:
    return token_rule.rule.presence == "REQUIRED"


def _any(requirements: list[config_pb2.JwtRequirement]) -> config_pb2.JwtRequirement:
    return Requirement(requires_any=config_pb2.JwtRequirementOrList(requirements=requirements))


def _build_provider(token_rule: TokenRule, clear_route_cache: bool) -> config_pb2.JwtProvider:
    rule = token_rule.rule
    claims = sorted({*_SPACE_DELIMITED, *rule.space_delimited_claims})
    provider = config_pb2.JwtProvider(
        issuer=rule.issuer,
        audiences=rule.audiences,
        forward=rule.forward_original_token,
        forward_payload_header=rule.output_payload_to_header,
        payload_in_metadata=JWT_PAYLOAD,
        normalize_payload_in_metadata=config_pb2.JwtProvider.NormalizePayload(space_delimited_claims=claims),
        clear_route_cache=clear_route_cache,
        claim_to_headers=[
            config_pb2.JwtClaimToHeader(header_name=c.header, claim_name=c.claim) for c in rule.output_claim_to_headers
        ],
        from_headers=[config_pb2.JwtHeader(name=h.name, value_prefix=h.prefix) for h in rule.from_headers],
        from_params=rule.from_params,
        from_cookies=rule.from_cookies,
    )
    if token_rule.server is not None:
        provider.remote_jwks.CopyFrom(_remote(rule.jwks_uri, token_rule.server, rule.timeout or DEFAULT_TIMEOUT))
    else:
        provider.local_jwks.inline_string = token_rule.keys if has_keys(token_rule.keys) else UNUSABLE_KEYS
    return provider


def _remote(uri: str, server: JwksServer, timeout: Duration) -> config_pb2.RemoteJwks:
    """Return the source from which the proxy itself fetches the keys."""
    cluster = outbound_cluster(server.port, "", server.hostname)
    source = http_uri_pb2.HttpUri(uri=uri, cluster=cluster, timeout=build_duration(timeout))
    return config_pb2.RemoteJwks(http_uri=source, cache_duration=build_duration(_CACHE_DURATION))
