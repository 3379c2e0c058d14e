"""pilot-agent and its Envoy as processes, as in a pod without capabilities."""

from __future__ import annotations

import ctypes
import json
import pathlib
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from testing.processes.process import Process, envoy_binary
from testing.security.tokens import token

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PR_CAPBSET_DROP, LAST_CAPABILITY = 24, 63
_libc = ctypes.CDLL(None)


def drop_capabilities() -> None:
    """Drop all capabilities for programs executed later. For `preexec_fn`."""
    for capability in range(LAST_CAPABILITY):
        _libc.prctl(PR_CAPBSET_DROP, capability)


class Sidecar(Process):
    """The agent of a service account at an address, and its Envoy. The folder stands for the pod's file system."""

    def __init__(
        self,
        folder: pathlib.Path,
        account: str,
        ip: str,
        discovery: str,
        roots: bytes,
        namespace: str = "shop",
        join: Callable[[], None] = lambda: None,
        config: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        kind: str = "sidecar",
        program: list[str] | None = None,
    ) -> None:
        folder.mkdir()
        mounted = folder / "var" / "run" / "secrets"
        (mounted / "tokens").mkdir(parents=True)
        (mounted / "istio").mkdir()
        (mounted / "tokens" / "istio-token").write_text(token(namespace, account))
        (mounted / "istio" / "root-cert.pem").write_bytes(roots)
        pod = folder / "etc" / "istio" / "pod"
        pod.mkdir(parents=True)
        (pod / "labels").write_text(f'app="{account}"\nsecurity.istio.io/tlsMode="istio"\n')
        (pod / "annotations").write_text("")
        self.admin = f"127.0.0.1:{(config or {}).get('proxyAdminPort', 15000)}"
        self.status = f"127.0.0.1:{(config or {}).get('statusPort', 15020)}"
        proxy_config = {
            "discoveryAddress": discovery,
            "binaryPath": envoy_binary(),
            "concurrency": 1,
            "terminationDrainDuration": "1s",
            **(config or {}),
        }
        variables = {
            "PYTHONPATH": str(REPOSITORY),
            "PROXY_CONFIG": json.dumps(proxy_config),
            "POD_NAME": f"{account}-0",
            "POD_NAMESPACE": namespace,
            "SERVICE_ACCOUNT": account,
            "INSTANCE_IP": ip,
            "ISTIOD_SAN": "istiod.istio-system.svc",
            "ISTIO_META_CLUSTER_ID": "Kubernetes",
            "ECC_SIGNATURE_ALGORITHM": "ECDSA",
            **(environ or {}),
        }

        def enter() -> None:
            join()
            drop_capabilities()

        command = program or [sys.executable, "-m", "pilot.cli.pilot_agent"]
        super().__init__(
            [*command, "proxy", kind, "--proxyLogLevel", "warning"], folder / "agent.log", enter, variables, folder
        )

    def get(self, path: str, address: str = "") -> str:
        """Return a response of Envoy's admin port or another port of the pod. Call it from the pod's network."""
        with urllib.request.urlopen(f"http://{address or self.admin}{path}", timeout=10) as response:
            body: bytes = response.read()
            return body.decode()

    def ready(self) -> bool:
        self.check_alive()
        try:
            self.get("/healthz/ready", self.status)
        except urllib.error.HTTPError:
            return False
        return True

    def stats(self, pattern: str) -> dict[str, int]:
        """Return counters and gauges whose name matches a regular expression."""
        lines = (line.rpartition(": ") for line in self.get(f"/stats?filter={pattern}").splitlines())
        return {name: int(value) for name, _, value in lines if value.isdigit()}
