"""An ambient mesh with the real ztunnel in its dedicated mode, which serves one pod, and a waypoint."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cluster.box.addresses import NODE
from tests.cluster.box.box import Box
from tests.cluster.box.cluster import CommandFailed
from tests.cluster.box.programs import find_beside
from tests.cluster.gateway_api.suite import build_programs, definitions
from tests.cluster.load import load_on
from tests.cluster.manifests import echo, namespace, objects
from tests.cluster.mesh import call, call_until, istio
from tests.cluster.steps.installations import IMAGE, SYSTEM

AREA = "ambient"
URL = "http://books/list"
PROXY_USER = 1337
CALLER = f"cluster.local/ns/{AREA}/sa/front"
REDIRECTION = f"""\
table ip mesh {{
chain arriving {{
  type nat hook prerouting priority dstnat
  ip saddr {NODE} return comment "probes"
  tcp dport {{ 15008, 15021 }} return
  meta l4proto tcp redirect to :15006
}}
chain leaving {{
  type nat hook output priority -100
  oifname "lo" return
  meta skuid {PROXY_USER} return
  meta l4proto tcp redirect to :15001
}}
}}
"""
"""The rules that the CNI plugin adds to pods that a ztunnel serves."""
KILLS = 3

Rules = list[dict[str, Any]]


def _from(**source: Any) -> dict[str, Any]:
    return {"from": [{"source": source}]}


def _to(**operation: Any) -> dict[str, Any]:
    return {"to": [{"operation": operation}]}


POLICIES: dict[str, tuple[str, Rules, bool]] = {
    "ALLOW the caller": ("ALLOW", [_from(principals=[CALLER])], True),
    "ALLOW another caller": ("ALLOW", [_from(principals=["cluster.local/ns/x/sa/y"])], False),
    "ALLOW nobody": ("ALLOW", [], False),
    "ALLOW a prefix of principals": ("ALLOW", [_from(principals=[f"cluster.local/ns/{AREA}/*"])], True),
    "ALLOW the namespace": ("ALLOW", [_from(namespaces=[AREA])], True),
    "ALLOW another namespace": ("ALLOW", [_from(namespaces=["x"])], False),
    "ALLOW all but the caller": ("ALLOW", [_from(notPrincipals=[CALLER])], False),
    "ALLOW the port": ("ALLOW", [_to(ports=["8080"])], True),
    "ALLOW another port": ("ALLOW", [_to(ports=["9090"])], False),
    "ALLOW a method, which a ztunnel cannot see": ("ALLOW", [_to(methods=["GET"])], False),
    "DENY the caller": ("DENY", [_from(principals=[CALLER])], False),
    "DENY another namespace": ("DENY", [_from(namespaces=["x"])], True),
    "DENY the port except for the namespace": ("DENY", [_from(notNamespaces=[AREA]) | _to(ports=["8080"])], True),
    "DENY the addresses of pods": ("DENY", [_from(ipBlocks=["10.80.0.0/16"])], False),
}
"""Policies of the callee: action, rules, and whether they admit the caller."""


async def run_ambient(box: Box) -> AsyncIterator[str]:
    """Call services through ztunnels, with policies, through a waypoint, and without the control plane."""
    if not find_beside("ztunnel"):
        yield "ztunnel is not here: not tried"
        return
    build_programs()
    files = [word for file in definitions("standard") for word in ("-f", file)]
    await box.kubectl("apply", "--server-side", *files)
    settings = (f"values.pilot.image={IMAGE}", "values.pilot.env.PILOT_ENABLE_AMBIENT=true")
    await box.command("pilotctl", "install", "-y", *(word for setting in settings for word in ("--set", setting)))
    await box.apply(namespace(AREA), namespace("plain"), echo("plain", "visitor"))
    for name in ("front", "books"):
        await box.apply(_workload(name))
    await box.wait_available(AREA, "front", "books")
    yield await _tunnel(box)
    yield await _strict(box)
    yield await _policies(box)
    yield await _waypoint(box)
    yield await _kill(box)


def _workload(name: str) -> str:
    """Return the manifests of an `echo` whose pods have a ztunnel."""
    plain = json.loads(echo(AREA, name, annotations={"ambient.istio.io/redirection": "enabled"}))
    (pod,) = [item["spec"]["template"]["spec"] for item in plain["items"] if item["kind"] == "Deployment"]
    script = f"printf %s '{REDIRECTION}' | nft -f -"
    network = {"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}}
    pod["initContainers"] = [
        {"name": "redirection", "image": "echo", "command": ["sh", "-c", script], "securityContext": network}
    ]
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "INSTANCE_IP": "status.podIP",
        "NODE_NAME": "spec.nodeName",
    }
    istiod = f"istiod.{SYSTEM}.svc:15012"
    values = {
        "PROXY_MODE": "dedicated",
        "PROXY_WORKLOAD_INFO": f"{AREA}/$(POD_NAME)/{name}",
        "CA_ADDRESS": istiod,
        "XDS_ADDRESS": istiod,
        "ENABLE_ORIG_SRC": "false",
        "SERVICE_ACCOUNT": name,
    }
    variables = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    variables += [{"name": key, "value": value} for key, value in values.items()]
    mounts = [
        {"name": "root", "mountPath": "/var/run/secrets/istio"},
        {"name": "token", "mountPath": "/var/run/secrets/tokens"},
    ]
    ready = {"httpGet": {"path": "/healthz/ready", "port": 15021}, "periodSeconds": 1}
    ztunnel = {
        "name": "ztunnel",
        "image": "ztunnel",
        "args": ["proxy", "ztunnel"],
        "env": variables,
        "volumeMounts": mounts,
        "readinessProbe": ready,
    }
    pod["containers"].append(ztunnel | {"securityContext": {"runAsUser": PROXY_USER}})
    token = {"serviceAccountToken": {"audience": "istio-ca", "expirationSeconds": 43200, "path": "istio-token"}}
    pod["volumes"] = [
        {"name": "root", "configMap": {"name": "istio-ca-root-cert"}},
        {"name": "token", "projected": {"sources": [token]}},
    ]
    return objects(*plain["items"])


async def _tunnel(box: Box) -> str:
    await call_until(box, "front", URL, area=AREA)
    metrics = await box.run_in(AREA, "books", "curl", "-sS", "http://127.0.0.1:15020/metrics", container="ztunnel")
    secured = [
        line
        for line in metrics.splitlines()
        if line.startswith("istio_tcp_connections_opened_total") and 'connection_security_policy="mutual_tls"' in line
    ]
    assert any(f'source_principal="spiffe://{CALLER}"' in line for line in secured), secured
    status = await box.command("pilotctl", "proxy-status")
    (row,) = [line.split() for line in status.splitlines() if line.startswith("books-")]
    assert "ztunnel" in row, status
    return "a request passes two ztunnels, with mutual TLS and the identity of the caller; `pilotctl proxy-status` lists both"


async def _refused(box: Box, source: str, url: str, area: str) -> bool:
    try:
        await call(box, source, url, area=area)
    except CommandFailed:
        return True
    return False


async def _strict(box: Box) -> str:
    url = f"http://books.{AREA}/plain"
    await call_until(box, "visitor", url, area="plain")
    await box.apply(objects(istio("security", "PeerAuthentication", "default", AREA, {"mtls": {"mode": "STRICT"}})))
    await box.until(lambda: _refused(box, "visitor", url, "plain"), 30, "plaintext is refused")
    await call(box, "front", URL, area=AREA)
    return "STRICT refuses plaintext from a pod without ztunnel"


async def _policies(box: Box) -> str:
    """Apply each policy in turn."""
    for name, (action, rules, admits) in POLICIES.items():
        spec = {"selector": {"matchLabels": {"app": "books"}}, "action": action, "rules": rules}
        await box.apply(objects(istio("security", "AuthorizationPolicy", "variant", AREA, spec)))
        await box.command("pilotctl", "wait", "authorizationpolicy/variant", f"-n{AREA}", "--timeout=30s")
        assert await _refused(box, "front", URL, AREA) is not admits, name
    await box.kubectl("delete", "authorizationpolicy/variant", f"-n{AREA}")
    await call_until(box, "front", URL, area=AREA)
    return f"{len(POLICIES)} variants of policies admit and refuse once `pilotctl wait` says that they are delivered"


async def _waypoint(box: Box) -> str:
    """Deploy a waypoint, use it for a service, and let it route and authorize requests."""
    await box.command("pilotctl", "waypoint", "apply", f"-n{AREA}", "--wait")
    await box.kubectl("label", "service/books", f"-n{AREA}", "istio.io/use-waypoint=waypoint")
    target = {"group": "", "kind": "Service", "name": "books"}
    header = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-way", "value": "point"}]}}
    rule = {"filters": [header], "backendRefs": [{"name": "books", "port": 80}]}
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "books", "namespace": AREA},
        "spec": {"parentRefs": [target], "rules": [rule]},
    }
    reading = {"targetRefs": [target], "rules": [_from(principals=[CALLER]) | _to(methods=["GET"])]}
    await box.apply(objects(route, istio("security", "AuthorizationPolicy", "reading", AREA, reading)))

    async def is_routed() -> bool:
        return (await call(box, "front", URL, area=AREA))["headers"].get("x-way") == "point"

    await box.until(is_routed, 60, "the waypoint routes requests")
    with pytest.raises(CommandFailed, match="403"):
        await call(box, "front", URL, "-XDELETE", area=AREA)
    return "a waypoint that `pilotctl waypoint apply` makes routes requests to a service, and admits GET only"


async def _kill(box: Box) -> str:
    async with load_on(box, "front", URL, AREA) as load:
        for _ in range(KILLS):
            for container in (c for runner in box.kubelet.find(SYSTEM, "istiod") for c in runner.main):
                container.signal(signal.SIGKILL)
            await asyncio.sleep(10)
        await box.wait_available(SYSTEM, "istiod")
    return f"istiod killed {KILLS} times: {load.requests} requests, 0 failures"
