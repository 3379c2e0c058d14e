"""The injector's configuration of the default profile, with settings of an installation over it."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

import msgspec

from webhook.inject.config import ConfigError, InjectorConfig, WrittenConfig, decode_values, make_config
from webhook.profile.templates import default_templates

Plain = dict[str, Any]


def default_values(over: Plain | None = None) -> Plain:
    """Returns the default profile's values, with others merged over them; null takes a value's place too."""
    return _merged(_values(), over or {})


@functools.cache
def _values() -> Plain:
    return decode_values(files(__package__).joinpath("values.yaml").read_text("utf-8"))


def _merged(lower: Plain, upper: Plain) -> Plain:
    found = dict(lower)
    for key, value in upper.items():
        mine = found.get(key)
        found[key] = _merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return found


def written_of(values: Plain) -> WrittenConfig:
    """Returns what the ConfigMap's key `config` says for these values. ConfigError where they are not what the webhook's are."""
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
    """Returns the configuration of the default profile with values merged over it. ConfigError where they cannot be used."""
    values = default_values(over)
    return make_config(written_of(values), values)
