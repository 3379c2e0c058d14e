"""Images: the programs that stand for them."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from typing import NamedTuple

from testing.processes.process import envoy_binary
from tests.cluster.box.programs import find_beside

BIN = pathlib.Path(sys.executable).parent
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SEARCH_PATH = f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Image(NamedTuple):
    """An image's configuration. `files` are links in its file system, by path."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    user: int = 0
    files: Mapping[str, str] = {}


def _images() -> dict[str, Image]:
    control_plane = Image((f"{BIN}/pilot-discovery",), ("discovery",), 1337)
    return {
        "pyistiod": control_plane,
        "pilot": control_plane,
        "istiod": Image((find_beside("pilot-discovery"),), ("discovery",), 1337),
        "proxyv2": Image((f"{BIN}/pilot-agent",), (), 1337, {"/usr/local/bin/envoy": envoy_binary()}),
        "ztunnel": Image((find_beside("ztunnel"),)),
        "prometheus": Image((find_beside("prometheus"),), (), 65534),
        "echo": Image((sys.executable, str(pathlib.Path(__file__).with_name("echo.py"))), (), 1000),
    }


IMAGES = _images()


class ImageNotFound(Exception):
    """No program stands for this image."""


def find_image(reference: str) -> Image:
    """Return the image of a reference such as `docker.io/istio/proxyv2:1.27`."""
    name = reference.rpartition("/")[2].partition("@")[0].partition(":")[0]
    if name not in IMAGES:
        raise ImageNotFound(f"no program stands for the image {reference!r}; there are {', '.join(IMAGES)}")
    return IMAGES[name]
