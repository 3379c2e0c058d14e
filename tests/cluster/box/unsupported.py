"""Fields that the box does not implement. A pod that uses one fails with the path of the field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Plain = dict[str, Any]
POD = frozenset(
    (
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostname",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "restartPolicy",
        "schedulerName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    )
)
CONTAINER = frozenset(
    (
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resources",
        "restartPolicy",
        "securityContext",
        "startupProbe",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeMounts",
        "workingDir",
    )
)
SECURITY = frozenset(
    (
        "allowPrivilegeEscalation",
        "capabilities",
        "fsGroup",
        "privileged",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
        "supplementalGroups",
        "sysctls",
    )
)
MOUNT = frozenset(("mountPath", "name", "readOnly", "subPath"))
VOLUME = frozenset(("configMap", "downwardAPI", "emptyDir", "hostPath", "name", "projected", "secret"))
PROBE = frozenset(
    (
        "exec",
        "failureThreshold",
        "httpGet",
        "initialDelaySeconds",
        "periodSeconds",
        "successThreshold",
        "tcpSocket",
        "terminationGracePeriodSeconds",
        "timeoutSeconds",
    )
)
HANDLER = frozenset(("exec", "httpGet", "sleep"))


class Unsupported(Exception):
    """A field that the box does not implement."""


def check_pod(pod: Plain) -> None:
    """Raise Unsupported with the paths of all fields of a pod that the box does not implement."""
    if paths := sorted(_unsupported(pod["spec"])):
        raise Unsupported(f"the box does not implement {', '.join(paths)}")


def _unsupported(spec: Plain) -> Iterator[str]:
    yield from _others("spec", spec, POD)
    yield from _others("spec.securityContext", spec.get("securityContext"), SECURITY)
    if spec.get("dnsPolicy", "ClusterFirst") not in ("ClusterFirst", "ClusterFirstWithHostNet", "Default"):
        yield f"spec.dnsPolicy={spec['dnsPolicy']}"
    for i, volume in enumerate(spec.get("volumes") or ()):
        yield from _others(f"spec.volumes[{i}]", volume, VOLUME)
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            path = f"spec.{field}[{i}]"
            yield from _others(path, container, CONTAINER)
            yield from _others(f"{path}.securityContext", container.get("securityContext"), SECURITY)
            for j, mount in enumerate(container.get("volumeMounts") or ()):
                yield from _others(f"{path}.volumeMounts[{j}]", mount, MOUNT)
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                yield from _others(f"{path}.{probe}", container.get(probe), PROBE)
            for hook, handler in (container.get("lifecycle") or {}).items():
                yield from _others(f"{path}.lifecycle.{hook}", handler, HANDLER)


def _others(path: str, plain: Mapping[str, Any] | None, implemented: Iterable[str]) -> Iterator[str]:
    for name in (plain or {}).keys() - set(implemented):
        yield f"{path}.{name}"
