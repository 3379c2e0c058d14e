"""The samples work as documented. Each runs in a separate network namespace, where all ports are free."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from testing.processes.netns import Host
from testing.processes.process import Process, eventually
from testing.servers.backends import HttpResponse, send_request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHOP = ROOT / "samples" / "shop"
REVIEWS = "reviews.shop.internal"


class Sample(Process):
    """A script of the sample in a network namespace."""

    def __init__(self, script: str, folder: pathlib.Path) -> None:
        self.host = Host()
        super().__init__([sys.executable, str(SHOP / script)], folder / "sample.log", join=self.host.join)

    def open(self) -> bool:
        self.check_alive()
        return "The shop is running" in self.log.read_text()

    def ask(
        self, port: int, path: str, method: str = "GET", address: str = "127.0.0.1", **headers: str
    ) -> HttpResponse:
        return self.host.run(lambda: send_request((address, port), path, headers=headers, method=method))

    def ctl(self, *words: str) -> str:
        command = [sys.executable, "-m", "pilot.cli.pilotctl", *words]
        result = subprocess.run(
            command, preexec_fn=self.host.join, capture_output=True, text=True, timeout=60, cwd=ROOT
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the repository, as a user would."""
        variables = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run(
            command,
            shell=True,
            preexec_fn=self.host.join,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            env=variables,
        )

    def close(self) -> None:
        assert self.stop(40) in (0, 143)
        self.host.stop()


@pytest.fixture
def shop(tmp_path: pathlib.Path) -> Iterator[Sample]:
    sample = Sample("run.py", tmp_path)
    eventually(sample.open, 90, "the shop is running")
    yield sample
    sample.close()


@pytest.fixture
def secure(tmp_path: pathlib.Path) -> Iterator[Sample]:
    sample = Sample("secure.py", tmp_path)
    eventually(sample.open, 90, "the shop is running")
    yield sample
    sample.close()


def test_gateway_serves_the_shop(shop: Sample) -> None:
    assert shop.ask(8000, "/reviews", **{"x-tester": "yes"}).json["version"] == "v2"
    assert shop.ask(8000, "/catalog").status == 200
    assert shop.ask(8000, "/home").status == 301


def test_documented_commands_succeed(shop: Sample) -> None:
    commands = documented_commands()
    assert len(commands) > 20
    with ThreadPoolExecutor(4) as pool:
        failures = {
            command: result.stderr
            for command, result in zip(commands, pool.map(shop.shell, commands), strict=True)
            if result.returncode
        }
    assert failures == {}


def documented_commands() -> list[str]:
    """Return the commands after "$" in the console blocks of all pages, each once. They run against the shop."""
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)]
    return list(dict.fromkeys(line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")))


def test_mutual_tls_and_policies_between_sidecars(secure: Sample) -> None:
    assert secure.ask(9211, "/reviews", host=REVIEWS).json["version"] == "v1"
    denied = secure.ask(9211, "/reviews", method="DELETE", host=REVIEWS)
    assert (denied.status, denied.text) == (403, "RBAC: access denied")
    with pytest.raises(ConnectionError):
        secure.ask(9303, "/reviews", address="127.0.0.4")
    secrets = secure.ctl("proxy-config", "secrets", "storefront")
    assert re.search(
        r"^default\s+Cert Chain\s+ACTIVE\s+yes\s.*\sspiffe://cluster.local/ns/shop/sa/storefront$", secrets, re.M
    )
    assert re.search(r"^ROOTCA\s+CA\s+ACTIVE\s+yes\s", secrets, re.M)
    check = ("authz", "check", "reviews", "--from-principal", "cluster.local/ns/shop/sa/storefront", "--method")
    assert re.match(r"ALLOWED: .*AuthorizationPolicy shop/reviews", secure.ctl(*check, "GET"))
    assert secure.ctl(*check, "DELETE").startswith("DENIED: ")
    assert json.loads(secure.ctl("problems", "-o", "json")) == []
