"""Tests of the settings of the operator."""

from __future__ import annotations

import dataclasses

from pilot.lib.duration import parse_duration
from pilot.operator.operator_settings import OperatorSettings


def test_default_settings() -> None:
    settings = OperatorSettings()
    assert dataclasses.asdict(settings.watch) == {
        "namespaces": "",
        "revision": "",
        "kubeconfig": "",
        "timeout": parse_duration("300s"),
    }
    assert dataclasses.asdict(settings.replica) == {
        "lease_namespace": "",
        "renew_deadline": parse_duration("10s"),
        "pod_name": "",
        "pod_namespace": "",
        "deployment": "istio-operator",
        "address": ":8383",
    }
    metadata = {
        name: field.metadata
        for part in (settings.watch, settings.replica)
        for name, field in part.__dataclass_fields__.items()
    }
    assert {name: (entry["flag"], entry["env"]) for name, entry in metadata.items()} == {
        "namespaces": ("", "WATCH_NAMESPACE"),
        "revision": ("", "REVISION"),
        "kubeconfig": ("kubeconfig", "KUBECONFIG"),
        "timeout": ("", "WAIT_FOR_RESOURCES_TIMEOUT"),
        "lease_namespace": ("", "LEADER_ELECTION_NAMESPACE"),
        "renew_deadline": ("", "RENEW_DEADLINE"),
        "pod_name": ("", "POD_NAME"),
        "pod_namespace": ("", "POD_NAMESPACE"),
        "deployment": ("", "OPERATOR_NAME"),
        "address": ("monitoringAddr", ""),
    }
