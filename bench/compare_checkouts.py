#!/usr/bin/env python3
"""Compare the CPU time of starts, injections and certificate requests with those of another checkout.

    git worktree add /tmp/before 18c2dd48
    python bench/compare_checkouts.py /tmp/before [--services 10000] [--requests 1000] [--repeats 3]

Both checkouts are compiled, and run in turn with the packages of this environment: first a start with an API server
and the services, and then a control plane that answers reviews of Pods and certificate requests, one after the other.
The output has the CPU seconds until ready, and the CPU milliseconds of a request, workers included. The least of all
repeats counts. The exit status is 1 if a figure of this checkout is more than 10 % larger.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import contextlib
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import aiohttp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.clients.secure_client import create_certificate, secure_channel
from testing.hostile.callers import UNVERIFIED
from testing.hostile.plane import usage
from testing.kube.kube_access import write_kubeconfig
from testing.kube.kube_mesh import Servers
from testing.kube.webhooks import config_texts, pod, review
from testing.processes.process import free_port
from testing.security.certificates import csr, ec_key, root, write_plugged_in
from testing.security.tokens import claims, sign, write_keys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("pilot", "webhook", "ca", "gotemplate", "protos")
LARGEST_RISE = 1.1
MOST_SECONDS = 120
PORTS = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


class Costs(NamedTuple):
    """CPU seconds of a start, and CPU milliseconds of an injection and of a certificate request."""

    start: float
    inject: float
    certificate: float


class Running(NamedTuple):
    """A control plane that is ready."""

    pid: int
    ports: dict[str, int]


@contextlib.contextmanager
def run(checkout: pathlib.Path, *flags: str, **environ: str) -> Iterator[Running]:
    """Run a control plane of a checkout, and yield it when it is ready."""
    ports = {name: free_port() for name in PORTS}
    command = [sys.executable, "-m", "pilot.cli.pilot_discovery", "discovery", "--ctrlz_port=0", *flags]
    command += [f"--{name}=127.0.0.1:{port}" for name, port in ports.items()]
    variables = {**os.environ, "PYTHONPATH": str(checkout), **environ}
    with subprocess.Popen(command, cwd=checkout, env=variables, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + MOST_SECONDS
            while not _is_ready(ports["httpAddr"]):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the control plane of {checkout} does not start")
                time.sleep(0.05)
            yield Running(process.pid, ports)
        finally:
            process.terminate()


def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2) as response:
        return bool(response.status == 200)
    return False


def start(checkout: pathlib.Path, kubeconfig: pathlib.Path) -> float:
    """Return the CPU seconds until a control plane that reads from an API server is ready."""
    with run(checkout, f"--kubeconfig={kubeconfig}") as plane:
        return usage(plane.pid).cpu


async def answer(checkout: pathlib.Path, work: pathlib.Path, roots: bytes, requests: int) -> tuple[float, float]:
    """Return the CPU milliseconds of an injection and of a certificate request."""
    flags = [f"--{name}={work / path}" for name, path in (("configDir", "config"), ("tokenKeys", "keys.json"))]
    flags.append(f"--injectionDir={work / 'injection'}")
    with run(checkout, *flags, ROOT_CA_DIR=str(work / "cacerts")) as plane:
        body = json.dumps(review(pod())).encode()
        url = f"https://127.0.0.1:{plane.ports['httpsAddr']}/inject"
        async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:

            async def inject() -> None:
                async with session.post(url, data=body, ssl=UNVERIFIED) as response:
                    assert json.loads(await response.read())["response"]["allowed"]

            injection = await _cost(plane.pid, inject, requests)
        token, request = sign(claims()), csr(ec_key(0))
        async with secure_channel(plane.ports["secureGRPCAddr"], roots) as channel:

            async def certify() -> None:
                assert await create_certificate(channel, token, request)

            return injection, await _cost(plane.pid, certify, requests)


async def _cost(pid: int, act: object, requests: int) -> float:
    """Return the CPU milliseconds of a request. The first requests are not measured, because they fill caches."""
    assert callable(act)
    for _ in range(requests // 10):
        await act()
    before = usage(pid).cpu
    for _ in range(requests):
        await act()
    return (usage(pid).cpu - before) / requests * 1000


async def compare(options: argparse.Namespace) -> int:
    servers = Servers(options.services, 1, 1, random.Random(1))
    await servers.start()
    signer = root(now=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1))
    measured: dict[pathlib.Path, list[Costs]] = {options.before.resolve(): [], ROOT: []}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name in ("config", "injection", "cacerts"):
            (work / name).mkdir()
        for name, text in zip(("config", "values"), config_texts(), strict=True):
            (work / "injection" / name).write_text(text)
        write_plugged_in(work / "cacerts", signer)
        write_keys(work / "keys.json")
        kubeconfig = write_kubeconfig(servers.servers[0], work / "kubeconfig")
        for checkout in measured:  # a start that compiles modules takes half a second longer
            for package in PACKAGES:
                compileall.compile_dir(checkout / package, quiet=2)
        for _ in range(options.repeats):
            for checkout, rows in measured.items():
                seconds = await asyncio.to_thread(start, checkout, kubeconfig)
                rows.append(Costs(seconds, *await answer(checkout, work, signer.roots_pem, options.requests)))
                print(f"{checkout}: {_show(rows[-1])}", flush=True)
    await servers.stop()
    before, after = (Costs(*map(min, zip(*rows, strict=True))) for rows in measured.values())
    print(f"before: {_show(before)}\nafter:  {_show(after)}")
    return int(any(new > LARGEST_RISE * old for old, new in zip(before, after, strict=True)))


def _show(costs: Costs) -> str:
    return f"start {costs.start:.1f} CPU s, injection {costs.inject:.2f} CPU ms, certificate {costs.certificate:.2f} CPU ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path, help="the other checkout")
    parser.add_argument("--services", type=int, default=10_000, help="services at the API server")
    parser.add_argument("--requests", type=int, default=1000, help="requests of each kind")
    parser.add_argument("--repeats", type=int, default=3, help="repeats; the least counts")
    return asyncio.run(compare(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
