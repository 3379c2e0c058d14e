"""The injector's default configuration, with the values of an installation merged over it."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

import msgspec

from webhook.defaults.templates import default_templates
from webhook.inject.config import ConfigError, InjectorConfig, WrittenConfig, decode_values, make_config

Plain = dict[str, Any]


def default_values(over: Plain | None = None) -> Plain:
    """Return the default values with `over` merged over them. A null in `over` replaces a value, too."""
    return _merged(_values(), over or {})


@functools.cache
def _values() -> Plain:
    return decode_values(files(__package__).joinpath("values.yaml").read_text("utf-8"))


def _merged(lower: Plain, upper: Plain) -> Plain:
    merged = dict(lower)
    for key, value in upper.items():
        mine = merged.get(key)
        merged[key] = _merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return merged


def written_of(values: Plain) -> WrittenConfig:
    """Return the content of the ConfigMap key `config` that results from `values`. Raise ConfigError if
    `sidecarInjectorWebhook` in `values` is invalid."""
    webhook = values.get("sidecarInjectorWebhook") or {}
    plain = {
        "policy": (values.get("global") or {}).get("proxy", {}).get("autoInject") or "enabled",
        "defaultTemplates": webhook.get("defaultTemplates") or [],
        "templates": {**default_templates(), **(webhook.get("templates") or {})},
        "aliases": webhook.get("aliases") or {},
        "neverInjectSelector": webhook.get("neverInjectSelector") or [],
        "alwaysInjectSelector": webhook.get("alwaysInjectSelector") or [],
        "injectedAnnotations": webhook.get("injectedAnnotations") or {},
    }
    try:
        return msgspec.convert(plain, WrittenConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"sidecarInjectorWebhook: {error}") from error


def default_config(over: Plain | None = None) -> InjectorConfig:
    """Return the default configuration, with `over` merged over its values. Raise ConfigError if the merged values are
    invalid."""
    values = default_values(over)
    return make_config(written_of(values), values)
