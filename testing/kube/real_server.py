"""A real API server and etcd, from binaries in a folder, for programs in bench/."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import yaml

from testing.processes.process import Process, eventually, free_port

ADMIN, READER = "bench-admin", "bench-reader"
"""Tokens, which are also the names of their users."""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class RealApiServer:
    """kube-apiserver with etcd. It has no controllers, accepts the tokens above, and permits everything.

    Every request is logged in `audit_log`.
    """

    def __init__(self, binaries: pathlib.Path, folder: pathlib.Path) -> None:
        self._folder = folder
        self.audit_log = folder / "audit.log"
        self._port, etcd_port, peer_port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        etcd = f"http://127.0.0.1:{etcd_port}"
        self._etcd = Process(
            [
                str(binaries / "etcd"),
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                "--unsafe-no-fsync",
            ],
            folder / "etcd.log",
        )
        (folder / "audit.yaml").write_text(yaml.safe_dump(_AUDIT_POLICY))
        (folder / "tokens.csv").write_text(
            "".join(f"{name},{name},{name},system:masters\n" for name in (ADMIN, READER))
        )
        key = folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        self._server = Process(
            [
                str(binaries / "kube-apiserver"),
                f"--etcd-servers={etcd}",
                f"--secure-port={self._port}",
                "--bind-address=127.0.0.1",
                f"--cert-dir={folder / 'certificates'}",
                "--authorization-mode=AlwaysAllow",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
                "--disable-admission-plugins=ServiceAccount,MutatingAdmissionWebhook,ValidatingAdmissionWebhook",
                f"--audit-policy-file={folder / 'audit.yaml'}",
                f"--audit-log-path={self.audit_log}",
            ],
            folder / "apiserver.log",
        )

    def wait_ready(self) -> None:
        """Wait until the server accepts objects."""

        def ready() -> bool:
            self._server.check_alive()
            self._etcd.check_alive()
            options = ["-sk", "-H", f"Authorization: Bearer {ADMIN}"]
            result = subprocess.run(["curl", *options, f"{self.url}/readyz"], capture_output=True, text=True)
            return result.stdout == "ok"

        eventually(ready, 90, "API server ready")

    def kubeconfig(self, token: str = ADMIN) -> pathlib.Path:
        """Write a kubeconfig with a token, and return its path."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "bench", "user": {"token": token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        }
        path = self._folder / f"{token}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def requests(self, user: str) -> Iterator[dict[str, Any]]:
        """Yield the audited requests of a user."""
        for line in self.audit_log.read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == user:
                yield event

    def stop(self) -> None:
        self._server.stop()
        self._etcd.stop()
