"""Malformed AdmissionReviews."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from pilot.config.mesh.mesh_config import MeshConfig
from testing.kube.webhooks import config_texts, pod, review
from webhook.inject.config import decode_config
from webhook.server.pod_review import InjectionSettings, PodFacts
from webhook.server.program import PodReview, review_config, review_pod

ENTRY: dict[str, Any] = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "ServiceEntry",
    "metadata": {"name": "one", "namespace": "shop"},
    "spec": {
        "hosts": ["one.example.com"],
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "resolution": "NONE",
    },
}
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1e300,
    2**70,
    "",
    "a",
    "true",
    "\u0000",
    [],
    [None],
    {},
    {"a": {}},
    [[[]]],
    {"name": None},
    "{}",
    "15020",
)
_KEYS = (
    "metadata",
    "annotations",
    "labels",
    "spec",
    "containers",
    "initContainers",
    "name",
    "env",
    "image",
    "securityContext",
    "volumes",
    "lifecycle",
    "readinessProbe",
    "httpGet",
    "port",
    "ports",
    "resources",
    "limits",
    "sidecar.istio.io/status",
    "proxy.istio.io/overrides",
    "proxy.istio.io/config",
    "inject.istio.io/templates",
    "prometheus.io/port",
    "ownerReferences",
    "generateName",
    "hostNetwork",
    "$patch",
)


class ReviewFuzzer:
    """Sends bodies to the webhooks that are random modifications of valid reviews."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._settings = InjectionSettings(decode_config(*config_texts()), MeshConfig())
        full = pod(labels={"app": "a"}, annotations={"prometheus.io/port": "90"})
        full["spec"]["containers"].append(
            {"name": "istio-proxy", "image": "auto", "readinessProbe": {"httpGet": {"port": 80}}}
        )
        self._valid = (review(full), review(pod()), review(ENTRY))

    def body(self) -> bytes:
        """Return the next body."""
        plain = json.loads(json.dumps(self._rng.choice(self._valid)))
        if self._rng.random() < 0.7:
            for _ in range(self._rng.randint(1, 4)):
                self._change(plain)
            return json.dumps(plain).encode()
        return self._corrupt(json.dumps(plain).encode())

    def check(self, body: bytes) -> None:
        """Check that both webhooks answer with a valid response and without an internal error."""
        for outcome in (review_pod(PodReview("/inject", PodFacts()), body, self._settings), review_config(body)):
            response = json.loads(outcome.body)["response"]
            assert isinstance(response["allowed"], bool)
            assert not response.get("status", {}).get("message", "").startswith("internal error"), response

    def _change(self, plain: Any) -> None:
        """Change a random value or key of the object."""
        node = plain["request"].get("object") or plain["request"] if isinstance(plain.get("request"), dict) else plain
        while isinstance(node, dict | list) and node and self._rng.random() < 0.8:
            inner = node[self._rng.choice(list(node))] if isinstance(node, dict) else self._rng.choice(node)
            if not isinstance(inner, dict | list):
                break
            node = inner
        if isinstance(node, dict):
            key = self._rng.choice([*node, self._rng.choice(_KEYS)])
            node[key] = self._value()
        elif isinstance(node, list):
            node.insert(self._rng.randint(0, len(node)), self._value())

    def _value(self) -> Any:
        return copy.deepcopy(self._rng.choice(_VALUES))

    def _corrupt(self, data: bytes) -> bytes:
        place = self._rng.randrange(len(data))
        match self._rng.randrange(4):
            case 0:
                return data[:place]
            case 1:
                return data[:place] + bytes((self._rng.randrange(256),)) + data[place + 1 :]
            case 2:
                return data[:place] + data[place // 2 :]
        return data[:place] + self._rng.choice((b"\0", b"\xff\xfe", b"[[[[", b'"', b"\\u", b"1e999")) + data[place:]
