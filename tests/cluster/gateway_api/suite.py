"""The conformance suite of the Gateway API: its program, its options, and the objects that it needs."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import pathlib
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any

from pilot.mesh.gateway_api.supported_features import EXPERIMENTAL_FEATURES, GATEWAY_FEATURES, MESH_FEATURES
from tests.cluster.box.authority import Authority
from tests.cluster.box.box import Box
from tests.cluster.box.images import IMAGES, REPOSITORY, Image
from tests.cluster.steps.installations import install_with_kubectl

VERSION = "v1.6.0"
SECONDS = 3 * 3600
BUILD = REPOSITORY / "build/gateway-api"
PROGRAM, ECHO = BUILD / "suite", BUILD / "echo-basic"
GATEWAY_PROFILES = ("GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS")
MESH_PROFILES = ("MESH-HTTP", "MESH-GRPC")
ISTIO_ECHO = "ISTIO_ECHO"
"""Names the folder with the programs of the image `echo-advanced`, `server` and `client`. Istio's repository has their
sources, in `pkg/test/echo/cmd`. The Go module proxy does not serve it."""
CHANNELS = ("standard", "experimental")
PROXY_SERVICE = "infra-backend-v1.gateway-conformance-infra.svc.cluster.local"
"""A Service of the suite. A Gateway with this address needs no deployment, so the address can be used."""


TEST = """\
package suite

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestConformance(t *testing.T) { conformance.RunConformance(t) }
"""


def build_programs() -> None:
    """Build the suite and its echo server with Go, from the Go module proxy."""
    BUILD.mkdir(parents=True, exist_ok=True)
    module = f"""\
module suite

go 1.25.0

require (
	sigs.k8s.io/gateway-api {VERSION}
	sigs.k8s.io/gateway-api/conformance {VERSION}
)
"""
    (BUILD / "go.mod").write_text(module)
    (BUILD / "suite_test.go").write_text(TEST)
    path = "sigs.k8s.io/gateway-api/conformance"
    _go("test", "-mod=mod", "-vet=off", "-c", "-o", str(PROGRAM), ".")
    _go("build", "-mod=mod", "-o", str(ECHO), f"{path}/echo-basic")


def definitions(channel: str) -> list[str]:
    """Return the files with the CustomResourceDefinitions of a channel."""
    folder = _go("list", "-mod=mod", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").strip()
    return [str(file) for file in sorted((pathlib.Path(folder) / "config/crd" / channel).glob("gateway*.yaml"))]


def features(channel: str, profiles: Sequence[str]) -> list[str]:
    """Return the features to test: those that the control plane reports, if the channel has their fields."""
    gateway = GATEWAY_FEATURES if set(profiles) & set(GATEWAY_PROFILES) else ()
    mesh = MESH_FEATURES if set(profiles) & set(MESH_PROFILES) else ()
    absent = EXPERIMENTAL_FEATURES if channel == "standard" else frozenset[str]()
    return [name for name in (*gateway, *mesh) if name not in absent]


def options(
    channel: str, profiles: Sequence[str], version: str, labels: Mapping[str, str], report: pathlib.Path
) -> dict[str, Any]:
    """Return the suite's options."""
    return {
        "gatewayClassName": "istio",
        "supportedFeatures": features(channel, profiles),
        "conformanceProfiles": list(profiles),
        "namespaceLabels": labels,
        "reportOutputPath": str(report),
        "usableNetworkAddresses": [{"type": "Hostname", "value": PROXY_SERVICE}],
        "unusableNetworkAddresses": [{"type": "Hostname", "value": "foo"}],
        "implementation": {
            "organization": "pyistiod",
            "project": "pyistiod",
            "url": "unpublished",
            "version": version,
            "contact": ["unpublished"],
        },
    }


def command(channel: str, profiles: Sequence[str], report: pathlib.Path, test: str = "") -> list[str]:
    """Write the options, and return the command that runs the suite or one of its tests."""
    version = importlib.metadata.version("pyistiod")
    labels = {"istio-injection": "enabled"} if set(profiles) & set(MESH_PROFILES) else {}
    file = report.absolute().with_suffix(".options.json")
    file.write_text(json.dumps(options(channel, profiles, version, labels, report.absolute())))
    words = [str(PROGRAM), "-test.v", "-test.timeout=3h", f"-conformance-options-file={file}"]
    return [*words, f"-run-test={test}"] if test else words


async def run_in_box(
    box: Box, channel: str, profiles: Sequence[str], report: pathlib.Path, test: str = "", log: IO[bytes] | None = None
) -> int:
    """Install the control plane on a cluster without container runtime, run the suite, and return its exit code."""
    _add_images()
    files = [word for file in definitions(channel) for word in ("-f", file)]
    await box.kubectl("apply", "--server-side", *files)
    await install_with_kubectl(box)
    environ = {**os.environ, "KUBECONFIG": str(box.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        *command(channel, profiles, report, test), env=environ, stdout=log, stderr=log
    )
    async with asyncio.timeout(SECONDS):
        return await process.wait()


def _add_images() -> None:
    """Add the images of the suite's pods to those of the cluster without container runtime."""
    IMAGES["echo-basic"] = Image((str(ECHO),))
    if programs := os.environ.get(ISTIO_ECHO):
        certificate, key = Authority(BUILD).issue("echo", ("echo",))
        links = {"/usr/local/bin/client": f"{programs}/client", "/cert.crt": str(certificate), "/cert.key": str(key)}
        IMAGES["echo-advanced"] = Image((f"{programs}/server",), files=links)
    IMAGES["coredns"] = Image(("sh", "-c", "exec sleep infinity"))  # only the tests of UDPRoutes send requests to it


def _go(*words: str) -> str:
    return subprocess.run(["go", *words], check=True, cwd=BUILD, stdout=subprocess.PIPE, text=True).stdout
