"""Executes a Pod's templates and merges their output into the Pod."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from gotemplate import TemplateError
from pilot.ingest.files.documents import SyntaxFault, read_documents
from webhook.inject.annotations import IMAGE_TYPE, TEMPLATES, rendered_faults
from webhook.inject.containers import PROXY, containers, find
from webhook.inject.data import template_data
from webhook.inject.errors import InjectionError
from webhook.inject.image import init_image, proxy_image
from webhook.inject.request import InjectionRequest
from webhook.pod.merge import MergeError, merge
from webhook.pod.normal import ShapeError, normalize
from webhook.pod.schema import POD

Plain = dict[str, Any]
_KEPT_OVERLAYS = 256


class Rendered(NamedTuple):
    """The Pod with the output of the templates merged into it, and the merged output without the Pod."""

    pod: Plain
    template: Plain


def render(request: InjectionRequest, visible: Plain) -> Rendered:
    """Render the templates of a Pod. `visible` is the Pod that the templates see. Raise InjectionError if a template is
    missing or fails."""
    configured_type = request.proxy_config.image.image_type if request.proxy_config.image is not None else ""
    image_type = ((visible.get("metadata") or {}).get("annotations") or {}).get(IMAGE_TYPE)
    data = template_data(
        request,
        visible,
        proxy_image(request.config, image_type, configured_type),
        init_image(request.config, image_type),
    )
    merged = request.pod
    template: Plain = {}
    for name in selected(request):
        overlay, alone = _overlay(_execute(request, name, data))
        try:
            template = merge(template, overlay, POD) if template else alone
            merged = merge(_moved(merged, template) if request.is_native else merged, overlay, POD)
        except MergeError as error:
            raise InjectionError(
                f"failed parsing generated injected YAML (check Istio sidecar injector configuration): {error}"
            ) from error
    return Rendered(merged, template)


def selected(request: InjectionRequest) -> Iterator[str]:
    """Yield the names of a Pod's templates. Aliases are resolved, but not recursively."""
    annotation = request.annotations.get(TEMPLATES)
    names = (
        [name.strip() for name in annotation.split(",")]
        if annotation is not None
        else request.default_templates or request.config.default_templates
    )
    for name in names:
        yield from request.config.written.aliases.get(name, (name,))


def _execute(request: InjectionRequest, name: str, data: Any) -> str:
    templates = request.config.templates
    if name not in templates:
        raise InjectionError(f'requested template "{name}" not found; have {", ".join(sorted(templates))}')
    try:
        return templates[name].execute(data)
    except TemplateError as error:
        raise InjectionError(rendered_faults(request.annotations) or str(error)) from error


@lru_cache(_KEPT_OVERLAYS)
def _overlay(text: str) -> tuple[Plain, Plain]:
    """Return the parsed output of a template, and the result of merging the output into an empty Pod.

    Both are cached for other replicas of the Pod and must not be modified.
    """
    try:
        documents = read_documents(text.encode(), "")
        plain = documents[0].plain if documents else {}
        if not isinstance(plain, dict):
            raise InjectionError(
                "failed parsing generated injected YAML (check Istio sidecar injector configuration): "
                "it is not a mapping"
            )
        overlay = normalize(plain, POD)
        return overlay, merge({}, overlay, POD)
    except (SyntaxFault, ShapeError, MergeError) as fault:
        raise InjectionError(
            f"failed parsing generated injected YAML (check Istio sidecar injector configuration): {fault}"
        ) from fault


def _moved(pod: Plain, template: Plain) -> Plain:
    """Return the Pod. If the template has the proxy in the init containers, the proxy container is moved there."""
    proxy = find(PROXY, containers(pod))
    if proxy is None or find(PROXY, containers(template, "initContainers")) is None:
        return pod
    others = [c for c in containers(pod) if c is not proxy]
    return {
        **pod,
        "spec": {**pod["spec"], "containers": others, "initContainers": [*containers(pod, "initContainers"), proxy]},
    }
