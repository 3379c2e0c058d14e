"""What kubectl does with everything in deploy/, against the API server of the tests: dry run on the server, apply, get, describe, delete.

    python bench/kubectl.py            kubectl must be on the PATH (Debian: kubernetes-client)

It prints a line for each manifest and command, and exits with 1 where one failed. Objects that are wrong on purpose must be refused.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
KINDS = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,hpa"
WIDE = "crd,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations"
GOOD = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: good, namespace: default}
spec: {hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
"""
BAD = GOOD.replace("resolution: DNS", "resolution: DNS, addresses: [10.0.0.0/8]").replace("name: good", "name: bad")


def run(title: str, *words: str, text: str = "", wanted: int = 0) -> bool:
    """Run kubectl; prints what came out in a line. Returns whether the exit status was the wanted one."""
    done = subprocess.run(["kubectl", *words], input=text or None, capture_output=True, text=True, timeout=120)
    good = done.returncode == wanted
    said = (done.stderr or done.stdout).strip().splitlines()
    last = said[-1][:120] if said and (not good or wanted) else ""
    print(f"{'ok  ' if good else 'FAIL'} {title:60} {len(done.stdout.splitlines()):5} lines {last}", flush=True)
    return good


def check(name: str, text: str) -> bool:
    """Return whether kubectl can do everything with the objects of a manifest."""
    results = [
        run(
            f"{name}: apply --server-side --dry-run=server",
            "apply",
            "--server-side",
            "--dry-run=server",
            "-f",
            "-",
            text=text,
        ),
        run(f"{name}: apply --server-side", "apply", "--server-side", "-f", "-", text=text),
        run(f"{name}: apply again", "apply", "--server-side", "-f", "-", text=text),
        run(f"{name}: get", "get", "-f", "-", text=text),
        run(f"{name}: get -o yaml", "get", "-o", "yaml", "-f", "-", text=text),
        run(f"{name}: describe", "describe", "-f", "-", text=text),
    ]
    return all(results)


def everything() -> bool:
    """Return whether all of it worked."""
    manifests = {path.stem: path.read_text() for path in sorted((ROOT / "deploy/manifests").glob("*.yaml"))}
    results = [check(name, text) for name, text in manifests.items()]
    results += [
        run("get in the namespace", "-n", "istio-system", "get", KINDS),
        run("get in the cluster", "get", WIDE),
        run("a right object", "apply", "--server-side", "-f", "-", text=GOOD),
        run("get it by its short name", "get", "se", "-A"),
        run("describe it", "describe", "se", "good"),
        run("a wrong object is refused", "apply", "--server-side", "-f", "-", text=BAD, wanted=1),
        run("delete it", "delete", "se", "good"),
    ]
    for name, text in reversed(manifests.items()):
        results.append(run(f"{name}: delete", "delete", "--wait=false", "--ignore-not-found", "-f", "-", text=text))
    return all(results)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config"
        os.environ.update(KUBECONFIG=str(config), HOME=folder)
        server = subprocess.Popen([sys.executable, "-m", "testing.apiserver", str(config), "--bare"], cwd=ROOT)
        try:
            while not config.exists() and server.poll() is None:
                time.sleep(0.05)
            return 0 if everything() else 1
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
