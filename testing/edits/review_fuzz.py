"""Bodies that are nearly AdmissionReviews."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from pilot.config.catalogue import CATALOGUE
from pilot.lib.metrics import Metrics
from testing.kube.webhooks import make_injector, pod, review
from webhook.server.application import Webhooks

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


class Fuzz:
    """Answers bodies that come of good reviews by changes that `choose` draws."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._webhooks = Webhooks(make_injector(), CATALOGUE, Metrics())
        full = pod(labels={"app": "a"}, annotations={"prometheus.io/port": "90"})
        full["spec"]["containers"].append(
            {"name": "istio-proxy", "image": "auto", "readinessProbe": {"httpGet": {"port": 80}}}
        )
        self._good = (review(full), review(pod()), review(ENTRY))

    def body(self) -> bytes:
        """Return the next body."""
        plain = json.loads(json.dumps(self._choose.choice(self._good)))
        if self._choose.random() < 0.7:
            for _ in range(self._choose.randint(1, 4)):
                self._change(plain)
            return json.dumps(plain).encode()
        return self._torn(json.dumps(plain).encode())

    def check(self, body: bytes) -> None:
        """Asserts that both webhooks answer a body with a response that says whether it is allowed, and not by a bug."""
        for answered in (self._webhooks.injected(body, "/inject"), self._webhooks.validated(body)):
            response = json.loads(answered)["response"]
            assert isinstance(response["allowed"], bool)
            assert not response.get("status", {}).get("message", "").startswith("internal error"), response

    def _change(self, plain: Any) -> None:
        """Gives some place of the object another value, or another key."""
        at = plain["request"].get("object") or plain["request"] if isinstance(plain.get("request"), dict) else plain
        while isinstance(at, dict | list) and at and self._choose.random() < 0.8:
            inner = at[self._choose.choice(list(at))] if isinstance(at, dict) else self._choose.choice(at)
            if not isinstance(inner, dict | list):
                break
            at = inner
        if isinstance(at, dict):
            key = self._choose.choice([*at, self._choose.choice(_KEYS)])
            at[key] = self._value()
        elif isinstance(at, list):
            at.insert(self._choose.randint(0, len(at)), self._value())

    def _value(self) -> Any:
        return copy.deepcopy(self._choose.choice(_VALUES))

    def _torn(self, data: bytes) -> bytes:
        place = self._choose.randrange(len(data))
        match self._choose.randrange(4):
            case 0:
                return data[:place]
            case 1:
                return data[:place] + bytes((self._choose.randrange(256),)) + data[place + 1 :]
            case 2:
                return data[:place] + data[place // 2 :]
        return data[:place] + self._choose.choice((b"\0", b"\xff\xfe", b"[[[[", b'"', b"\\u", b"1e999")) + data[place:]
