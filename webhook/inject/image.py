"""The image of the proxy."""

from __future__ import annotations

from gotemplate.printing import to_text
from webhook.inject.config import InjectorConfig

_TYPES = ("distroless", "debug")
_PLAIN = "default"
_NAME = "proxyv2"


def proxy_image(config: InjectorConfig, asked: str | None, of_proxy_config: str) -> str:
    """Returns the image of the proxy. `asked` is the type that the pod's annotation says, None where it says none."""
    name = config.value("global", "proxy", "image") or _NAME
    return _url(config, name, asked if asked is not None else of_proxy_config or _variant(config))


def init_image(config: InjectorConfig, asked: str | None) -> str:
    """Returns the image of what prepares a pod's network."""
    name = config.value("global", "proxy_init", "image") or _NAME
    return _url(config, name, asked if asked is not None else _variant(config))


def _variant(config: InjectorConfig) -> str:
    return config.value("global", "variant") or ""


def _url(config: InjectorConfig, name: str, kind: str) -> str:
    tag = config.value("global", "tag")
    return f"{config.value('global', 'hub') or ''}/{name}:{_tag('' if tag is None else to_text(tag), kind)}"


def _tag(tag: str, kind: str) -> str:
    """Returns the tag of a type of image: another type that the tag ends with is replaced."""
    if not kind:
        return tag
    bare = next((tag.removesuffix(f"-{known}") for known in _TYPES if tag.endswith(f"-{known}")), tag)
    return bare if kind == _PLAIN else f"{bare}-{kind}"
