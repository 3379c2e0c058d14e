"""Proxies of a node, and whose certificates they may have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilot.xds.authn.identity import Caller, IdentityError
from pilot.xds.authn.node_proxies import NodeProxies
from pilot.xds.authn.service_account import GROUP, Review, ServiceAccountTokens
from testing.mesh.objects import Plain, pod
from testing.mesh.world import World, rows_of

POD = "authentication.kubernetes.io/pod-"
WEB = "spiffe://cluster.local/ns/a/sa/web"
ZTUNNEL = ("system:serviceaccount:istio-system:ztunnel", "zt-1", "u1")


async def review(token: str, audiences: Sequence[str]) -> Review:
    """A token says whose it is: user, pods (with a + between) and uid."""
    if "," not in token:
        raise IdentityError("not accepted")
    user, name, uid = token.split(",")
    extra = {POD + "name": tuple(name.split("+")), POD + "uid": (uid,)} if name else {}
    return Review(user, (GROUP,), extra)


def proxy_pod(node: str = "n1", uid: str = "u1", account: str = "ztunnel", name: str = "zt-1") -> Plain:
    return pod(name, "10.0.0.1", "istio-system", f"{{nodeName: {node}, serviceAccountName: {account}}}", uid=uid)


def web(node: str = "n1", account: str = "web", **more: str) -> Plain:
    return pod("w", "10.1.0.1", "a", f"{{nodeName: {node}, serviceAccountName: {account}}}", **more)


def proxies(*objects: Plain, cluster: str = "Kubernetes") -> NodeProxies:
    made = World()
    made.set(rows_of(objects, cluster))
    tokens = ServiceAccountTokens(
        {"": review, "Kubernetes": review, "remote": review}, ("istio-ca",), lambda: "cluster.local"
    )
    return NodeProxies(["istio-system/ztunnel"], tokens, made.mesh, {"": "Kubernetes"})


def caller(*token: str, cluster: str = "") -> Caller:
    said = ",".join(token or ZTUNNEL)
    return Caller("10.0.0.1:1", {"authorization": f"Bearer {said}", **({"clusterid": cluster} if cluster else {})})


async def test_a_proxy_may_have_the_certificate_of_what_runs_on_its_node() -> None:
    await proxies(proxy_pod(), web()).check(caller(), WEB)
    await proxies(proxy_pod(), web(phase="Pending")).check(caller(cluster="Kubernetes"), WEB)


async def test_of_several_pods_that_a_token_names_the_first_counts() -> None:
    await proxies(proxy_pod(), web()).check(caller(ZTUNNEL[0], "zt-1+zt-2", "u1"), WEB)


@pytest.mark.parametrize(
    ("objects", "token", "asked"),
    [
        ((proxy_pod(), web(node="n2")), ZTUNNEL, WEB),
        ((proxy_pod(), web(account="other")), ZTUNNEL, WEB),
        ((proxy_pod(), web(phase="Failed")), ZTUNNEL, WEB),
        ((proxy_pod(),), ZTUNNEL, WEB),
        ((proxy_pod(), web()), ZTUNNEL, "spiffe://cluster.local/ns/b/sa/web"),
        ((proxy_pod(), web()), ZTUNNEL, "web"),
        ((proxy_pod(), web()), ZTUNNEL, "spiffe://cluster.local/ns/a/sa/"),
        ((web(),), ZTUNNEL, WEB),
        ((proxy_pod(uid="u2"), web()), ZTUNNEL, WEB),
        ((proxy_pod(account="default"), web()), ZTUNNEL, WEB),
        ((proxy_pod(node="''"), web(node="''")), ZTUNNEL, WEB),
        ((proxy_pod(), web()), (ZTUNNEL[0], "", ""), WEB),
        ((proxy_pod(), web()), (ZTUNNEL[0], "zt-2", "u1"), WEB),
        ((proxy_pod(uid=""), web()), (ZTUNNEL[0], "zt-1", ""), WEB),
        ((proxy_pod(), web()), ("system:serviceaccount:a:web", "w", "u1"), WEB),
        ((proxy_pod(), web()), ("system:serviceaccount:a:ztunnel", "zt-1", "u1"), WEB),
        ((proxy_pod(), web()), ("refused",), WEB),
    ],
)
async def test_nobody_may_have_any_other(objects: tuple[Plain, ...], token: tuple[str, ...], asked: str) -> None:
    with pytest.raises(IdentityError):
        await proxies(*objects).check(caller(*token), asked)


async def test_the_cluster_of_the_caller_counts() -> None:
    there = proxies(proxy_pod(), web(), cluster="remote")
    await there.check(caller(cluster="remote"), WEB)
    with pytest.raises(IdentityError):
        await there.check(caller(), WEB)


async def test_who_brings_no_token_has_no_say() -> None:
    with pytest.raises(IdentityError):
        await proxies(proxy_pod(), web()).check(
            Caller("10.0.0.1:1", {}, ("spiffe://cluster.local/ns/istio-system/sa/ztunnel",)), WEB
        )
