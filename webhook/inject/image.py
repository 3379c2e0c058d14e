"""The images of the proxy and the init container."""

from __future__ import annotations

from gotemplate.printing import to_text
from webhook.inject.config import InjectorConfig

_TYPES = ("distroless", "debug")
_PLAIN = "default"
_NAME = "proxyv2"


def proxy_image(config: InjectorConfig, annotated_type: str | None, configured_type: str) -> str:
    """Return the proxy's image. `annotated_type` is the image type in the Pod's annotation, or None."""
    name = config.value("global", "proxy", "image") or _NAME
    return _url(config, name, annotated_type if annotated_type is not None else configured_type or _variant(config))


def init_image(config: InjectorConfig, annotated_type: str | None) -> str:
    """Return the image of the init container."""
    name = config.value("global", "proxy_init", "image") or _NAME
    return _url(config, name, annotated_type if annotated_type is not None else _variant(config))


def _variant(config: InjectorConfig) -> str:
    return config.value("global", "variant") or ""


def _url(config: InjectorConfig, name: str, kind: str) -> str:
    tag = config.value("global", "tag")
    return f"{config.value('global', 'hub') or ''}/{name}:{_tag('' if tag is None else to_text(tag), kind)}"


def _tag(tag: str, kind: str) -> str:
    """Return the tag for an image type. If the tag ends with another type, replace that type."""
    if not kind:
        return tag
    bare = next((tag.removesuffix(f"-{image_type}") for image_type in _TYPES if tag.endswith(f"-{image_type}")), tag)
    return bare if kind == _PLAIN else f"{bare}-{kind}"
