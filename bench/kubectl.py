"""Run kubectl with everything in deploy/ against the API server of the tests: dry run, apply, get, describe, delete.

    python bench/kubectl.py            kubectl must be on the PATH (Debian: kubernetes-client)

One line is printed for each manifest and command. The exit status is 1 if a command fails. Invalid objects must be
rejected.
"""

from __future__ import annotations

import argparse
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


def run(title: str, *words: str, text: str = "", expected: int = 0) -> bool:
    """Run kubectl and print the result. Return whether the exit status is the expected one."""
    result = subprocess.run(["kubectl", *words], input=text or None, capture_output=True, text=True, timeout=120)
    is_expected = result.returncode == expected
    lines = (result.stderr or result.stdout).strip().splitlines()
    last = lines[-1][:120] if lines and (not is_expected or expected) else ""
    print(
        f"{'ok  ' if is_expected else 'FAIL'} {title:60} {len(result.stdout.splitlines()):5} lines {last}", flush=True
    )
    return is_expected


def check(name: str, text: str) -> bool:
    """Run all commands with the objects of a manifest. Return whether all succeeded."""
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
    """Run all commands. Return whether all succeeded."""
    manifests = {path.stem: path.read_text() for path in sorted((ROOT / "deploy/manifests").glob("*.yaml"))}
    results = [check(name, text) for name, text in manifests.items()]
    results += [
        run("get namespaced objects", "-n", "istio-system", "get", KINDS),
        run("get cluster-scoped objects", "get", WIDE),
        run("apply a valid object", "apply", "--server-side", "-f", "-", text=GOOD),
        run("get by short name", "get", "se", "-A"),
        run("describe", "describe", "se", "good"),
        run("apply an invalid object (must fail)", "apply", "--server-side", "-f", "-", text=BAD, expected=1),
        run("delete", "delete", "se", "good"),
    ]
    for name, text in reversed(manifests.items()):
        results.append(run(f"{name}: delete", "delete", "--wait=false", "--ignore-not-found", "-f", "-", text=text))
    return all(results)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
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
