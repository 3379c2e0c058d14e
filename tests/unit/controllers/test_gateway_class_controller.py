"""Creation of the default GatewayClasses."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pilot.controllers.gateway_class_controller import GatewayClassController
from pilot.kube.api_errors import Conflict
from pilot.lib.backoff import Backoff
from testing.mesh.objects import make
from testing.mesh.world import World, rows_of
from tests.unit.controllers.test_deployed_objects import ScriptedClient
from tests.unit.controllers.test_reconciler import run_briefly

CLASS = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "GatewayClass",
    "metadata": {"name": "istio"},
    "spec": {"controllerName": "istio.io/gateway-controller", "description": "The default Istio GatewayClass"},
}


@pytest.mark.parametrize("response", [{}, Conflict(409, "AlreadyExists", "")])
def test_missing_gateway_class_is_created_once(response: Any) -> None:
    world, client = World(), ScriptedClient(POST=[response])
    paths = {"istio": "/apis/gateway.networking.k8s.io/v1/gatewayclasses/istio"}
    controller = GatewayClassController(
        client, world.mesh, lambda name: paths.get(name, ""), Backoff(), random.Random(1)
    )  # type: ignore[arg-type]
    run_briefly(controller)
    assert client.requests == [("POST", "/apis/gateway.networking.k8s.io/v1/gatewayclasses", CLASS)]
    world.set(
        rows_of(
            [
                make(
                    "GatewayClass",
                    "istio",
                    "{controllerName: theirs.io/c}",
                    "",
                    apiVersion="gateway.networking.k8s.io/v1",
                )
            ]
        )
    )
    run_briefly(controller)
    assert len(client.requests) == 1, "an existing class is not changed"
