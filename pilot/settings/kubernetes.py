"""Settings of what is read from Kubernetes, and how."""

from __future__ import annotations

import dataclasses

from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class KubernetesSettings:
    """The API server. It is used where a kubeconfig is named or the process runs in a pod; a variable alone does not count beside --configDir."""

    kubeconfig: str = setting("", "Kubeconfig of the API server to read from; without one a pod's service account is used.", flag="kubeconfig")
    kubeconfig_env: str = setting("", "Kubeconfig, where the flag is not given and there is no --configDir.", env="KUBECONFIG")
    service_host: str = setting("", "Set by Kubernetes in every pod, and so tells that the process runs in one.", env="KUBERNETES_SERVICE_HOST")
    context: str = setting("", "Context of the kubeconfig; empty for its current one.", flag="context")
    qps: float = setting(80.0, "Requests a second to an API server. 0: no limit.", flag="kubernetesApiQPS")
    burst: int = setting(160, "Requests to an API server that may be made at once.", flag="kubernetesApiBurst")
    ignored: tuple[str, ...] = setting((), "Kinds that are not read, as plural.group or *.group.", env="PILOT_IGNORE_RESOURCES")
    included: tuple[str, ...] = setting((), "Of the kinds that are not read those that are nevertheless.", env="PILOT_INCLUDE_RESOURCES")
    shared_mesh_config: str = setting("", "ConfigMap with a mesh config that lies below the revision's own.", env="SHARED_MESH_CONFIG")
    watch_lists: bool = setting(True, "Read all objects of a kind as a stream where the API server can.", env="PILOT_KUBERNETES_WATCH_LIST")
