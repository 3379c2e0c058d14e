"""Finds the Wasm module in an image.

There are images of containers with one file, `plugin.wasm`, in their last layer
(https://github.com/solo-io/wasm/blob/master/spec/spec-compat.md), and images whose layer is the module itself
(https://github.com/solo-io/wasm/blob/master/spec/spec.md, https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/).
"""

from __future__ import annotations

import io
import posixpath
import tarfile
import zlib
from collections.abc import Callable

from pilot.agent.wasm.http_fetcher import FetchError
from pilot.agent.wasm.image_registry import Descriptor, Manifest

FILE = "plugin.wasm"
MAGIC = b"\x00asm"
_ARCHIVES = ("application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.docker.image.rootfs.diff.tar.gzip")
_GZIP = 31  # for zlib: a header of gzip
_MODULES = ("application/vnd.module.wasm.content.layer.v1+wasm", "application/wasm")


def find_module(manifest: Manifest, blob: Callable[[Descriptor], bytes], largest: int) -> bytes:
    """Returns the module of an image; `blob` fetches a layer, `largest` is how many bytes the module may have. FetchError where there is none."""
    for layer in manifest.layers:
        if layer.media_type in _MODULES:
            return blob(layer)
    if not manifest.layers or manifest.layers[-1].media_type not in _ARCHIVES:
        raise FetchError("the image has no layer of a kind that holds a module")
    return _unpack(blob(manifest.layers[-1]), largest)


def _unpack(archive: bytes, largest: int) -> bytes:
    try:
        plain = zlib.decompressobj(_GZIP).decompress(archive, largest + 1)
        if len(plain) > largest:  # what is small when packed may be very large
            raise FetchError(f"the layer has more than {largest} bytes")
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as files:
            for member in files:
                if (
                    posixpath.basename(member.name) == FILE
                    and member.isfile()
                    and (found := files.extractfile(member)) is not None
                ):
                    return found.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise FetchError(f"the layer cannot be unpacked: {error}") from error
    raise FetchError(f"the layer has no file {FILE}")
