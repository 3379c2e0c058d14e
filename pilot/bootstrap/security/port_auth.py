"""Builds the authentication of each port from the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ca.service import Authenticate as AuthenticateRequest
from ca.service import CallerDisconnected, CallerPostponed, CallerRefused, Impersonate, refuse_impersonation
from pilot.lib.logging.log import scope
from pilot.lib.text import cut, one_line
from pilot.lib.tokens.jwt import TokenError, audiences_of, own_claims
from pilot.settings.security import AuthenticationSettings
from pilot.xds.authn.client_certificates import ForwardedCertificates, identify_by_certificate
from pilot.xds.authn.identity import (
    Authenticate,
    Authenticator,
    Authenticators,
    Caller,
    CallerGone,
    IdentifyPeer,
    IdentityError,
    NoCredentials,
    TooManyCallers,
    no_authentication,
)
from pilot.xds.authn.key_file import KeyFile
from pilot.xds.authn.node_proxies import NodeProxies
from pilot.xds.authn.oidc import JwtRule, OidcTokens, Provider, parse_jwt_rule
from pilot.xds.authn.service_account import Reviewer, ServiceAccountTokens

OWN_TOKEN = "./var/run/secrets/tokens/istio-token"
_LONGEST_REASON = 1_000
_log = scope("authn")


class PortAuth(NamedTuple):
    """Authentication on a port. `identify_peer` returns the peer of a call. `authenticate` verifies its identities."""

    identify_peer: IdentifyPeer
    authenticate: Authenticate


def local_cluster_names(local_cluster: str, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that callers may use for the local cluster. "" is for callers that specify no cluster."""
    return "", local_cluster, *(alias for alias, cluster in aliases.items() if cluster == local_cluster)


def find_reviewers(
    settings: AuthenticationSettings, local_cluster: str, aliases: Mapping[str, str], servers: Mapping[str, Reviewer]
) -> Mapping[str, Reviewer]:
    """Return the token reviewers, keyed by cluster name.

    If the settings name a key file, tokens of the local cluster are verified with its keys, and those of other clusters
    are rejected. Otherwise, the reviewers are `servers`.
    """
    if not settings.token_keys:
        return servers
    key_file = KeyFile(settings.token_keys, settings.token_issuer)
    return dict.fromkeys(local_cluster_names(local_cluster, aliases), key_file.review)


def find_provider(settings: AuthenticationSettings, in_kubernetes: bool, own_token: str = OWN_TOKEN) -> JwtRule | None:
    """Return the OpenID Connect provider whose tokens are accepted for certificate requests outside Kubernetes.

    It is the provider in the settings, or else the issuer of the control plane's own token. Return None if there is
    neither, if no audience is configured, or if Kubernetes or a key file verifies tokens.
    """
    if in_kubernetes or settings.token_keys:
        return None
    issuer, audience = settings.token_issuer, settings.provider_audience
    if not (issuer and audience):
        claims = _read_claims(own_token)
        issuer = issuer or str(claims.get("iss", ""))
        audience = audience or next(iter(audiences_of(claims)), "")
    if not issuer:
        return None
    if not audience:
        _log.warning("tokens of %s are not accepted for certificate requests because AUDIENCE is not set", issuer)
        return None
    return JwtRule(issuer, (audience,))


def _read_claims(own_token: str) -> Mapping[str, Any]:
    """Return the claims of the control plane's own token, or {} if it has no valid token."""
    try:
        with open(own_token, encoding="ascii") as file:
            claims = own_claims(file.read().strip())
        audiences_of(claims)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, TokenError) as error:
        _log.warning("%s: cannot determine the issuer of the control plane's own token: %s", own_token, error)
        return {}
    return claims


def build_authenticate(
    settings: AuthenticationSettings, reviewers: Mapping[str, Reviewer], trust_domain: Callable[[], str]
) -> Authenticate:
    """Return the authentication of the secure port. Raise FlagError if a setting is invalid."""
    if not settings.enabled:
        return no_authentication
    return Authenticators(tuple(_chain(settings, reviewers, trust_domain)))


def with_provider(
    authenticate: Authenticate, provider: JwtRule | None, trust_domain: Callable[[], str]
) -> Authenticate:
    """Return an authentication that also accepts tokens of a provider. If authentication is disabled, it stays
    disabled."""
    if provider is None or authenticate is no_authentication:
        return authenticate
    tokens = OidcTokens(provider, Provider(provider), trust_domain)
    return Authenticators(
        (Authenticator("xDS", authenticate), Authenticator(f"token of {provider.issuer}", tokens.identify))
    )


def _chain(
    settings: AuthenticationSettings, reviewers: Mapping[str, Reviewer], trust_domain: Callable[[], str]
) -> Iterator[Authenticator]:
    yield Authenticator("client certificate", identify_by_certificate)
    if settings.jwt_rule:
        rule = parse_jwt_rule(settings.jwt_rule)
        yield Authenticator("OpenID Connect token", OidcTokens(rule, Provider(rule), trust_domain).identify)
    if len(reviewers):
        yield Authenticator(
            "service account token", ServiceAccountTokens(reviewers, settings.token_audiences, trust_domain).identify
        )
    elif not settings.jwt_rule:
        yield Authenticator("token", _refuse_token)
    if settings.trusted_gateways:
        yield Authenticator("forwarded certificate", ForwardedCertificates(settings.trusted_gateways).identify)


async def _refuse_token(caller: Caller) -> Sequence[str]:
    if not caller.token:
        raise NoCredentials("there is none")
    raise IdentityError("tokens are accepted only with --tokenKeys, JWT_RULE or an API server")


def authenticate_csr(identify_peer: IdentifyPeer, authenticate: Authenticate) -> AuthenticateRequest:
    """Return the authentication of certificate requests. It rejects unauthenticated callers."""

    async def identify(context: Any) -> Sequence[str]:
        try:
            identities = await authenticate(identify_peer(context))
        except IdentityError as error:
            raise _refusal(error) from error
        if not identities:
            raise CallerRefused("this port does not authenticate callers")
        return identities

    return identify


def authorize_impersonation(identify_peer: IdentifyPeer, proxies: NodeProxies | None) -> Impersonate:
    """Return the authorization of requests for another identity's certificate. Only node proxies may make them."""
    if proxies is None:
        return refuse_impersonation

    async def check(context: Any, identity: str) -> None:
        try:
            await proxies.check(identify_peer(context), identity)
        except IdentityError as error:
            raise _refusal(error) from error

    return check


def _refusal(error: IdentityError) -> CallerRefused:
    kinds = {TooManyCallers: CallerPostponed, CallerGone: CallerDisconnected}
    return kinds.get(type(error), CallerRefused)(cut(one_line(str(error)), _LONGEST_REASON))
