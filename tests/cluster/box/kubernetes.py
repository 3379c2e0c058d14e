"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler as child processes."""

from __future__ import annotations

import base64
import pathlib
import secrets
import shutil

import yaml

from testing.processes.process import Process
from tests.cluster.box.addresses import API_PORT, DOMAIN, KUBERNETES, NODE, NUMBER, SERVICES
from tests.cluster.box.authority import Authority, write_account_key
from tests.cluster.box.programs import find

ETCD = "http://127.0.0.1:2379"
API_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", KUBERNETES, NODE)
CONTROLLERS = "*,-node-lifecycle-controller,-node-ipam-controller,-ttl-controller"
"""Nodes have no heartbeats, so their lifecycle must not end their pods."""
PROCESSES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class Kubernetes:
    """The control plane of the cluster. `kubeconfig` has the rights of an administrator."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.processes = folder, dict[str, Process]()
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder)
        self._account_key = write_account_key(folder / "accounts.key")
        self.token = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(self._kubeconfig())

    def start(self) -> None:
        """Start all processes. They wait for each other."""
        for name in PROCESSES:
            self.start_one(name)

    def start_one(self, name: str) -> None:
        """Start one process, again if it was stopped."""
        arguments = {
            "etcd": self._etcd,
            "kube-apiserver": self._api_server,
            "kube-controller-manager": self._controllers,
            "kube-scheduler": self._scheduler,
        }[name]()
        self.processes[name] = Process([find(name), *arguments], self.folder / f"{name}.log")

    def stop_one(self, name: str) -> None:
        """Stop one process at once."""
        self.processes[name].child.kill()
        self.processes[name].child.wait()

    def stop(self) -> None:
        """Stop all processes."""
        for name in reversed(self.processes):
            self.stop_one(name)

    def back_up(self) -> None:
        """Copy the data of etcd, which stops for a moment."""
        self.stop_one("etcd")
        shutil.copytree(self.folder / "etcd", self.folder / "backup")
        self.start_one("etcd")

    def restore(self) -> None:
        """Restore the data of etcd, and restart all processes."""
        self.stop()
        shutil.rmtree(self.folder / "etcd")
        (self.folder / "backup").rename(self.folder / "etcd")
        self.start()

    def _etcd(self) -> list[str]:
        return [
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=error",
        ]

    def _api_server(self) -> list[str]:
        certificate, key = self.authority.issue("apiserver", API_NAMES)
        return [
            f"--etcd-servers={ETCD}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--advertise-address={NODE}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--token-auth-file={self.folder}/tokens.csv",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            f"--service-account-key-file={self._account_key}",
            f"--service-account-signing-key-file={self._account_key}",
            "--authorization-mode=RBAC",
            "--allow-privileged",
            "--disable-admission-plugins=TaintNodesByCondition",
        ]

    def _controllers(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self._account_key}",
            f"--root-ca-file={self.authority.certificate}",
            f"--cluster-signing-cert-file={self.authority.certificate}",
            f"--cluster-signing-key-file={self.authority.key}",
            f"--controllers={CONTROLLERS}",
            "--leader-elect=false",
        ]

    def _scheduler(self) -> list[str]:
        return [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"]

    def _kubeconfig(self) -> str:
        authority = base64.b64encode(self.authority.certificate.read_bytes()).decode()
        cluster = {"server": f"https://{NODE}:{API_PORT}", "certificate-authority-data": authority}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "box",
                "clusters": [{"name": "box", "cluster": cluster}],
                "users": [{"name": "box", "user": {"token": self.token}}],
                "contexts": [{"name": "box", "context": {"cluster": "box", "user": "box"}}],
            }
        )


def node(name: str) -> dict[str, object]:
    """Return a Node. All nodes have the same address and the same kubelet."""
    size = {"cpu": "64", "memory": "64Gi", "pods": "250", "ephemeral-storage": "100Gi"}
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/region": f"region-{NUMBER}",
        "topology.kubernetes.io/zone": f"zone-of-{name}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": size,
            "allocatable": size,
            "addresses": [{"type": "InternalIP", "address": NODE}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": dict.fromkeys(
                (
                    "machineID",
                    "systemUUID",
                    "bootID",
                    "kernelVersion",
                    "osImage",
                    "containerRuntimeVersion",
                    "kubeletVersion",
                    "kubeProxyVersion",
                    "operatingSystem",
                    "architecture",
                ),
                "box",
            ),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    }
