"""Authentication of callers by certificates and tokens."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ca.service import CallerPostponed, CallerRefused
from pilot.bootstrap.security import port_auth as authentication
from pilot.bootstrap.security.port_auth import (
    PortAuth,
    authenticate_csr,
    authorize_impersonation,
    build_authenticate,
    find_provider,
    find_reviewers,
    local_cluster_names,
    with_provider,
)
from pilot.lib.flags import FlagError
from pilot.settings.parse import load
from pilot.settings.security import AuthenticationSettings
from pilot.xds.authn.identity import (
    Caller,
    IdentityError,
    TooManyCallers,
    no_authentication,
)
from pilot.xds.authn.key_file import KeyFile
from pilot.xds.authn.oidc import JwtRule, Provider
from pilot.xds.authn.service_account import GROUP, Review, ServiceAccountTokens, service_account_identity
from testing.security.tokens import claims, jwk, other_key, sign, token, write_keys

WEB = "spiffe://cluster.local/ns/shop/sa/web"
HOST = "10.0.0.1"
PROXY = f"{HOST}:5000"


def caller(token: str = "", certified: tuple[str, ...] = (), **headers: str) -> Caller:
    metadata: Mapping[str, str] = {**({"authorization": f"Bearer {token}"} if token else {}), **headers}
    return Caller(PROXY, metadata, certified)


def tokens(reviewer: KeyFile | None = None, users: Mapping[str, Review] | None = None) -> ServiceAccountTokens:
    async def review(token: str, audiences: Sequence[str], host: str) -> Review:
        assert (audiences, host) == (("istio-ca",), HOST)
        result = (users or {}).get(token)
        if result is None:
            raise IdentityError("the API server does not know it")
        return result

    return ServiceAccountTokens({"": reviewer.review if reviewer else review}, ("istio-ca",), lambda: "cluster.local")


async def test_first_matching_authenticator_decides(tmp_path: pathlib.Path) -> None:
    settings = AuthenticationSettings(token_keys=str(write_keys(tmp_path / "keys.json")))
    authenticate = build_authenticate(settings, find_reviewers(settings, "Kubernetes", {}, {}), lambda: "cluster.local")
    assert await authenticate(caller(token("other", "account"), (WEB, "web.shop.svc"))) == (WEB, "web.shop.svc")
    assert await authenticate(caller(token("shop", "web"))) == (WEB,)
    with pytest.raises(
        IdentityError,
        match="client certificate: there is no client certificate; service account token: the request has no bearer token",
    ):
        await authenticate(caller())
    with pytest.raises(IdentityError, match=r"^service account token: invalid token: it has 1 segments instead of 3$"):
        await authenticate(caller("nonsense"))


async def test_cve_2022_39388_addresses_do_not_authenticate(tmp_path: pathlib.Path) -> None:
    """Neither the peer address, loopback included, nor a header that names an address authenticates a caller."""
    settings = AuthenticationSettings(token_keys=str(write_keys(tmp_path / "keys.json")))
    authenticate = build_authenticate(settings, find_reviewers(settings, "Kubernetes", {}, {}), lambda: "cluster.local")
    headers = {"x-forwarded-client-cert": f"By=x;URI={WEB}", "x-forwarded-for": "10.0.0.1", "x-real-ip": "10.0.0.1"}
    for address in (PROXY, "127.0.0.1:5000", "[::1]:5000"):
        with pytest.raises(IdentityError):
            await authenticate(Caller(address, headers))


FORWARDED = f'By=spiffe://x/gw;Hash=1f;Subject="CN=web.shop,O=Books\\, and\\; more";URI={WEB};DNS=web.shop.svc;DNS=web'


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (f"By=x;URI={WEB}", (WEB,)),
        (FORWARDED, ("web.shop", WEB, "web.shop.svc", "web")),
        (f"URI={WEB}, uri=spiffe://td/ns/a/sa/b;URI={WEB}", (WEB, "spiffe://td/ns/a/sa/b")),
        ('Subject="nonsense";URI="spiffe://td/ns/a/sa/b";Cert="x\\"y"', ("spiffe://td/ns/a/sa/b",)),
        ('Subject="";URI=spiffe://td/ns/a/sa/b', ("spiffe://td/ns/a/sa/b",)),
        ("URI=;DNS=;URI=spiffe://td/ns/a/sa/b", ("spiffe://td/ns/a/sa/b",)),
        ('DNS="the \\"web\\" of shop"', ('the "web" of shop',)),
    ],
)
async def test_trusted_gateway_forwards_certificate_names(header: str, names: tuple[str, ...]) -> None:
    authenticate = build_authenticate(
        AuthenticationSettings(trusted_gateways=("192.0.2.0/24", " 2001:db8::/32 ")), {}, lambda: "cluster.local"
    )
    forwarded = {"x-forwarded-client-cert": header}
    for address in ("192.0.2.7:5000", "[::ffff:192.0.2.7]:5000", "[2001:db8::1]:5000", "127.0.0.1:5000", "[::1]:5000"):
        assert await authenticate(Caller(address, forwarded)) == names
    for address in ("192.0.3.7:5000", "[2001:db9::1]:5000", "unix:", ""):
        with pytest.raises(IdentityError, match="is not a trusted gateway"):
            await authenticate(Caller(address, forwarded))
    assert await authenticate(Caller("192.0.2.7:5000", forwarded, ("spiffe://td/ns/edge/sa/gateway",))) == (
        "spiffe://td/ns/edge/sa/gateway",
    )


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "no certificate was forwarded"),
        ("By=x;Hash=1f", "have no names"),
        ('URI="spiffe://x', "is malformed at character 0"),
        (f"URI={WEB};nonsense", "is malformed at character"),
    ],
)
async def test_forwarded_header_without_names_is_rejected(header: str, reason: str) -> None:
    authenticate = build_authenticate(
        AuthenticationSettings(trusted_gateways=("192.0.2.0/24",)), {}, lambda: "cluster.local"
    )
    with pytest.raises(IdentityError, match=reason):
        await authenticate(Caller("192.0.2.7:5000", {"x-forwarded-client-cert": header}))


def test_invalid_gateway_cidr_is_rejected() -> None:
    with pytest.raises(FlagError, match="TRUSTED_GATEWAY_CIDR: 'gateway' does not appear to be"):
        build_authenticate(AuthenticationSettings(trusted_gateways=("gateway",)), {}, lambda: "cluster.local")


@pytest.mark.parametrize(
    ("options", "own_token", "expected"),
    [
        ({"token_issuer": "https://a", "provider_audience": "istio"}, None, ("https://a", ("istio",))),
        ({}, token(iss="https://own", aud=["first", "second"]), ("https://own", ("first",))),
        ({"provider_audience": "istio"}, token(iss="https://own", aud="other"), ("https://own", ("istio",))),
        ({"token_issuer": "https://a"}, token(iss="https://own"), ("https://a", ("istio-ca",))),
        ({"token_issuer": "https://a"}, None, None),
        ({"provider_audience": "istio"}, "nonsense", None),
        ({"token_keys": "keys.json", "token_issuer": "https://a", "provider_audience": "istio"}, None, None),
        ({}, None, None),
    ],
)
def test_token_provider_applies_outside_kubernetes(
    tmp_path: pathlib.Path, options: dict[str, str], own_token: str | None, expected: tuple[str, tuple[str, ...]] | None
) -> None:
    path = tmp_path / "istio-token"
    if own_token is not None:
        path.write_text(own_token)
    settings = AuthenticationSettings(**options)  # type: ignore[arg-type]
    assert find_provider(settings, False, str(path)) == (expected if expected is None else JwtRule(*expected))
    assert find_provider(settings, True, str(path)) is None


async def test_provider_is_tried_last_and_only_with_authentication() -> None:
    rule = JwtRule("https://issuer.invalid", ("istio",))
    assert with_provider(no_authentication, rule, lambda: "td") is no_authentication
    authenticate = build_authenticate(AuthenticationSettings(), {}, lambda: "td")
    assert with_provider(authenticate, None, lambda: "td") is authenticate
    both = with_provider(authenticate, rule, lambda: "td")
    assert await both(caller(certified=(WEB,))) == (WEB,)
    with pytest.raises(
        IdentityError,
        match=r"xDS: client certificate: .*; token of https://issuer.invalid: the request has no bearer token",
    ):
        await both(caller())


async def test_disabled_authentication_yields_no_identity() -> None:
    assert (
        await build_authenticate(AuthenticationSettings(enabled=False), {}, lambda: "cluster.local")(
            caller("x", (WEB,))
        )
        == ()
    )


@pytest.mark.parametrize(
    ("bearer", "reason"),
    [
        (token(exp=1), "expired"),
        (token(aud=["somebody-else"]), "is somebody-else, not istio-ca"),
        (token(aud=None), "is empty, not istio-ca"),
        (token(aud=7), "aud"),
        (token(sub=None), "no subject"),
        (token(sub="system:node:one"), "'system:node:one' is not a service account"),
        (token(iss="https://elsewhere"), "issuer"),
        (token(iss=None), "issuer"),
        (sign(claims(), other_key()), "no key of the set"),
        (sign(claims(), kid="two"), "no key of the set"),
        ("nonsense", "invalid token"),
    ],
)
async def test_key_file_rejects_invalid_tokens(tmp_path: pathlib.Path, bearer: str, reason: str) -> None:
    key_file = KeyFile(str(write_keys(tmp_path / "keys.json")), "https://kubernetes.default.svc.cluster.local")
    with pytest.raises(IdentityError, match=reason):
        await tokens(key_file).identify(caller(bearer))


async def test_bound_token_names_its_pod(tmp_path: pathlib.Path) -> None:
    key_file = KeyFile(str(write_keys(tmp_path / "keys.json")), "")
    bound_token = token(**{"kubernetes.io": {"namespace": "shop", "pod": {"name": "web-1", "uid": "u-1"}}})
    review = await key_file.review(bound_token, ("istio-ca",))
    prefix = "authentication.kubernetes.io/pod-"
    assert (review.groups, review.extra) == ((GROUP,), {f"{prefix}name": ("web-1",), f"{prefix}uid": ("u-1",)})
    assert (await key_file.review(token(**{"kubernetes.io": {"pod": "web-1"}}), ("istio-ca",))).extra == {}


async def test_key_file_is_reloaded_unless_broken(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "keys.json"
    key_file = KeyFile(str(path), "")
    with pytest.raises(IdentityError, match="no key of the set"):
        await key_file.review(token(), ("istio-ca",))
    write_keys(path)
    assert (await key_file.review(token(), ("istio-ca",))).username == "system:serviceaccount:shop:web"
    path.write_text("{")
    assert len(key_file.keys()) == 1
    write_keys(path, jwk(other_key(), "two"))
    with pytest.raises(IdentityError, match="no key of the set"):
        await key_file.review(token(), ("istio-ca",))
    assert (
        await key_file.review(sign(claims(), other_key(), kid="two"), ("istio-ca",))
    ).username == "system:serviceaccount:shop:web"
    path.unlink()
    assert len(key_file.keys()) == 1


async def test_broken_key_file_is_logged_once(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if "stay in force" in record.getMessage()]

    path = write_keys(tmp_path / "keys.json")
    key_file = KeyFile(str(path), "")
    key_file.keys()
    assert warnings() == []
    path.write_text("{")
    key_file.keys()
    key_file.keys()
    assert len(warnings()) == 1
    path.unlink()
    key_file.keys()
    key_file.keys()
    assert len(warnings()) == 2
    assert warnings()[1].startswith(f"{path}: cannot read the token keys; the previous keys stay in force: ")


async def test_tokens_of_other_clusters_and_groups_are_rejected() -> None:
    authenticator = tokens(
        users={
            "a": Review("system:serviceaccount:shop:web", (GROUP,)),
            "b": Review("system:serviceaccount:shop:web", ("others",)),
        }
    )
    assert await authenticator.identify(caller("a")) == (WEB,)
    with pytest.raises(IdentityError, match="there is no token reviewer for cluster 'remote'"):
        await authenticator.identify(caller("a", clusterid="remote"))
    with pytest.raises(IdentityError, match="not in the group"):
        await authenticator.identify(caller("b"))
    with pytest.raises(IdentityError, match="does not know it"):
        await authenticator.identify(caller("c"))


@pytest.mark.parametrize("name", ["a.b", "a-b.c", "0", "a" * 253])
def test_service_account_name_may_have_dots(name: str) -> None:
    assert service_account_identity(f"system:serviceaccount:shop:{name}", "td") == f"spiffe://td/ns/shop/sa/{name}"


@pytest.mark.parametrize(
    "user",
    [
        "",
        "web",
        "system:serviceaccount:shop",
        "system:serviceaccount:shop:",
        "system:serviceaccount::web",
        "system:serviceaccount:shop:web:x",
        "system:serviceaccount:shop:web/sa/boss",
        "system:serviceaccount:a.b:web",
        "system:serviceaccount:shop:../web",
        "system:serviceaccount:shop:Web",
        "system:serviceaccount:shop:web\n",
        "system:serviceaccount:shop:wéb",
        "System:serviceaccount:shop:web",
        "system:serviceaccount:shop:-web",
        "system:serviceaccount:" + "a" * 64 + ":web",
    ],
)
def test_other_usernames_are_rejected(user: str) -> None:
    with pytest.raises(IdentityError, match="is not a service account"):
        service_account_identity(user, "cluster.local")


@pytest.mark.parametrize(
    ("header", "expected"),
    [("Bearer a.b", "a.b"), ("bearer a", ""), ("Basic a", ""), ("Bearer ", ""), (b"Bearer a", ""), ("", "")],
)
def test_bearer_token_parsing(header: str | bytes, expected: str) -> None:
    assert Caller(PROXY, {"authorization": header}).token == expected


ALIASES = {"alias": "Kubernetes", "other": "west"}


def test_local_cluster_names_include_aliases() -> None:
    assert local_cluster_names("Kubernetes", ALIASES) == ("", "Kubernetes", "alias")


def test_key_file_replaces_token_reviewers() -> None:
    servers: Any = {"west": object()}
    settings = load([], {}).settings.authentication
    assert find_reviewers(settings, "Kubernetes", ALIASES, servers) is servers
    settings = load(["--tokenKeys=/keys"], {}).settings.authentication
    assert list(find_reviewers(settings, "Kubernetes", ALIASES, servers)) == ["", "Kubernetes", "alias"]


async def test_unauthenticated_caller_gets_no_certificate() -> None:
    context, caller = object(), Caller("10.0.0.1:1")
    contexts: list[Any] = []

    def identify(value: Any) -> Caller:
        contexts.append(value)
        return caller

    async def authenticate(value: Caller) -> list[str]:
        assert value is caller
        return ["spiffe://a"]

    async def fail(_: Caller) -> list[str]:
        raise IdentityError("the token has expired")

    assert await authenticate_csr(identify, authenticate)(context) == ["spiffe://a"]
    assert contexts == [context]
    with pytest.raises(CallerRefused, match=r"^this port does not authenticate callers$"):
        await authenticate_csr(identify, no_authentication)(context)
    with pytest.raises(CallerRefused, match=r"^the token has expired$"):
        await authenticate_csr(identify, fail)(context)

    async def postpone(_: Caller) -> list[str]:
        raise TooManyCallers("x" * 2_000)

    with pytest.raises(CallerPostponed, match=r"^x{1000}… \(1000 more characters\)$"):
        await authenticate_csr(identify, postpone)(context)


async def test_node_proxies_may_impersonate_local_workloads() -> None:
    port_auth, calls = PortAuth(lambda context: Caller("10.0.0.1:1"), no_authentication), list[Any]()

    async def check(caller: Caller, identity: str) -> None:
        calls.append((caller.address, identity))
        if identity == "wrong":
            raise IdentityError("no pod on the node runs as that")

    proxies: Any = SimpleNamespace(check=check)
    impersonate = authorize_impersonation(port_auth.identify_peer, proxies)
    await impersonate(None, "right")
    with pytest.raises(CallerRefused, match=r"^no pod on the node runs as that$"):
        await impersonate(None, "wrong")
    assert calls == [("10.0.0.1:1", "right"), ("10.0.0.1:1", "wrong")]
    with pytest.raises(CallerRefused, match=r"^impersonation is disabled"):
        await authorize_impersonation(port_auth.identify_peer, None)(None, "right")


def test_provider_tokens_are_verified_by_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def record(*args: Any) -> Any:
        calls.append(args)
        return SimpleNamespace(identify=no_authentication)

    monkeypatch.setattr(authentication, "OidcTokens", record)
    rule = JwtRule("https://a", ("istio",))
    with_provider(reject_caller, rule, lambda: "td")
    build_authenticate(
        load([], {"JWT_RULE": '{"issuer": "https://a", "audiences": ["istio"]}'}).settings.authentication,
        {},
        lambda: "td",
    )
    for jwt_rule, provider, trust_domain in calls:
        assert (jwt_rule, type(provider), trust_domain()) == (rule, Provider, "td")
    assert len(calls) == 2


async def reject_caller(_: Caller) -> list[str]:
    raise IdentityError("nobody knows")


@pytest.mark.parametrize(
    ("environ", "own_token", "warning"),
    [
        (
            {"TOKEN_ISSUER": "https://a"},
            None,
            "tokens of https://a are not accepted for certificate requests because AUDIENCE is not set",
        ),
        (
            {},
            "nonsense",
            "FILE: cannot determine the issuer of the control plane's own token: invalid token: Not enough segments",
        ),
        ({}, token(aud=7), "FILE: cannot determine the issuer of the control plane's own token: "),
        ({"TOKEN_ISSUER": "https://a", "AUDIENCE": "istio"}, "nonsense", None),
    ],
)
def test_missing_provider_is_logged(
    tmp_path: pathlib.Path,
    environ: dict[str, str],
    own_token: str | None,
    warning: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "istio-token"
    if own_token is not None:
        path.write_text(own_token)
    find_provider(load([], environ).settings.authentication, False, str(path))
    messages = [message.replace(str(path), "FILE") for message in caplog.messages]
    assert len(messages) == (0 if warning is None else 1)
    assert warning is None or messages[0].startswith(warning)
