"""Which authenticators a port has, by the settings."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ca.service import Authenticate as AuthenticateRequest
from ca.service import Impersonate, Refused, refuse_impersonation
from pilot.serve.authn.chain import Authenticator, Authenticators, identify_by_certificate
from pilot.serve.authn.key_file import KeyFile
from pilot.serve.authn.node_proxies import NodeProxies
from pilot.serve.authn.oidc import OidcTokens, Provider, parse_jwt_rule
from pilot.serve.authn.service_account import Reviewer, ServiceAccountTokens
from pilot.serve.identity import Authenticate, IdentityError, Meet, nobody
from pilot.settings.security import AuthenticationSettings


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


def make_authenticate(settings: AuthenticationSettings, reviewers: Mapping[str, Reviewer], trust_domain: Callable[[], str]) -> Authenticate:
    """Returns how callers of the port with TLS prove who they are. FlagError where JWT_RULE cannot be understood."""
    return Authenticators(tuple(_chain(settings, reviewers, trust_domain))) if settings.enabled else nobody


def _chain(settings: AuthenticationSettings, reviewers: Mapping[str, Reviewer], trust_domain: Callable[[], str]) -> Iterator[Authenticator]:
    yield Authenticator("client certificate", identify_by_certificate)
    if settings.jwt_rule:
        rule = parse_jwt_rule(settings.jwt_rule)
        yield Authenticator("OpenID Connect token", OidcTokens(rule, Provider(rule), trust_domain).identify)
    if len(reviewers):
        yield Authenticator("service account token", ServiceAccountTokens(reviewers, settings.token_audiences, trust_domain).identify)


def for_certificates(meet: Meet, authenticate: Authenticate) -> AuthenticateRequest:
    """Returns the same for requests of certificates, where somebody who has proved nothing is refused."""

    async def identify(context: Any) -> Sequence[str]:
        try:
            identities = await authenticate(meet(context))
        except IdentityError as error:
            raise Refused(str(error)) from error
        if not identities:
            raise Refused("nobody proves who he is on this port")
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
            raise Refused(str(error)) from error

    return check
