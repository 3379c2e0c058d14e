"""Validation of PeerAuthentications and RequestAuthentications."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from pilot.config.object import Object
from pilot.config.problem import Problems, below, each, error, warning
from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.config.security.request_authentication import MOST_RULES, NO_KEYS, JWTRule, RequestAuthentication
from pilot.config.validation import rules
from pilot.config.validation.expansion import check_peer_authentication
from pilot.config.validation.policy import check_attachment
from pilot.config.validation.traffic.headers import check_strict_name
from pilot.lib.tokens.envoy_jwks import LARGEST_INLINE, MOST_KEYS


def validate_peer_authentication(o: Object[PeerAuthentication]) -> Problems:
    policy = o.spec
    yield from below("spec", check_peer_authentication(policy))
    labels = policy.selector.match_labels if policy.selector is not None else None
    if policy.port_level_mtls and not labels:
        yield error("selector-needed", "spec.portLevelMtls", "portLevelMtls requires a selector with labels")
    for port in policy.port_level_mtls:
        yield from rules.check_port(f"spec.portLevelMtls[{port}]", port)
    yield from rules.check_selector("spec.selector", labels, "matchLabels")


def validate_request_authentication(o: Object[RequestAuthentication]) -> Problems:
    yield from below("spec", _validate(o.spec))


def _validate(policy: RequestAuthentication) -> Problems:
    yield from check_attachment(policy.selector, policy.target_ref, policy.target_refs)
    if len(policy.jwt_rules) > MOST_RULES:
        yield error("too-many", "jwtRules", f"{len(policy.jwt_rules)} rules; at most {MOST_RULES} are allowed")
        return
    yield from each("jwtRules", policy.jwt_rules, _validate_rule)


def _validate_rule(rule: JWTRule) -> Problems:
    if not rule.issuer and not rule.jwks_uri and rule.jwks != NO_KEYS:
        yield error("missing-field", "issuer", "issuer or jwksUri is required")
    if rule.jwks and rule.jwks_uri:
        yield error("exclusive-fields", "jwks", "only one of jwks and jwksUri may be set")
    if rule.jwks_uri:
        yield from _check_url("jwksUri", rule.jwks_uri)
    if rule.jwks:
        yield from _check_keys(rule.jwks)
    names = {
        "audiences": rule.audiences,
        "fromHeaders": tuple(header.name for header in rule.from_headers),
        "fromParams": rule.from_params,
        "fromCookies": rule.from_cookies,
    }
    for field, values in names.items():
        for index, value in enumerate(values):
            if not value:
                yield error("missing-field", f"{field}[{index}]", "a name is required")
    for index, claim in enumerate(rule.output_claim_to_headers):
        place = f"outputClaimToHeaders[{index}]"
        if not claim.claim:
            yield error("missing-field", f"{place}.claim", "a claim is required")
        yield from check_strict_name(f"{place}.header", claim.header)
    yield from rules.check_duration("timeout", rule.timeout)


def _check_url(path: str, url: str) -> rules.Findings:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    return () if fine else (error("bad-url", path, f"{url!r} is not an http or https URL"),)


def _check_keys(text: str) -> Problems:
    """Yield the problems of a JSON Web Key or key set. A private key is accepted with a warning.

    https://www.rfc-editor.org/rfc/rfc7517
    """
    if len(text) > LARGEST_INLINE:
        message = f"must be at most {LARGEST_INLINE} characters; larger key sets can be fetched from a jwksUri"
        yield error("too-long", "jwks", message)
        return
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        plain = None
    keys: Any = plain.get("keys", [plain]) if isinstance(plain, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) and isinstance(key.get("kty"), str) for key in keys):
        yield error("bad-jwks", "jwks", 'expected a JSON Web Key Set: {"keys": [...]}; use jwksUri for its URL')
        return
    if len(keys) > MOST_KEYS:
        yield error("too-many", "jwks", f"{len(keys)} keys; at most {MOST_KEYS} are allowed")
        return
    for index, key in enumerate(keys):
        if "d" in key or key["kty"] == "oct":
            yield warning("private-key", "jwks", f"key {index} is a private key; only public keys are needed")
