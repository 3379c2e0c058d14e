"""What the control plane does on a real API server, by KUBECONFIG: three replicas with the rights of deploy/, webhooks called by the server,
one replica killed, tokens reviewed.

    KUBECONFIG=… python bench/on_kubernetes.py

kubectl must be on the PATH, and the server one that nobody needs: everything in deploy/manifests is applied to it, with webhooks that point at this
machine. It needs no controllers and no kubelet. A line is printed for each thing that was seen; the exit status is 1 where one was not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from pilot.kube.leader_lock import LEADER_ANNOTATION  # noqa: E402
from testing.clients.secure_client import create_certificate, secure_channel, uris  # noqa: E402
from testing.processes.process import Process, eventually, free_port  # noqa: E402
from testing.tables.invalid_objects import load_invalid_objects  # noqa: E402

SYSTEM = "istio-system"
FLAGS = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
LOCKS = ("istio-namespace-controller-election", "istio-ip-autoallocate", "istio-leader")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {containers: [{name: web, image: "example.com/web:1"}]}
"""
ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec: {hosts: [%s.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
"""


def kubectl(*words: str, text: str = "", wanted: int | None = 0) -> str:
    """Return what kubectl says; AssertionError where its exit status is not the wanted one."""
    done = subprocess.run(["kubectl", *words], input=text or None, capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    assert wanted is None or done.returncode == wanted, f"kubectl {' '.join(words)}: {said[-500:]}"
    return done.stdout if done.returncode == 0 else said


def get(*words: str) -> Any:
    return json.loads(kubectl("get", *words, "-o", "json"))


class Seen:
    """Prints what was seen, and remembers what was not."""

    def __init__(self) -> None:
        self.missed = 0

    def check(self, what: str, look: Callable[[], Any], seconds: float = 30) -> None:
        """Wait until `look` returns something that is true, and prints it."""
        began = time.monotonic()
        try:
            found = eventually(look, seconds, what)
        except AssertionError as error:
            self.missed += 1
            print(f"MISS {what}: {str(error)[-300:]}", flush=True)
            return
        print(f"ok   {what:78} {time.monotonic() - began:5.1f} s  {found if found is not True else ''}", flush=True)


def install(port: int) -> None:
    """Apply deploy/manifests, with webhooks that point at a port of this machine."""
    kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        "-",
        text=f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SYSTEM}}}\n",
    )
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        kubectl("delete", kind, "--all")
    for name in ("1-base.yaml", "2-istiod.yaml"):
        objects = [plain for plain in yaml.safe_load_all((ROOT / "deploy/manifests" / name).read_text()) if plain]
        for plain in objects:
            for webhook in plain.get("webhooks", ()):
                path = webhook["clientConfig"].pop("service")["path"]
                webhook["clientConfig"]["url"] = f"https://localhost:{port}{path}"
                if plain["kind"].startswith("Validating"):
                    webhook["failurePolicy"] = "Ignore"
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=yaml.safe_dump_all(objects))
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    for account in (f"{SYSTEM} istiod", "shop default", "default default"):
        namespace, name = account.split()
        kubectl("create", "namespace", namespace, wanted=None)
        kubectl(
            "label", "namespace", namespace, "istio-injection=enabled" if namespace == "shop" else "a=b", "--overwrite"
        )
        kubectl("-n", namespace, "create", "serviceaccount", name, wanted=None)


def account_config(folder: pathlib.Path) -> pathlib.Path:
    """Return a kubeconfig with the control plane's own service account, so that it has the rights of its roles alone."""
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    token = kubectl("-n", SYSTEM, "create", "token", "istiod", "--duration=1h").strip()
    config["users"][0]["user"] = {"token": token}
    path = folder / "istiod.kubeconfig"
    path.write_text(json.dumps(config))
    return path


class Replica(Process):
    """A control plane with the variables that its Deployment gives it."""

    def __init__(self, name: str, kubeconfig: pathlib.Path, folder: pathlib.Path, https: int) -> None:
        self.name, self.ports = name, {flag: https if flag == "httpsAddr" else free_port() for flag in FLAGS}
        flags = [f"--{flag}=127.0.0.1:{port}" for flag, port in self.ports.items()]
        command = [
            sys.executable,
            "-m",
            "pilot.cli.pilot_discovery",
            "discovery",
            f"--kubeconfig={kubeconfig}",
            "--ctrlz_port=0",
            *flags,
        ]
        variables = {
            "POD_NAME": name,
            "POD_NAMESPACE": SYSTEM,
            "ISTIOD_CUSTOM_HOST": "localhost",
            "PILOT_ENABLE_ANALYSIS": "true",
        }
        super().__init__(command, folder / f"{name}.log", environ=variables, folder=ROOT)


def holders() -> dict[str, str]:
    """Return who holds each lock."""
    found = {lock: get("-n", SYSTEM, "configmap", lock) for lock in LOCKS}
    return {
        lock: json.loads(each["metadata"]["annotations"][LEADER_ANNOTATION])["holderIdentity"]
        for lock, each in found.items()
    }


def look_at_webhooks(seen: Seen) -> None:
    """Has the server ask /inject and /validate."""
    bundle = "jsonpath={.webhooks[*].clientConfig.caBundle}"
    injector = ("get", "mutatingwebhookconfiguration", "istio-sidecar-injector")
    seen.check("the roots are in the webhooks for injection", lambda: len(kubectl(*injector, "-o", bundle)) > 100)
    policy = "jsonpath={.webhooks[*].failurePolicy}"
    name = f"istio-validator-{SYSTEM}"
    seen.check(
        "the webhook for validation fails closed",
        lambda: kubectl("get", "validatingwebhookconfiguration", name, "-o", policy) == "Fail",
    )

    def injected() -> str:
        pod = json.loads(kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", text=POD))
        return ", ".join(c["name"] for key in ("initContainers", "containers") for c in pod["spec"].get(key, ()))

    seen.check("a pod that is created has a proxy", lambda: injected() if "istio-proxy" in injected() else "")
    refused = {"by the webhook": 0, "by a schema": 0, "warned of": 0}
    wrong, in_place = 0, 0
    for bad in load_invalid_objects():
        if not re.search(r"^apiVersion: \S*istio\.io/", bad.text, re.M):
            continue
        wrong += 1
        said = kubectl("create", "--dry-run=server", "-f", "-", text=bad.text, wanted=None)
        how = (
            "by the webhook"
            if "denied the request" in said
            else "by a schema"
            if "error" in said.lower() or "invalid" in said
            else "warned of"
        )
        refused[how] += 1
        in_place += bad.path.replace("[", ".[").split(".")[-1].strip("[]") in said
    print(f"ok   of {wrong} wrong objects refused: {refused}, the path is in the answer to {in_place}", flush=True)


def look_at_elections(seen: Seen, replicas: list[Replica]) -> None:
    """Kill the replica that leads, and looks for another one that does its work."""
    kubectl("apply", "-f", "-", text=ENTRY % ("before", "before"))
    seen.check(
        "the leader allocates addresses",
        lambda: get("-n", "shop", "serviceentry", "before").get("status", {}).get("addresses"),
    )
    seen.check("the leader writes roots", lambda: bool(get("-n", "shop", "configmap", "istio-ca-root-cert")["data"]))
    leader = holders()["istio-ip-autoallocate"]
    killed = next(replica for replica in replicas if replica.name == leader)
    killed.child.kill()
    killed.child.wait()
    kubectl("apply", "-f", "-", text=ENTRY % ("after", "after"))
    seen.check(
        f"after {leader} was killed another one leads",
        lambda: (h := holders()["istio-ip-autoallocate"]) != leader and h,
        90,
    )
    seen.check(
        "and allocates addresses",
        lambda: get("-n", "shop", "serviceentry", "after").get("status", {}).get("addresses"),
        90,
    )


async def look_at_tokens(seen: Seen, port: int) -> None:
    """Has the server review tokens of a workload."""
    roots = get("-n", "shop", "configmap", "istio-ca-root-cert")["data"]["root-cert.pem"].encode()
    right = kubectl("-n", "shop", "create", "token", "default", "--audience=istio-ca").strip()
    other = kubectl("-n", "shop", "create", "token", "default", "--audience=somebody-else").strip()
    async with secure_channel(port, roots) as channel:
        names = uris((await create_certificate(channel, right))[0])
        seen.check("a workload's token gets a certificate", lambda: names)
        for what, token in (("a token for somebody else", other), ("no token", ""), ("nonsense", "a.b.c")):
            code = None
            with contextlib.suppress(grpc.aio.AioRpcError):
                try:
                    await create_certificate(channel, token)
                except grpc.aio.AioRpcError as error:
                    code = error.code().name
                    raise
            seen.check(f"{what} gets none", lambda code=code: code, 0.2)  # type: ignore[misc]


@contextlib.contextmanager
def three(seen: Seen, folder: pathlib.Path, https: int) -> Iterator[list[Replica]]:
    """Yield three replicas that are ready. The second one is there before the others and leads; the first one answers webhooks."""
    config, replicas = account_config(folder), list[Replica]()
    try:
        for name, port in (("istiod-1", free_port()), ("istiod-0", https), ("istiod-2", free_port())):
            replica = Replica(name, config, folder, port)
            replicas.append(replica)
            seen.check(f"{name} is ready", lambda r=replica: r.check_alive() or _ready(r.ports["httpAddr"]), 120)  # type: ignore[misc]
            if len(replicas) == 1:
                seen.check("one replica holds each lock", lambda: set(holders().values()) == {"istiod-1"})
        yield sorted(replicas, key=lambda replica: replica.name)
    finally:
        for replica in replicas:
            replica.stop()
            for line in re.findall(r"^.*\berror\b.*$", replica.log.read_text(errors="replace"), re.M)[:20]:
                print(f"log  {replica.name}: {line[:300]}")


def main() -> int:
    assert os.environ.get("KUBECONFIG"), "KUBECONFIG names the API server"
    seen, https = Seen(), free_port()
    with tempfile.TemporaryDirectory() as place:
        install(https)
        with three(seen, pathlib.Path(place), https) as replicas:
            look_at_webhooks(seen)
            asyncio.run(look_at_tokens(seen, replicas[0].ports["secureGRPCAddr"]))
            look_at_elections(seen, replicas)
    return 1 if seen.missed else 0


def _ready(port: int) -> bool:
    done = subprocess.run(["curl", "-sf", "-o", os.devnull, f"http://127.0.0.1:{port}/ready"], timeout=10)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
