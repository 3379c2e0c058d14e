"""Values that a container gets from its pod and from objects: fields, resources, ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from typing import Any

from tests.cluster.box.addresses import KUBERNETES, NODE
from tests.cluster.box.images import SEARCH_PATH
from tests.cluster.box.objects import Api

Plain = dict[str, Any]
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9, "m": 0.001}
_REFERENCE = re.compile(r"\$\$|\$\((\w+)\)")
_ESCAPES = str.maketrans({'"': '\\"', "\n": "\\n", "\\": "\\\\"})


class MissingReference(Exception):
    """A ConfigMap, Secret, key or field that a container needs does not exist (yet)."""


class References:
    """Reads ConfigMaps and Secrets of one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    async def config_map(self, name: str, optional: bool) -> dict[str, bytes] | None:
        plain = await self._object("configmaps", name, optional)
        if plain is None:
            return None
        texts = {key: text.encode() for key, text in (plain.get("data") or {}).items()}
        return texts | {key: base64.b64decode(text) for key, text in (plain.get("binaryData") or {}).items()}

    async def secret(self, name: str, optional: bool) -> dict[str, bytes] | None:
        plain = await self._object("secrets", name, optional)
        return None if plain is None else {k: base64.b64decode(v) for k, v in (plain.get("data") or {}).items()}

    async def token(self, account: str, pod: Plain, audience: str, seconds: int) -> bytes:
        """Return a token of a service account that is bound to a pod."""
        metadata = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"audiences": [audience] if audience else [], "expirationSeconds": seconds, "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self._api.request("POST", path, body)
        return str(answer["status"]["token"]).encode()

    async def _object(self, plural: str, name: str, optional: bool) -> Plain | None:
        plain = await self._api.get(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}")
        if plain is None and not optional:
            raise MissingReference(f"{plural} {name!r} not found")
        return plain


async def environment(pod: Plain, container: Plain, address: str, references: References) -> dict[str, str]:
    """Return the variables of a container. Raise MissingReference if one cannot be computed."""
    variables = {
        "PATH": SEARCH_PATH,
        "HOME": "/",
        "HOSTNAME": pod["metadata"]["name"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "KUBERNETES_SERVICE_HOST": KUBERNETES,
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
    }
    readers: dict[str, Callable[[str, bool], Awaitable[dict[str, bytes] | None]]] = {
        "configMapRef": references.config_map,
        "secretRef": references.secret,
        "configMapKeyRef": references.config_map,
        "secretKeyRef": references.secret,
    }
    for source in container.get("envFrom") or ():
        for kind in ("configMapRef", "secretRef"):
            if reference := source.get(kind):
                content = await readers[kind](reference["name"], reference.get("optional", False))
                prefix = source.get("prefix", "")
                variables |= {prefix + key: value.decode() for key, value in (content or {}).items()}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if not source:
            variables[variable["name"]] = expand(variable.get("value", ""), variables)
        elif "fieldRef" in source:
            variables[variable["name"]] = field(pod, source["fieldRef"]["fieldPath"], address)
        elif "resourceFieldRef" in source:
            variables[variable["name"]] = resource(pod, container, source["resourceFieldRef"])
        else:
            ((kind, reference),) = source.items()
            optional = reference.get("optional", False)
            content = await readers[kind](reference["name"], optional)
            if reference["key"] in (content or {}):
                variables[variable["name"]] = (content or {})[reference["key"]].decode()
            elif not optional:
                raise MissingReference(f"{kind} {reference['name']!r} has no key {reference['key']!r}")
    return variables


def expand(text: str, variables: dict[str, str]) -> str:
    """Replace $(NAME) by variables. Unknown names stay as they are."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0]), text)


def field(pod: Plain, path: str, address: str) -> str:
    """Return the value of a fieldRef."""
    metadata, spec = pod["metadata"], pod["spec"]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = (metadata.get(path.partition(".")[2]) or {}).items()
        return "".join(f'{key}="{value.translate(_ESCAPES)}"\n' for key, value in sorted(entries))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": NODE,
        "status.hostIPs": NODE,
        "status.podIP": address,
        "status.podIPs": address,
    }
    if path not in fields:
        raise MissingReference(f"the box does not implement the field {path}")
    return fields[path]


def resource(pod: Plain, container: Plain, reference: Plain) -> str:
    """Return the value of a resourceFieldRef. A limit that is not set is the node's size."""
    if name := reference.get("containerName"):
        container = next(c for c in pod["spec"]["containers"] if c["name"] == name)
    kind, _, name = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(kind) or {}).get(name) or {"cpu": "64", "memory": "64Gi"}[name]
    divisor = reference.get("divisor", "1")
    return str(-int(-quantity(amount) // (quantity("1" if divisor == "0" else divisor))))


def quantity(text: Any) -> float:
    """Return the number of a quantity such as 500m or 2Gi."""
    for suffix, factor in _UNITS.items():
        if str(text).endswith(suffix):
            return float(str(text).removesuffix(suffix)) * factor
    return float(text)
