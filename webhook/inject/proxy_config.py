"""The effective ProxyConfig of a Pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.config.mesh.proxy_config import ProxyConfig, ProxyConfigOverride, ProxyImage
from pilot.config.object import Object
from pilot.config.problem import Severity
from pilot.config.validation.mesh import validate_proxy_config
from pilot.ingest import shape
from pilot.ingest.files.documents import SyntaxFault, read_documents


class ProxyConfigObject(NamedTuple):
    """A ProxyConfig object. With an empty `selector`, it applies to its whole namespace. The oldest object wins."""

    namespace: str
    created: str = ""
    selector: Mapping[str, str] = {}
    concurrency: int | None = None
    environment: Mapping[str, str] = {}
    image_type: str = ""

    @classmethod
    def from_row(cls, row: Object[ProxyConfigOverride]) -> ProxyConfigObject:
        """Return the object in a row of the table of ProxyConfigs."""
        spec = row.spec
        return cls(
            row.namespace,
            row.created,
            spec.selector.match_labels if spec.selector is not None else {},
            spec.concurrency,
            spec.environment_variables,
            spec.image.image_type if spec.image is not None else "",
        )


def effective(
    mesh: ProxyConfig,
    objects: Iterable[ProxyConfigObject],
    root: str,
    namespace: str,
    labels: Mapping[str, str],
    override: str | None,
) -> ProxyConfig:
    """Return the effective ProxyConfig of a Pod.

    The sources in ascending precedence are the mesh config, the object in the root namespace, the object in the Pod's
    namespace, the Pod's annotation `override`, and the object that selects the Pod. Raise ValueError if the override is
    invalid.
    """
    ordered = sorted(objects, key=lambda o: o.created)
    config = mesh
    for place in dict.fromkeys((root, namespace)):
        config = _over(config, next((o for o in ordered if o.namespace == place and not o.selector), None))
    if override is not None:
        config = apply_override(config, override)
    selecting = (o for o in ordered if o.namespace == namespace and o.selector and o.selector.items() <= labels.items())
    return _over(config, next(selecting, None))


def _over(config: ProxyConfig, override: ProxyConfigObject | None) -> ProxyConfig:
    if override is None:
        return config
    metadata = {**config.proxy_metadata, **override.environment}
    return msgspec.structs.replace(
        config,
        proxy_metadata=metadata,
        concurrency=config.concurrency if override.concurrency is None else override.concurrency,
        image=ProxyImage(image_type=override.image_type) if override.image_type else config.image,
    )


def apply_override(config: ProxyConfig, text: str) -> ProxyConfig:
    """Return a ProxyConfig in which the fields of a YAML text are replaced. `proxyMetadata` and `proxyHeaders` are
    merged.

    Raise ValueError if the YAML is invalid.
    """
    plain = _read(text)
    names = {field.encode_name: field.name for field in msgspec.structs.fields(ProxyConfig)}
    written, problems = shape.decode(plain, ProxyConfig)
    if problems:
        raise ValueError("could not parse proxy config: " + "; ".join(f"{p.path}: {p.message}" for p in problems))
    changes: dict[str, Any] = {names[key]: getattr(written, names[key]) for key in plain}
    if "proxy_metadata" in changes:
        changes["proxy_metadata"] = {**config.proxy_metadata, **changes["proxy_metadata"]}
    if "proxy_headers" in changes and config.proxy_headers is not None and changes["proxy_headers"] is not None:
        changes["proxy_headers"] = _headers(config.proxy_headers, changes["proxy_headers"])
    return msgspec.structs.replace(config, **changes)


def _headers(lower: Any, upper: Any) -> Any:
    """Merge two sets of headers. Non-default fields of `upper` take precedence."""
    default = type(upper)()
    changes = {f: getattr(upper, f) for f in upper.__struct_fields__ if getattr(upper, f) != getattr(default, f)}
    return msgspec.structs.replace(lower, **changes)


def _read(text: str) -> dict[str, Any]:
    try:
        documents = read_documents(text.encode(), "", allow_aliases=False)
    except SyntaxFault as fault:
        raise ValueError(f"could not parse proxy config: {fault}") from fault
    plain = documents[0].plain if documents else {}
    if not isinstance(plain, dict):
        raise ValueError("could not parse proxy config: it is not a mapping")
    checked, problems = shape.checked(plain, ProxyConfig)
    if problems:
        raise ValueError("could not parse proxy config: " + "; ".join(f"{p.path}: {p.message}" for p in problems))
    assert isinstance(checked, dict)
    return checked


def check_override(text: str) -> None:
    """Raise ValueError if the text is not a valid ProxyConfig in YAML."""
    config = apply_override(ProxyConfig(), text)
    wrong = [p for p in validate_proxy_config(config) if p.severity is Severity.ERROR]
    if wrong:
        raise ValueError("; ".join(f"{p.path}: {p.message}" for p in wrong))
