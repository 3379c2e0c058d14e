"""Validation of ProxyConfig objects."""

from __future__ import annotations

import re

from pilot.config.mesh.proxy_config import ProxyConfigOverride
from pilot.config.object import Object
from pilot.config.problem import Problems, error
from pilot.config.validation import rules

VALUE = 2048
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
_IMAGE_TYPE = re.compile(r"[a-zA-Z0-9][-._a-zA-Z0-9]*", re.ASCII)


def validate_proxy_config_override(o: Object[ProxyConfigOverride]) -> Problems:
    spec = o.spec
    if spec.selector is not None:
        yield from rules.check_selector("spec.selector", spec.selector.match_labels, "matchLabels")
    if spec.concurrency is not None:
        yield from rules.check_not_negative("spec.concurrency", spec.concurrency)
    for name, value in spec.environment_variables.items():
        place = f"spec.environmentVariables[{name}]"
        if not _VARIABLE.fullmatch(name):
            yield error("bad-variable", place, f"{name!r} is not a valid variable name")
        elif len(value) > VALUE:
            yield error("too-long", place, f"must be at most {VALUE} characters")
    if spec.image is not None and spec.image.image_type and not _IMAGE_TYPE.fullmatch(spec.image.image_type):
        yield error(
            "bad-image-type", "spec.image.imageType", f"{spec.image.image_type!r} cannot be used in an image tag"
        )
