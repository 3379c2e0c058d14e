"""What the template of a Gateway may give: each of a few kinds once, in its namespace, under its name."""
from __future__ import annotations

import pytest

from pilot.model.config.mesh_config import MeshConfig
from pilot.model.config.proxy_config import ProxyConfig
from webhook.gateway.render import GatewayToRender, RenderError, render_gateway
from webhook.inject.config import decode_config

SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: gw-istio, namespace: a}\n"
ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: gw-sa, namespace: a}\n"


def rendered(text: str) -> list[str]:
    """The kinds that a template gives."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    config = decode_config(f"templates:\n  own: |\n{lines}", "{}")
    gateway = GatewayToRender(
        {"name": "gw", "namespace": "a"}, "istio", "own", "istio.io-gateway-controller", "gw-istio", "gw-sa", "LoadBalancer", (), (), {}, {}, (),
        ProxyConfig(), MeshConfig(), "Kubernetes", "default", 134, 1337, 1337,
    )  # fmt: skip
    return [made["kind"] for made in render_gateway(gateway, config)]


def test_it_gives_objects_of_a_few_kinds() -> None:
    assert rendered(f"{SERVICE}---\n{ACCOUNT}") == ["Service", "ServiceAccount"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{SERVICE}---\n{SERVICE}", "two objects of a kind"),
        (SERVICE.replace("Service", "Secret"), "only Deployment"),
        (SERVICE.replace("v1", "v2"), "only Deployment"),
        (SERVICE.replace("namespace: a", "namespace: b"), "not the Gateway's"),
        (SERVICE.replace("gw-istio", "istiod"), "not the name"),
        (ACCOUNT.replace("gw-sa", "gw-istio"), "not the name"),
        ("[x]", "no object"),
    ],
)
def test_everything_else_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RenderError, match=reason):
        rendered(text)
