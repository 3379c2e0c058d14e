"""Check the control plane with a real API server: three replicas with the permissions of deploy/, webhooks, leader
election, and token reviews.

    KUBECONFIG=… python bench/on_kubernetes.py

kubectl must be on the PATH. Use a disposable server: everything in deploy/manifests is applied to it, with webhooks
that point to this machine. It needs no controllers and no kubelet. One line is printed for each check. The exit status
is 1 if a check fails.
"""

from __future__ import annotations

import argparse
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


def kubectl(*words: str, text: str = "", expected: int | None = 0) -> str:
    """Run kubectl and return its output. Raise AssertionError if the exit status is not the expected one."""
    result = subprocess.run(["kubectl", *words], input=text or None, capture_output=True, text=True, timeout=120)
    output = result.stdout + result.stderr
    assert expected is None or result.returncode == expected, f"kubectl {' '.join(words)}: {output[-500:]}"
    return result.stdout if result.returncode == 0 else output


def get(*words: str) -> Any:
    return json.loads(kubectl("get", *words, "-o", "json"))


class Checks:
    """Prints the result of each check, and counts failures."""

    def __init__(self) -> None:
        self.failures = 0

    def check(self, title: str, probe: Callable[[], Any], seconds: float = 30) -> None:
        """Wait until `probe` returns a true result, and print it."""
        started = time.monotonic()
        try:
            result = eventually(probe, seconds, title)
        except AssertionError as error:
            self.failures += 1
            print(f"FAIL {title}: {str(error)[-300:]}", flush=True)
            return
        print(
            f"ok   {title:78} {time.monotonic() - started:5.1f} s  {result if result is not True else ''}", flush=True
        )


def install(port: int) -> None:
    """Apply deploy/manifests, with webhooks that point to a port of this machine."""
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
        kubectl("create", "namespace", namespace, expected=None)
        kubectl(
            "label", "namespace", namespace, "istio-injection=enabled" if namespace == "shop" else "a=b", "--overwrite"
        )
        kubectl("-n", namespace, "create", "serviceaccount", name, expected=None)


def account_config(folder: pathlib.Path) -> pathlib.Path:
    """Write a kubeconfig for the control plane's service account, which only has the permissions of its roles."""
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    token = kubectl("-n", SYSTEM, "create", "token", "istiod", "--duration=1h").strip()
    config["users"][0]["user"] = {"token": token}
    path = folder / "istiod.kubeconfig"
    path.write_text(json.dumps(config))
    return path


class Replica(Process):
    """A control plane with the environment variables of its Deployment."""

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
    """Return the holder of each lock."""
    config_maps = {lock: get("-n", SYSTEM, "configmap", lock) for lock in LOCKS}
    return {
        lock: json.loads(config_map["metadata"]["annotations"][LEADER_ANNOTATION])["holderIdentity"]
        for lock, config_map in config_maps.items()
    }


