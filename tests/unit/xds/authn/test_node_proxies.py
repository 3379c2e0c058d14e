"""Certificates that node proxies may request on behalf of workloads."""

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


async def review(token: str, audiences: Sequence[str], _: str) -> Review:
    """Review a token that consists of user, pods (joined by +) and uid."""
    if "," not in token:
        raise IdentityError("not accepted")
    user, name, uid = token.split(",")
    extra = {POD + "name": tuple(name.split("+")), POD + "uid": (uid,)} if name else {}
    return Review(user, (GROUP,), extra)


def proxy_pod(node: str = "n1", uid: str = "u1", account: str = "ztunnel", name: str = "zt-1") -> Plain:
    return pod(name, "10.0.0.1", "istio-system", f"{{nodeName: {node}, serviceAccountName: {account}}}", uid=uid)


def web_pod(node: str = "n1", account: str = "web", **more: str) -> Plain:
    return pod("w", "10.1.0.1", "a", f"{{nodeName: {node}, serviceAccountName: {account}}}", **more)


def node_proxies(*objects: Plain, cluster: str = "Kubernetes") -> NodeProxies:
    harness = World()
    harness.set(rows_of(objects, cluster))
    tokens = ServiceAccountTokens(
        {"": review, "Kubernetes": review, "remote": review}, ("istio-ca",), lambda: "cluster.local"
    )
    return NodeProxies(["istio-system/ztunnel"], tokens, harness.mesh, {"": "Kubernetes"})


def caller(*token: str, cluster: str = "") -> Caller:
    token_text = ",".join(token or ZTUNNEL)
    return Caller(
        "10.0.0.1:1", {"authorization": f"Bearer {token_text}", **({"clusterid": cluster} if cluster else {})}
    )


async def test_proxy_may_impersonate_workloads_on_its_node() -> None:
    await node_proxies(proxy_pod(), web_pod()).check(caller(), WEB)
    await node_proxies(proxy_pod(), web_pod(phase="Pending")).check(caller(cluster="Kubernetes"), WEB)


async def test_first_of_several_pods_of_a_token_wins() -> None:
    await node_proxies(proxy_pod(), web_pod()).check(caller(ZTUNNEL[0], "zt-1+zt-2", "u1"), WEB)


@pytest.mark.parametrize(
    ("objects", "token", "identity"),
    [
        ((proxy_pod(), web_pod(node="n2")), ZTUNNEL, WEB),
        ((proxy_pod(), web_pod(account="other")), ZTUNNEL, WEB),
        ((proxy_pod(), web_pod(phase="Failed")), ZTUNNEL, WEB),
        ((proxy_pod(),), ZTUNNEL, WEB),
        ((proxy_pod(), web_pod()), ZTUNNEL, "spiffe://cluster.local/ns/b/sa/web"),
        ((proxy_pod(), web_pod()), ZTUNNEL, "web"),
        ((proxy_pod(), web_pod()), ZTUNNEL, "spiffe://cluster.local/ns/a/sa/"),
        ((web_pod(),), ZTUNNEL, WEB),
        ((proxy_pod(uid="u2"), web_pod()), ZTUNNEL, WEB),
        ((proxy_pod(account="default"), web_pod()), ZTUNNEL, WEB),
        ((proxy_pod(node="''"), web_pod(node="''")), ZTUNNEL, WEB),
        ((proxy_pod(), web_pod()), (ZTUNNEL[0], "", ""), WEB),
        ((proxy_pod(), web_pod()), (ZTUNNEL[0], "zt-2", "u1"), WEB),
        ((proxy_pod(uid=""), web_pod()), (ZTUNNEL[0], "zt-1", ""), WEB),
        ((proxy_pod(), web_pod()), ("system:serviceaccount:a:web", "w", "u1"), WEB),
        ((proxy_pod(), web_pod()), ("system:serviceaccount:a:ztunnel", "zt-1", "u1"), WEB),
        ((proxy_pod(), web_pod()), ("refused",), WEB),
    ],
)
async def test_other_impersonation_is_denied(objects: tuple[Plain, ...], token: tuple[str, ...], identity: str) -> None:
    with pytest.raises(IdentityError):
        await node_proxies(*objects).check(caller(*token), identity)


async def test_impersonation_is_limited_to_the_cluster_of_the_caller() -> None:
    remote_proxies = node_proxies(proxy_pod(), web_pod(), cluster="remote")
    await remote_proxies.check(caller(cluster="remote"), WEB)
    with pytest.raises(IdentityError):
        await remote_proxies.check(caller(), WEB)


async def test_impersonation_requires_a_token() -> None:
    with pytest.raises(IdentityError):
        await node_proxies(proxy_pod(), web_pod()).check(
            Caller("10.0.0.1:1", {}, ("spiffe://cluster.local/ns/istio-system/sa/ztunnel",)), WEB
        )
