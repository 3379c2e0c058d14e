"""The injector's configuration: what the keys `config` and `values` of its ConfigMap say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gotemplate import Template, TemplateError, parse
from gotemplate.go_json import floats
from pilot.config.base import Lenient
from pilot.config.selector import LabelSelector
from pilot.ingest import shape
from pilot.ingest.documents import SyntaxFault, read_documents
from pilot.lib.log import scope
from webhook.inject.functions import FUNCTIONS

SIDECAR = "sidecar"
_log = scope("webhook")


class ConfigError(ValueError):
    """The configuration cannot be used. The text says which part, and why."""


class WrittenConfig(Lenient, frozen=True):
    """The key `config` as it is written."""

    policy: str = ""
    default_templates: tuple[str, ...] = ()
    templates: dict[str, str] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    never_inject_selector: tuple[LabelSelector, ...] = ()
    always_inject_selector: tuple[LabelSelector, ...] = ()
    injected_annotations: dict[str, str] = {}


class InjectorConfig(NamedTuple):
    """A configuration with its templates compiled. `values` are as templates see them: all their numbers are floats."""

    written: WrittenConfig
    templates: Mapping[str, Template]
    values: Mapping[str, Any]

    @property
    def default_templates(self) -> tuple[str, ...]:
        """Return the names of the templates of a pod that asks for none."""
        return self.written.default_templates or (SIDECAR,)

    def value(self, *path: str) -> Any:
        """Return what the values say at a path, None where they say nothing."""
        found: Any = self.values
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found


def decode_config(config: str, values: str) -> InjectorConfig:
    """Return the configuration of two texts in YAML or JSON. ConfigError where one is wrong, or a template in it is."""
    return make_config(decode_written(config), decode_values(values))


def make_config(written: WrittenConfig, values: Mapping[str, Any]) -> InjectorConfig:
    """Return a configuration with its templates compiled. ConfigError where a template is wrong."""
    if not written.templates:
        _log.warning("the injector's configuration has no templates: pods get no proxy from it")
    try:
        compiled = {name: parse("inject", text, FUNCTIONS) for name, text in written.templates.items()}
    except TemplateError as error:
        raise ConfigError(str(error)) from error
    return InjectorConfig(written, compiled, floats(values))


def decode_written(text: str) -> WrittenConfig:
    """Return the key `config`. ConfigError where it is wrong."""
    plain = _mapping(text, "injection template")
    written, problems = shape.decode(plain, WrittenConfig)
    if problems:
        raise ConfigError("; ".join(f"failed to unmarshal injection template: {p.path}: {p.message}" for p in problems))
    assert isinstance(written, WrittenConfig)
    return written


def decode_values(text: str) -> dict[str, Any]:
    """Return the key `values`. ConfigError where it is no mapping."""
    return _mapping(text, "configuration values")


def _mapping(text: str, what: str) -> dict[str, Any]:
    try:
        documents = read_documents(text.encode(), "")
    except SyntaxFault as fault:
        raise ConfigError(f"could not parse {what}: line {fault.line}: {fault}") from fault
    plain = documents[0].plain if documents else {}
    if not isinstance(plain, dict):
        raise ConfigError(f"could not parse {what}: it is no mapping")
    return plain
