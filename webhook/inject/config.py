"""The injector's configuration, from the keys `config` and `values` of its ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gotemplate import Template, TemplateError, parse
from gotemplate.go_json import floats
from pilot.config.base import Lenient
from pilot.config.selector import LabelSelector
from pilot.ingest import shape
from pilot.ingest.files.documents import SyntaxFault, read_documents
from pilot.lib.logging.log import scope
from webhook.inject.functions import FUNCTIONS

SIDECAR = "sidecar"
_log = scope("webhook")


class ConfigError(ValueError):
    """The injector's configuration is invalid."""


class WrittenConfig(Lenient, frozen=True):
    """The content of the ConfigMap key `config`."""

    policy: str = ""
    default_templates: tuple[str, ...] = ()
    templates: dict[str, str] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    never_inject_selector: tuple[LabelSelector, ...] = ()
    always_inject_selector: tuple[LabelSelector, ...] = ()
    injected_annotations: dict[str, str] = {}


class InjectorConfig(NamedTuple):
    """A configuration with compiled templates. All numbers in `values` are floats, as templates expect."""

    written: WrittenConfig
    templates: Mapping[str, Template]
    values: Mapping[str, Any]

    @property
    def default_templates(self) -> tuple[str, ...]:
        """Return the names of the templates for Pods that do not select a template."""
        return self.written.default_templates or (SIDECAR,)

    def value(self, *path: str) -> Any:
        """Return the value at a path, or None if there is none."""
        node: Any = self.values
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        return node


def decode_config(config: str, values: str) -> InjectorConfig:
    """Decode a configuration from YAML or JSON. Raise ConfigError if the configuration or one of its templates is
    invalid."""
    return make_config(decode_written(config), decode_values(values))


def make_config(written: WrittenConfig, values: Mapping[str, Any]) -> InjectorConfig:
    """Compile the templates of a configuration. Raise ConfigError if a template is invalid."""
    if not written.templates:
        _log.warning("the injector's configuration has no templates: no pods will be injected")
    compiled = {}
    for name, text in written.templates.items():
        try:
            compiled[name] = parse("inject", text, FUNCTIONS)
        except TemplateError as error:
            raise ConfigError(f"template {name!r}: {error}") from error
    return InjectorConfig(written, compiled, floats(values))


def decode_written(text: str) -> WrittenConfig:
    """Decode the content of the ConfigMap key `config`. Raise ConfigError if it is invalid."""
    plain = _mapping(text, "injection template")
    written, problems = shape.decode(plain, WrittenConfig)
    if problems:
        raise ConfigError("; ".join(f"failed to unmarshal injection template: {p.path}: {p.message}" for p in problems))
    assert isinstance(written, WrittenConfig)
    return written


def decode_values(text: str) -> dict[str, Any]:
    """Decode the content of the ConfigMap key `values`. Raise ConfigError if it is not a mapping."""
    return _mapping(text, "configuration values")


def _mapping(text: str, subject: str) -> dict[str, Any]:
    try:
        documents = read_documents(text.encode(), "")
    except SyntaxFault as fault:
        raise ConfigError(f"could not parse {subject}: line {fault.line}: {fault}") from fault
    plain = documents[0].plain if documents else {}
    if not isinstance(plain, dict):
        raise ConfigError(f"could not parse {subject}: it is not a mapping")
    return plain
