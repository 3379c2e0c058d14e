"""Checks that namespaces and Pods that should have a sidecar proxy have one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects, Plain, mapping, mappings, texts
from pilot.cli.ctl.analyzers.analyzer import (
    DATAPLANE_MODE,
    DEPLOYMENT,
    INJECT,
    INJECTION,
    INJECTOR_CONFIG,
    MUTATING_WEBHOOKS,
    NAMESPACE,
    POD,
    PROXY,
    REVISION,
    Analyzer,
    Reports,
)
from pilot.cli.ctl.analyzers.selectors import WebhookSelectors
from pilot.config.problem import error, info, warning
from pilot.lib.suggestion import did_you_mean

_SYSTEM = frozenset(("istio-system", "kube-system", "kube-public", "kube-node-lease", "local-path-storage"))
_INJECTOR = "istio-sidecar-injector"
_IMAGE_TYPES = ("", "-distroless", "-debug")
_MAX_NAMES = 10


def _check_injection(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(NAMESPACE.id):
        if one.name not in _SYSTEM:
            yield from _check_namespace(objects, one)
    for pod in objects.of(POD.id):
        if _lacks_proxy(objects, pod):
            message = "the Pod has no proxy, though its namespace is enabled for injection; restart the workload"
            yield pod, warning("proxy-missing", "", message)


def _check_namespace(objects: AnalyzedObjects, one: AnalyzedObject) -> Reports:
    switch, is_ambient = one.labels.get(INJECTION), one.labels.get(DATAPLANE_MODE) == "ambient"
    named = [f"{INJECTION}={switch}"] if switch is not None else []
    if switch in (None, "enabled"):
        named += [f"{name}={one.labels[name]}" for name in (REVISION, DATAPLANE_MODE) if name in one.labels]
    if switch not in (None, "enabled", "disabled"):
        text = f"the value {switch!r} enables nothing{did_you_mean(switch, ('enabled', 'disabled'))}"
        yield one, warning("bad-injection-label", f"metadata.labels[{INJECTION}]", text)
    if len(named) > 1:
        text = f"{', '.join(named)} exclude each other; keep one of them"
        yield one, warning("injection-labels-conflict", "metadata.labels", text)
    if is_ambient or switch or REVISION in one.labels:
        return
    if mapping(_injector_values(objects, "").get("sidecarInjectorWebhook")).get("enableNamespacesByDefault") is True:
        text = "injection is enabled, because the installation enables namespaces without labels by default"
        yield one, info("injected-by-default", "metadata.labels", text)
    else:
        text = f"injection is not enabled; label the namespace {INJECTION}=enabled, or {INJECTION}=disabled if intended"
        yield one, info("namespace-not-injected", "metadata.labels", text)


def _injector_values(objects: AnalyzedObjects, revision: str) -> Plain:
    """Return the values in the injector's ConfigMap of a revision."""
    name = _INJECTOR if revision in ("", "default") else f"{_INJECTOR}-{revision}"
    for one in objects.of(INJECTOR_CONFIG.id):
        if one.name == name:
            try:
                return mapping(msgspec.json.decode(str(one.value("data", "values"))))
            except msgspec.MsgspecError:
                return {}
    return {}


def _lacks_proxy(objects: AnalyzedObjects, pod: AnalyzedObject) -> bool:
    namespace = objects.get(NAMESPACE.id, "", pod.namespace)
    if namespace is None or namespace.labels.get(INJECTION) != "enabled":
        return False
    wish = pod.labels.get(INJECT, pod.annotations.get(INJECT, ""))
    return wish.lower() != "false" and not pod.value("spec", "hostNetwork") and not any(_proxies(pod))


def _proxies(pod: AnalyzedObject) -> Iterator[Plain]:
    containers = (*pod.items("spec", "containers"), *pod.items("spec", "initContainers"))
    return (container for container in containers if container.get("name") == PROXY)


def _check_images(objects: AnalyzedObjects) -> Reports:
    for namespace in objects.of(NAMESPACE.id):
        revision = namespace.labels.get(REVISION, "")
        if namespace.labels.get(INJECTION) != "enabled" and not revision:
            continue
        image = _configured_image(_injector_values(objects, revision))
        names = sorted(
            pod.name
            for pod in objects.by_namespace(POD.id, namespace.name)
            if image and "sidecar.istio.io/proxyImage" not in pod.annotations and _has_other_image(pod, image)
        )
        if names:
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            text = f"{', '.join(names[:_MAX_NAMES])}{more} do not run the configured proxy image {image}; restart them"
            yield namespace, warning("proxy-image-differs", "", text)


def _has_other_image(pod: AnalyzedObject, image: str) -> bool:
    return any(proxy.get("image") not in [image + suffix for suffix in _IMAGE_TYPES] for proxy in _proxies(pod))


def _configured_image(values: Plain) -> str:
    settings = mapping(values.get("global"))
    image = str(mapping(settings.get("proxy")).get("image") or "")
    return image if "/" in image or not image else f"{settings.get('hub')}/{image}:{settings.get('tag')}"


def _check_auto_images(objects: AnalyzedObjects) -> Reports:
    webhooks = [
        WebhookSelectors(webhook)
        for one in objects.of(MUTATING_WEBHOOKS.id)
        for webhook in one.items("webhooks")
        if str(webhook.get("name")).endswith("istio.io")
    ]
    for one in objects.of(POD.id):
        # Injection replaces the image. It is too late for a Pod that exists with it.
        if not one.file and _has_auto_image(one.items("spec", "containers")):
            text = "the image of the proxy is auto, so the Pod was not injected: no injection webhook matched it"
            yield one, error("image-not-injected", "spec.containers", text)
    if not (webhooks or objects.is_live):
        return
    for one in objects.of(DEPLOYMENT.id):
        template = one.part("spec", "template")
        namespace = objects.get(NAMESPACE.id, "", one.namespace)
        if namespace is None or not _has_auto_image(mappings(mapping(template.get("spec")).get("containers"))):
            continue
        labels = texts(mapping(template.get("metadata")).get("labels"))
        if not any(webhook.match(namespace.labels, labels) for webhook in webhooks):
            text = "the image of the proxy is auto, but no injection webhook matches its Pods"
            yield one, warning("image-not-injected", "spec.template.spec.containers", text)


def _has_auto_image(containers: list[dict[str, object]]) -> bool:
    return any(one.get("name") == PROXY and one.get("image") == "auto" for one in containers)


SIDECAR_INJECTION = Analyzer("injection.Analyzer", (NAMESPACE, POD, INJECTOR_CONFIG), _check_injection)
PROXY_IMAGES = Analyzer("injection.ImageAnalyzer", (NAMESPACE, POD, INJECTOR_CONFIG), _check_images)
AUTO_IMAGES = Analyzer(
    "injection.ImageAutoAnalyzer", (NAMESPACE, POD, DEPLOYMENT, MUTATING_WEBHOOKS), _check_auto_images
)
