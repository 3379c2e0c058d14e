"""Fingerprints of objects."""

from __future__ import annotations

from pilot.ingest.analysis import read_objects
from pilot.ingest.fingerprint import fingerprint

POLICY = """apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: a, namespace: shop}
spec: {selector: {matchLabels: {app: a}}, portLevelMtls: {PORTS}}
"""


def digest(ports: str) -> str:
    ((_, _, row),) = read_objects({"a.yaml": POLICY.replace("{PORTS}", f"{{{ports}}}").encode()}).edits
    return fingerprint(row)


def test_keys_that_are_numbers() -> None:
    both = digest("80: {mode: DISABLE}, 81: {mode: STRICT}")
    assert both == digest("'81': {mode: STRICT}, 80: {mode: DISABLE}")
    assert both != digest("80: {mode: DISABLE}")
