"""Secret and ConfigMap. https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from pilot.config.base import Lenient


class Secret(Lenient, frozen=True):
    """A Secret. `data` is base64-decoded and includes `stringData`, which takes precedence."""

    type: str = "Opaque"
    data: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Secret(type={self.type!r}, data={sorted(self.data)} hidden)"


def secret_data(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object's `data` merged with its `stringData`. Values are in base64 without line breaks."""
    data, text = plain.get("data"), plain.get("stringData")
    if not isinstance(data, dict | None) or not isinstance(text, dict | None):
        return {"data": data if text is None else text}
    joined = {k: "".join(v.split()) if isinstance(v, str) else v for k, v in (data or {}).items()}
    laid_over = {k: base64.b64encode(v.encode()).decode() if isinstance(v, str) else v for k, v in (text or {}).items()}
    return {"data": joined | laid_over}


class ConfigMap(Lenient, frozen=True):
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}
