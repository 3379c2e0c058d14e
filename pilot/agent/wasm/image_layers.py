"""Extraction of the Wasm module from an image.

In compatibility images, the last layer is an archive with the file `plugin.wasm`
(https://github.com/solo-io/wasm/blob/master/spec/spec-compat.md). In the other variants, a layer is the module itself:

https://github.com/solo-io/wasm/blob/master/spec/spec.md
https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/
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
_GZIP = 31  # the wbits of zlib for a gzip header
_MODULES = ("application/vnd.module.wasm.content.layer.v1+wasm", "application/wasm")


def find_module(manifest: Manifest, fetch_blob: Callable[[Descriptor], bytes], max_bytes: int) -> bytes:
    """Return the module in an image. `max_bytes` limits the unpacked layer. Raises FetchError if there is no module."""
    for layer in manifest.layers:
        if layer.media_type in _MODULES:
            return fetch_blob(layer)
    if not manifest.layers or manifest.layers[-1].media_type not in _ARCHIVES:
        raise FetchError("the image has no layer with a Wasm module")
    return _unpack(fetch_blob(manifest.layers[-1]), max_bytes)


def _unpack(archive: bytes, max_bytes: int) -> bytes:
    try:
        unpacked = zlib.decompressobj(_GZIP).decompress(archive, max_bytes + 1)
        if len(unpacked) > max_bytes:
            raise FetchError(f"the unpacked layer is larger than {max_bytes} bytes")
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as files:
            for member in files:
                if (
                    posixpath.basename(member.name) == FILE
                    and member.isfile()
                    and (file := files.extractfile(member)) is not None
                ):
                    return file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise FetchError(f"cannot unpack the layer: {error}") from error
    raise FetchError(f"the layer has no file {FILE}")