def check_webhooks(checks: Checks) -> None:
    """Check that the API server calls /inject and /validate."""
    bundle = "jsonpath={.webhooks[*].clientConfig.caBundle}"
    injector = ("get", "mutatingwebhookconfiguration", "istio-sidecar-injector")
    checks.check("injection webhooks have the root certificates", lambda: len(kubectl(*injector, "-o", bundle)) > 100)
    policy = "jsonpath={.webhooks[*].failurePolicy}"
    name = f"istio-validator-{SYSTEM}"
    checks.check(
        "the validation webhook fails closed",
        lambda: kubectl("get", "validatingwebhookconfiguration", name, "-o", policy) == "Fail",
    )

    def injected() -> str:
        pod = json.loads(kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", text=POD))
        return ", ".join(c["name"] for key in ("initContainers", "containers") for c in pod["spec"].get(key, ()))

    checks.check("a created Pod has a proxy", lambda: injected() if "istio-proxy" in injected() else "")
    rejections = {"by the webhook": 0, "by a schema": 0, "only warned": 0}
    total, with_path = 0, 0
    for invalid in load_invalid_objects():
        if not re.search(r"^apiVersion: \S*istio\.io/", invalid.text, re.M):
            continue
        total += 1
        output = kubectl("create", "--dry-run=server", "-f", "-", text=invalid.text, expected=None)
        outcome = (
            "by the webhook"
            if "denied the request" in output
            else "by a schema"
            if "error" in output.lower() or "invalid" in output
            else "only warned"
        )
        rejections[outcome] += 1
        with_path += invalid.path.replace("[", ".[").split(".")[-1].strip("[]") in output
    print(f"ok   {total} invalid objects rejected: {rejections}, {with_path} with the path of the error", flush=True)


def check_elections(checks: Checks, replicas: list[Replica]) -> None:
    """Kill the leader, and check that another replica takes over."""
    kubectl("apply", "-f", "-", text=ENTRY % ("before", "before"))
    checks.check(
        "the leader allocates addresses",
        lambda: get("-n", "shop", "serviceentry", "before").get("status", {}).get("addresses"),
    )
    checks.check(
        "the leader writes root certificates",
        lambda: bool(get("-n", "shop", "configmap", "istio-ca-root-cert")["data"]),
    )
    leader = holders()["istio-ip-autoallocate"]
    leading = next(replica for replica in replicas if replica.name == leader)
    leading.child.kill()
    leading.child.wait()
    kubectl("apply", "-f", "-", text=ENTRY % ("after", "after"))
    checks.check(
        f"another replica leads after {leader} is killed",
        lambda: (h := holders()["istio-ip-autoallocate"]) != leader and h,
        90,
    )
    checks.check(
        "the new leader allocates addresses",
        lambda: get("-n", "shop", "serviceentry", "after").get("status", {}).get("addresses"),
        90,
    )


async def check_tokens(checks: Checks, port: int) -> None:
    """Check that the API server reviews workload tokens."""
    roots = get("-n", "shop", "configmap", "istio-ca-root-cert")["data"]["root-cert.pem"].encode()
    valid = kubectl("-n", "shop", "create", "token", "default", "--audience=istio-ca").strip()
    other = kubectl("-n", "shop", "create", "token", "default", "--audience=other").strip()
    async with secure_channel(port, roots) as channel:
        names = uris((await create_certificate(channel, valid))[0])
        checks.check("a certificate is issued for a workload's token", lambda: names)
        for title, token in (("a token for another audience", other), ("no token", ""), ("an invalid token", "a.b.c")):
            code = None
            with contextlib.suppress(grpc.aio.AioRpcError):
                try:
                    await create_certificate(channel, token)
                except grpc.aio.AioRpcError as error:
                    code = error.code().name
                    raise
            checks.check(f"no certificate is issued for {title}", lambda code=code: code, 0.2)  # type: ignore[misc]


@contextlib.contextmanager
def three_replicas(checks: Checks, folder: pathlib.Path, https: int) -> Iterator[list[Replica]]:
    """Yield three ready replicas. The second one starts first and leads; the first one serves the webhooks."""
    config, replicas = account_config(folder), list[Replica]()
    try:
        for name, port in (("istiod-1", free_port()), ("istiod-0", https), ("istiod-2", free_port())):
            replica = Replica(name, config, folder, port)
            replicas.append(replica)
            checks.check(f"{name} is ready", lambda r=replica: r.check_alive() or _ready(r.ports["httpAddr"]), 120)  # type: ignore[misc]
            if len(replicas) == 1:
                checks.check("one replica holds each lock", lambda: set(holders().values()) == {"istiod-1"})
        yield sorted(replicas, key=lambda replica: replica.name)
    finally:
        for replica in replicas:
            replica.stop()
            for line in re.findall(r"^.*\berror\b.*$", replica.log.read_text(errors="replace"), re.M)[:20]:
                print(f"log  {replica.name}: {line[:300]}")


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    assert os.environ.get("KUBECONFIG"), "set KUBECONFIG to the kubeconfig of the API server"
    checks, https = Checks(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        install(https)
        with three_replicas(checks, pathlib.Path(folder), https) as replicas:
            check_webhooks(checks)
            asyncio.run(check_tokens(checks, replicas[0].ports["secureGRPCAddr"]))
            check_elections(checks, replicas)
    return 1 if checks.failures else 0


def _ready(port: int) -> bool:
    result = subprocess.run(["curl", "-sf", "-o", os.devnull, f"http://127.0.0.1:{port}/ready"], timeout=10)
    return result.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
