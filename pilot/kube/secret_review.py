"""Asks an API server whether a service account may list the Secrets of its namespace.

https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/subject-access-review-v1/
"""

from __future__ import annotations

import msgspec

from pilot.kube.client import ApiClient
from pilot.kube.errors import Unreachable

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status


async def can_list_secrets(client: ApiClient, namespace: str, account: str) -> bool:
    """Returns the answer of the API server. KubeError where there is none."""
    attributes = {"namespace": namespace, "verb": "list", "resource": "secrets"}
    spec = {"user": f"system:serviceaccount:{namespace}:{account}", "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    answer = await client.call("POST", PATH, body=msgspec.json.encode(review))
    try:
        status = msgspec.json.decode(answer, type=_Review).status
    except msgspec.MsgspecError as error:
        raise Unreachable(f"{PATH}: the answer is no review: {error}") from error
    return status.allowed and not status.denied
