"""The images in the objects of an installation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Plain = dict[str, Any]
_LOCAL = "localhost/"
"""The prefix of images that are built and loaded into nodes, not pulled from a registry."""


def local_image_remarks(objects: Iterable[Plain], setting: str) -> Iterator[str]:
    """Yield a remark for each image that nodes cannot pull. `setting` is what changes it."""
    for image in dict.fromkeys(_images(objects)):
        if image.startswith(_LOCAL):
            yield (
                f"{setting}: the default image, {image}, is in no registry; build it with `make image` and load it "
                "into the nodes, or name an image that they can pull"
            )


def _images(objects: Iterable[Plain]) -> Iterator[str]:
    for plain in objects:
        if plain["kind"] == "Deployment":
            for container in plain["spec"]["template"]["spec"]["containers"]:
                yield str(container.get("image") or "")
