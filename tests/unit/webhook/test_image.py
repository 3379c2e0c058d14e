"""Images of injected containers, by injector values, annotation and ProxyConfig."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.inject.config import InjectorConfig, WrittenConfig
from webhook.inject.image import init_image, proxy_image

HUB = {"hub": "example.com/mesh", "tag": "1.28.0"}


def config(**values: Any) -> InjectorConfig:
    return InjectorConfig(WrittenConfig(), {}, {"global": values})


@pytest.mark.parametrize(
    ("values", "image_type", "proxy_config_type", "image"),
    [
        (HUB, None, "", "example.com/mesh/proxyv2:1.28.0"),
        (HUB, "debug", "distroless", "example.com/mesh/proxyv2:1.28.0-debug"),
        (HUB, None, "distroless", "example.com/mesh/proxyv2:1.28.0-distroless"),
        (HUB, "", "debug", "example.com/mesh/proxyv2:1.28.0"),
        (HUB | {"variant": "debug"}, None, "", "example.com/mesh/proxyv2:1.28.0-debug"),
        (HUB | {"variant": "debug"}, None, "distroless", "example.com/mesh/proxyv2:1.28.0-distroless"),
        (HUB | {"variant": "debug"}, "default", "", "example.com/mesh/proxyv2:1.28.0"),
        (HUB | {"tag": "1.28.0-distroless"}, "debug", "", "example.com/mesh/proxyv2:1.28.0-debug"),
        (HUB | {"tag": "1.28.0-debug"}, "default", "", "example.com/mesh/proxyv2:1.28.0"),
        (HUB | {"tag": "1.28.0-debug"}, None, "", "example.com/mesh/proxyv2:1.28.0-debug"),
        (HUB | {"tag": "1.28.0-own"}, "default", "", "example.com/mesh/proxyv2:1.28.0-own"),
        (
            HUB | {"proxy": {"image": "mine"}, "proxy_init": {"image": "other"}},
            None,
            "",
            "example.com/mesh/mine:1.28.0",
        ),
        ({"tag": 1.5}, None, "", "/proxyv2:1.5"),
        ({"hub": "h"}, None, "", "h/proxyv2:"),
        ({"hub": "h"}, "debug", "", "h/proxyv2:-debug"),
    ],
)
def test_proxy_image(values: dict[str, Any], image_type: str | None, proxy_config_type: str, image: str) -> None:
    assert proxy_image(config(**values), image_type, proxy_config_type) == image


@pytest.mark.parametrize(
    ("values", "image_type", "image"),
    [
        (HUB, None, "example.com/mesh/proxyv2:1.28.0"),
        (HUB, "debug", "example.com/mesh/proxyv2:1.28.0-debug"),
        (HUB | {"variant": "distroless"}, None, "example.com/mesh/proxyv2:1.28.0-distroless"),
        (HUB | {"proxy": {"image": "mine"}, "proxy_init": {"image": "other"}}, "", "example.com/mesh/other:1.28.0"),
    ],
)
def test_init_image(values: dict[str, Any], image_type: str | None, image: str) -> None:
    assert init_image(config(**values), image_type) == image
