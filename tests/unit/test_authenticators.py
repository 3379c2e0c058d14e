"""Who a caller is: by its certificate, by a token, or nobody."""
from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import pytest

from pilot.app.authentication import find_reviewers, make_authenticate
from pilot.serve.authn.key_file import KeyFile
from pilot.serve.authn.service_account import GROUP, Review, ServiceAccountTokens, service_account_identity
from pilot.serve.identity import Caller, IdentityError
from pilot.settings.security import AuthenticationSettings
from tests.support.tokens import claims, jwk, other_key, sign, token, write_keys

WEB = "spiffe://cluster.local/ns/shop/sa/web"
PROXY = "10.0.0.1:5000"


def caller(token: str = "", certified: tuple[str, ...] = (), **headers: str) -> Caller:
    metadata: Mapping[str, str] = {**({"authorization": f"Bearer {token}"} if token else {}), **headers}
    return Caller(PROXY, metadata, certified)


def tokens(reviewer: KeyFile | None = None, users: Mapping[str, Review] | None = None) -> ServiceAccountTokens:
    async def review(token: str, audiences: Sequence[str]) -> Review:
        assert audiences == ("istio-ca",)
        found = (users or {}).get(token)
        if found is None:
            raise IdentityError("the API server does not know it")
        return found

    return ServiceAccountTokens({"": reviewer.review if reviewer else review}, ("istio-ca",), lambda: "cluster.local")


async def test_the_first_authenticator_that_knows_a_caller_decides(tmp_path: pathlib.Path) -> None:
    settings = AuthenticationSettings(token_keys=str(write_keys(tmp_path / "keys.json")))
    authenticate = make_authenticate(settings, find_reviewers(settings, "Kubernetes", {}, {}), lambda: "cluster.local")
    assert await authenticate(caller(token("other", "account"), (WEB, "web.shop.svc"))) == (WEB, "web.shop.svc")
    assert await authenticate(caller(token("shop", "web"))) == (WEB,)
    with pytest.raises(IdentityError, match="client certificate: no client certificate was shown; service account token: no bearer token"):
        await authenticate(caller())


async def test_cve_2022_39388_an_address_proves_nothing(tmp_path: pathlib.Path) -> None:
    """Neither where a caller comes from, loopback included, nor a header that says where, makes it somebody."""
    settings = AuthenticationSettings(token_keys=str(write_keys(tmp_path / "keys.json")))
    authenticate = make_authenticate(settings, find_reviewers(settings, "Kubernetes", {}, {}), lambda: "cluster.local")
    headers = {"x-forwarded-client-cert": f"By=x;URI={WEB}", "x-forwarded-for": "10.0.0.1", "x-real-ip": "10.0.0.1"}
    for address in (PROXY, "127.0.0.1:5000", "[::1]:5000"):
        with pytest.raises(IdentityError):
            await authenticate(Caller(address, headers))


async def test_without_authentication_everybody_is_nobody() -> None:
    assert await make_authenticate(AuthenticationSettings(enabled=False), {}, lambda: "cluster.local")(caller("x", (WEB,))) == ()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (token(exp=1), "expired"),
        (token(aud=["somebody-else"]), "for somebody-else, not for istio-ca"),
        (token(aud=None), "for nobody"),
        (token(aud=7), "aud"),
        (token(sub=None), "no subject"),
        (token(sub="system:node:one"), "'system:node:one' is no service account"),
        (token(iss="https://elsewhere"), "issuer"),
        (token(iss=None), "issuer"),
        (sign(claims(), other_key()), "no known key"),
        (sign(claims(), kid="two"), "no known key"),
        ("nonsense", "three parts"),
    ],
)
async def test_a_token_that_a_key_file_does_not_accept(tmp_path: pathlib.Path, made: str, reason: str) -> None:
    known = KeyFile(str(write_keys(tmp_path / "keys.json")), "https://kubernetes.default.svc.cluster.local")
    with pytest.raises(IdentityError, match=reason):
        await tokens(known).identify(caller(made))


