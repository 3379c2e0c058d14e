"""Which authenticators a port has, by the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ca.service import Authenticate as AuthenticateRequest
from ca.service import CallerRefused, Impersonate, refuse_impersonation
from pilot.lib.jwt import TokenError, audiences_of, own_claims
from pilot.lib.log import scope
from pilot.settings.security import AuthenticationSettings
from pilot.xds.authn.chain import Authenticator, Authenticators, identify_by_certificate
from pilot.xds.authn.forwarded import ForwardedCertificates
from pilot.xds.authn.key_file import KeyFile
from pilot.xds.authn.node_proxies import NodeProxies
from pilot.xds.authn.oidc import JwtRule, OidcTokens, Provider, parse_jwt_rule
from pilot.xds.authn.service_account import Reviewer, ServiceAccountTokens
from pilot.xds.identity import Authenticate, IdentityError, Meet, nobody

OWN_TOKEN = "./var/run/secrets/tokens/istio-token"
_log = scope("authn")


class Entrance(NamedTuple):
    """How callers come to a port, and how they prove there who they are."""

    meet: Meet
    authenticate: Authenticate


def own_names(own_cluster: str, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names under which callers know the own cluster; "" where they name none."""
    return "", own_cluster, *(alias for alias, cluster in aliases.items() if cluster == own_cluster)


def find_reviewers(
    settings: AuthenticationSettings, own_cluster: str, aliases: Mapping[str, str], servers: Mapping[str, Reviewer]
) -> Mapping[str, Reviewer]:
    """Returns who reviews tokens of service accounts, by the names under which callers know clusters: a file of keys for the own one where the
    settings name it, else `servers`."""
    if not settings.token_keys:
        return servers
    return dict.fromkeys(own_names(own_cluster, aliases), KeyFile(settings.token_keys, settings.token_issuer).review)


def find_provider(settings: AuthenticationSettings, in_kubernetes: bool, own_token: str = OWN_TOKEN) -> JwtRule | None:
    """Returns the provider whose tokens are accepted for certificates where no API server is asked and no file has the keys of tokens: that of the
    settings, or of the control plane's own token. None where there is neither, or no audience that tokens would have to name."""
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
        _log.warning(
            "tokens of %s are not accepted for certificates: AUDIENCE does not say whom they must be for", issuer
        )
        return None
    return JwtRule(issuer, (audience,))


def _read_claims(own_token: str) -> Mapping[str, Any]:
    """Returns what the control plane's own token says; nothing where it has none."""
    try:
        with open(own_token, encoding="ascii") as file:
            claims = own_claims(file.read().strip())
        audiences_of(claims)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, TokenError) as error:
        _log.warning("%s: who issued the control plane's own token cannot be told: %s", own_token, error)
        return {}
    return claims


def make_authenticate(
    settings: AuthenticationSettings, reviewers: Mapping[str, Reviewer], trust_domain: Callable[[], str]
) -> Authenticate:
    """Returns how callers of the port with TLS prove who they are. FlagError where the settings cannot be understood."""
    return Authenticators(tuple(_chain(settings, reviewers, trust_domain))) if settings.enabled else nobody


def also_by_provider(
    authenticate: Authenticate, provider: JwtRule | None, trust_domain: Callable[[], str]
) -> Authenticate:
    """Returns how callers prove who they are that may do so by a token of a provider too, where there is one; where nobody is known, nobody is."""
    if provider is None or authenticate is nobody:
        return authenticate
    tokens = OidcTokens(provider, Provider(provider), trust_domain)
    return Authenticators(
        (Authenticator("as for xDS", authenticate), Authenticator(f"token of {provider.issuer}", tokens.identify))
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
    if settings.trusted_gateways:
        yield Authenticator("forwarded certificate", ForwardedCertificates(settings.trusted_gateways).identify)


def for_certificates(meet: Meet, authenticate: Authenticate) -> AuthenticateRequest:
    """Returns the same for requests of certificates, where somebody who has proved nothing is refused."""

    async def identify(context: Any) -> Sequence[str]:
        try:
            identities = await authenticate(meet(context))
        except IdentityError as error:
            raise CallerRefused(str(error)) from error
        if not identities:
            raise CallerRefused("nobody proves who he is on this port")
        return identities

    return identify


def for_impersonation(meet: Meet, proxies: NodeProxies | None) -> Impersonate:
    """Returns who may have the certificates of others: proxies of a node, where there are any."""
    if proxies is None:
        return refuse_impersonation

    async def check(context: Any, asked: str) -> None:
        try:
            await proxies.check(meet(context), asked)
        except IdentityError as error:
            raise CallerRefused(str(error)) from error

    return check
