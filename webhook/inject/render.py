"""The templates of a pod, executed and merged into it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from gotemplate import TemplateError
from pilot.ingest.documents import SyntaxFault, read_documents
from webhook.inject.annotations import IMAGE_TYPE, TEMPLATES
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
    """The pod with the templates merged into it, and the templates alone merged with each other."""

    pod: Plain
    template: Plain


def render(request: InjectionRequest, seen: Plain) -> Rendered:
    """Returns the pod with its templates; these are shown the pod `seen`. InjectionError where one is not there, or fails."""
    of_proxy_config = request.proxy_config.image.image_type if request.proxy_config.image is not None else ""
    asked = ((seen.get("metadata") or {}).get("annotations") or {}).get(IMAGE_TYPE)
    data = template_data(
        request, seen, proxy_image(request.config, asked, of_proxy_config), init_image(request.config, asked)
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
    """Yields the names of a pod's templates, aliases resolved once."""
    asked = request.annotations.get(TEMPLATES)
    names = (
        [name.strip() for name in asked.split(",")]
        if asked is not None
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
        raise InjectionError(str(error)) from error


@lru_cache(_KEPT_OVERLAYS)
def _overlay(text: str) -> tuple[Plain, Plain]:
    """Returns what a template gave, and a pod of nothing else, as plain data that nobody changes: replicas of a workload share it."""
    try:
        documents = read_documents(text.encode(), "")
        plain = documents[0].plain if documents else {}
        if not isinstance(plain, dict):
            raise InjectionError(
                "failed parsing generated injected YAML (check Istio sidecar injector configuration): it is no mapping"
            )
        overlay = normalize(plain, POD)
        return overlay, merge({}, overlay, POD)
    except (SyntaxFault, ShapeError, MergeError) as fault:
        raise InjectionError(
            f"failed parsing generated injected YAML (check Istio sidecar injector configuration): {fault}"
        ) from fault


def _moved(pod: Plain, template: Plain) -> Plain:
    """Returns the pod with its own proxy container among the init containers, where the template has the proxy there."""
    own = find(PROXY, containers(pod))
    if own is None or find(PROXY, containers(template, "initContainers")) is None:
        return pod
    others = [c for c in containers(pod) if c is not own]
    return {
        **pod,
        "spec": {**pod["spec"], "containers": others, "initContainers": [*containers(pod, "initContainers"), own]},
    }