async def test_a_token_that_is_bound_to_a_pod_names_it(tmp_path: pathlib.Path) -> None:
    known = KeyFile(str(write_keys(tmp_path / "keys.json")), "")
    bound = token(**{"kubernetes.io": {"namespace": "shop", "pod": {"name": "web-1", "uid": "u-1"}}})
    review = await known.review(bound, ("istio-ca",))
    prefix = "authentication.kubernetes.io/pod-"
    assert (review.groups, review.extra) == ((GROUP,), {f"{prefix}name": ("web-1",), f"{prefix}uid": ("u-1",)})
    assert (await known.review(token(**{"kubernetes.io": {"pod": "web-1"}}), ("istio-ca",))).extra == {}


async def test_another_key_file_counts_with_the_next_token_and_a_broken_one_does_not(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "keys.json"
    known = KeyFile(str(path), "")
    with pytest.raises(IdentityError, match="no known key"):
        await known.review(token(), ("istio-ca",))
    write_keys(path)
    assert (await known.review(token(), ("istio-ca",))).username == "system:serviceaccount:shop:web"
    path.write_text("{")
    assert len(known.keys()) == 1
    write_keys(path, jwk(other_key(), "two"))
    with pytest.raises(IdentityError, match="no known key"):
        await known.review(token(), ("istio-ca",))
    assert (await known.review(sign(claims(), other_key(), kid="two"), ("istio-ca",))).username == "system:serviceaccount:shop:web"
    path.unlink()
    assert len(known.keys()) == 1


async def test_tokens_of_other_clusters_and_of_other_users_are_refused() -> None:
    known = tokens(users={"a": Review("system:serviceaccount:shop:web", (GROUP,)), "b": Review("system:serviceaccount:shop:web", ("others",))})
    assert await known.identify(caller("a")) == (WEB,)
    with pytest.raises(IdentityError, match="nobody reviews tokens of the cluster 'remote'"):
        await known.identify(caller("a", clusterid="remote"))
    with pytest.raises(IdentityError, match="not in the group"):
        await known.identify(caller("b"))
    with pytest.raises(IdentityError, match="does not know it"):
        await known.identify(caller("c"))


def test_the_own_cluster_has_several_names(tmp_path: pathlib.Path) -> None:
    settings = AuthenticationSettings(token_keys=str(tmp_path / "keys.json"))
    assert set(find_reviewers(settings, "one", {"first": "one", "second": "two"}, {})) == {"", "one", "first"}


@pytest.mark.parametrize("name", ["a.b", "a-b.c", "0", "a" * 253])
def test_a_service_account_may_have_dots(name: str) -> None:
    assert service_account_identity(f"system:serviceaccount:shop:{name}", "td") == f"spiffe://td/ns/shop/sa/{name}"


@pytest.mark.parametrize(
    "user",
    ["", "web", "system:serviceaccount:shop", "system:serviceaccount:shop:", "system:serviceaccount::web", "system:serviceaccount:shop:web:x",
     "system:serviceaccount:shop:web/sa/boss", "system:serviceaccount:a.b:web", "system:serviceaccount:shop:../web", "system:serviceaccount:shop:Web",
     "system:serviceaccount:shop:web\n", "system:serviceaccount:shop:wéb", "System:serviceaccount:shop:web", "system:serviceaccount:shop:-web",
     "system:serviceaccount:" + "a" * 64 + ":web"],
)  # fmt: skip
def test_other_names_are_no_service_accounts(user: str) -> None:
    with pytest.raises(IdentityError, match="is no service account"):
        service_account_identity(user, "cluster.local")


@pytest.mark.parametrize(
    ("header", "expected"), [("Bearer a.b", "a.b"), ("bearer a", ""), ("Basic a", ""), ("Bearer ", ""), (b"Bearer a", ""), ("", "")]
)
def test_bearer_tokens(header: str | bytes, expected: str) -> None:
    assert Caller(PROXY, {"authorization": header}).token == expected
