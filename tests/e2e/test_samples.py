"""The samples do what they print: each runs in a network of its own, where every port is free."""

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
from testing.servers.backends import Answer, ask

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHOP = ROOT / "samples" / "shop"
REVIEWS = "reviews.shop.internal"


class Sample(Process):
    """A script of the sample in a network of its own."""

    def __init__(self, script: str, folder: pathlib.Path) -> None:
        self.host = Host()
        super().__init__([sys.executable, str(SHOP / script)], folder / "sample.log", join=self.host.join)

    def open(self) -> bool:
        self.check_alive()
        return "The shop is running" in self.log.read_text()

    def ask(self, port: int, path: str, method: str = "GET", address: str = "127.0.0.1", **headers: str) -> Answer:
        return self.host.run(lambda: ask((address, port), path, headers=headers, method=method))

    def ctl(self, *words: str) -> str:
        command = [sys.executable, "-m", "pilot.cli.pilotctl", *words]
        done = subprocess.run(command, preexec_fn=self.host.join, capture_output=True, text=True, timeout=60, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as a user would, in the repository."""
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
    made = Sample("run.py", tmp_path)
    eventually(made.open, 90, "the shop is running")
    yield made
    made.close()


@pytest.fixture
def secure(tmp_path: pathlib.Path) -> Iterator[Sample]:
    made = Sample("secure.py", tmp_path)
    eventually(made.open, 90, "the shop is running")
    yield made
    made.close()


def test_the_gateway_shows_the_shop(shop: Sample) -> None:
    assert shop.ask(8000, "/reviews", **{"x-tester": "yes"}).json["version"] == "v2"
    assert shop.ask(8000, "/catalog").status == 200
    assert shop.ask(8000, "/home").status == 301


def test_every_command_of_the_documents_does_its_work(shop: Sample) -> None:
    found = documented_commands()
    assert len(found) > 20
    with ThreadPoolExecutor(4) as pool:
        failed = {
            command: done.stderr
            for command, done in zip(found, pool.map(shop.shell, found), strict=True)
            if done.returncode
        }
    assert failed == {}


def documented_commands() -> list[str]:
    """Return the commands after "$" in the console blocks of all pages, each once. They run against the shop."""
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)]
    return list(dict.fromkeys(line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")))


def test_services_behind_sidecars_talk_mutual_tls_as_the_policies_say(secure: Sample) -> None:
    assert secure.ask(9211, "/reviews", host=REVIEWS).json["version"] == "v1"
    refused = secure.ask(9211, "/reviews", method="DELETE", host=REVIEWS)
    assert (refused.status, refused.text) == (403, "RBAC: access denied")
    with pytest.raises(ConnectionError):
        secure.ask(9303, "/reviews", address="127.0.0.4")
    shown = secure.ctl("proxy-config", "secrets", "--envoy", "127.0.0.1:15100")
    assert re.search(r"^default\s+Cert Chain\s+yes\s.*\sspiffe://cluster.local/ns/shop/sa/storefront$", shown, re.M)
    assert re.search(r"^ROOTCA\s+CA\s+yes\s", shown, re.M)
    asked = ("authz", "check", "reviews", "--from-principal", "cluster.local/ns/shop/sa/storefront", "--method")
    assert re.match(r"ALLOWED: .*AuthorizationPolicy shop/reviews", secure.ctl(*asked, "GET"))
    assert secure.ctl(*asked, "DELETE").startswith("DENIED: ")
    assert json.loads(secure.ctl("problems", "-o", "json")) == []
