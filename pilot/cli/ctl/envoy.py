"""Questions to the admin port of an Envoy."""
from __future__ import annotations

import json
import urllib.request
from typing import Any

from pilot.cli.ctl.client import CommandError

SECONDS = 10.0


def fetch_secrets(address: str) -> list[dict[str, Any]]:
    """Returns the secrets that an Envoy uses or waits for, as it writes them: without private keys. CommandError where it cannot be asked."""
    found = []
    for part in ("dynamic_active_secrets", "dynamic_warming_secrets", "static_secrets"):
        entries = _get(address, f"config_dump?resource={part}").get("configs", [])
        found += [{"name": entry.get("name", ""), **entry.get("secret", {})} for entry in entries]
    return found


def _get(address: str, page: str) -> dict[str, Any]:
    url = f"{(address if '://' in address else f'http://{address}').rstrip('/')}/{page}"
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:
            found: dict[str, Any] = json.load(response)
            return found
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot ask the Envoy at {address}: {getattr(error, 'reason', error)}") from error
