"""Settings of what is read from Kubernetes, and how."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class KubernetesSettings:
    """The API server. It is used where a kubeconfig is named or the process runs in a pod; a variable alone does not count beside --configDir."""

    kubeconfig: str = setting(
        "", "Kubeconfig of the API server to read from; without one a pod's service account is used.", flag="kubeconfig"
    )
    kubeconfig_env: str = setting(
        "", "Kubeconfig, where the flag is not given and there is no --configDir.", env="KUBECONFIG"
    )
    service_host: str = setting(
        "", "Set by Kubernetes in every pod, and so tells that the process runs in one.", env="KUBERNETES_SERVICE_HOST"
    )
    context: str = setting("", "Context of the kubeconfig; empty for its current one.", flag="context")
    qps: float = setting(80.0, "Requests a second to an API server. 0: no limit.", flag="kubernetesApiQPS")
    burst: int = setting(160, "Requests to an API server that may be made at once.", flag="kubernetesApiBurst")
    ignored: tuple[str, ...] = setting(
        (), "Kinds that are not read, as plural.group or *.group.", env="PILOT_IGNORE_RESOURCES"
    )
    included: tuple[str, ...] = setting(
        (), "Of the kinds that are not read those that are nevertheless.", env="PILOT_INCLUDE_RESOURCES"
    )
    shared_mesh_config: str = setting(
        "", "ConfigMap with a mesh config that lies below the revision's own.", env="SHARED_MESH_CONFIG"
    )
    remote_timeout: Duration = setting(
        parse_duration("30s"),
        "Time that the start waits for another cluster to be read; 0s: as long as it takes.",
        env="PILOT_REMOTE_CLUSTER_TIMEOUT",
    )
    remote_options: tuple[str, ...] = setting(
        (),
        "Options that kubeconfigs of other clusters may use although they run programs, read files or skip verification: exec, authProvider, "
        "clientCertificate, clientKey, tokenFile, certificateAuthority, insecureSkipTLSVerify.",
        env="PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS",
    )
    watched_namespace: str = setting(
        "", "Read only this namespace, and what lies in none; empty for all.", env="ISTIO_WATCH_NAMESPACE"
    )
    kubeconfig_folder: str = setting(
        "",
        "Folder of kubeconfigs (.yaml, .yml) of other clusters, each named by the cluster of its current context; it is followed, and takes the "
        "place of the Secrets.",
        env="PILOT_MULTICLUSTER_KUBECONFIG_PATH",
    )
    external: bool = setting(
        False,
        "This control plane is outside of the clusters that it serves: it writes into those in which the namespace of its name has its own "
        "cluster in the annotation topology.istio.io/controlPlaneClusters.",
        env="EXTERNAL_ISTIOD",
    )
    secrets_of_this_cluster: bool = setting(
        False,
        "With EXTERNAL_ISTIOD, Secrets that name clusters are read where this process runs, not where configuration is.",
        env="LOCAL_CLUSTER_SECRET_WATCHER",
    )
    remote_credentials: bool = setting(
        True,
        "Read the Secrets of other clusters, for the gateways there.",
        env="PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER",
    )
    remote_entries: bool = setting(
        True, "Read the WorkloadEntries of other clusters.", env="PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY"
    )
    untaint_nodes: bool = setting(
        False,
        "Take a taint from nodes on which the pod of the network plugin is ready.",
        env="PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS",
    )
    taint: str = setting(
        "cni.istio.io/not-ready", "Key of that taint.", env="PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME"
    )
    cni_namespace: str = setting(
        "", "Namespace of the pods of the network plugin; empty for the control plane's.", flag="cniNamespace"
    )
    leader_election: bool = setting(
        True, "Of several replicas only a leader writes. Without it every one does.", env="ENABLE_LEADER_ELECTION"
    )
    trust_bundle: bool = setting(
        False,
        "Write the root certificates into the ClusterTrustBundle istio.io:istiod-ca:root-cert, and into no ConfigMap.",
        env="ENABLE_CLUSTER_TRUST_BUNDLE_API",
    )
    auto_export: bool = setting(
        False,
        "Make a ServiceExport, whose kind must be defined by then, for each Service that the mesh config does not keep in its cluster.",
        env="ENABLE_MCS_AUTO_EXPORT",
    )
    roots_map: str = setting(
        "istio-ca-root-cert", "ConfigMap with the root certificates in every namespace.", env="PILOT_CA_CERT_CONFIGMAP"
    )
    crl: bool = setting(
        True, "Write a ConfigMap with revoked certificates into every namespace.", env="PILOT_ENABLE_CA_CRL"
    )
    crl_map: str = setting(
        "istio-ca-crl", "ConfigMap with revoked certificates in every namespace.", env="PILOT_CRL_CONFIGMAP"
    )
    registration: bool = setting(
        True,
        "Register workloads outside of Kubernetes whose proxies ask for it.",
        env="PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION",
    )
    registration_grace: Duration = setting(
        parse_duration("10s"),
        "Time that the WorkloadEntry of a proxy that has gone stays.",
        env="PILOT_WORKLOAD_ENTRY_GRACE_PERIOD",
    )
    registration_identity: bool = setting(
        True,
        "A workload is registered only for the namespace and service account that its proxy has proved.",
        env="ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY",
    )
    injection_webhook: str = setting(
        "istio-sidecar-injector",
        "Empty: do not write the roots into webhook configurations for injection.",
        env="INJECTION_WEBHOOK_CONFIG_NAME",
        may_be_empty=True,
    )
    validation_webhook: str = setting(
        "istio-istio-system",
        "Empty: do not write the roots into webhook configurations for validation.",
        env="VALIDATION_WEBHOOK_CONFIG_NAME",
        may_be_empty=True,
    )
    analysis: bool = setting(False, "Write what is wrong with objects into their status.", env="PILOT_ENABLE_ANALYSIS")
    analysis_interval: Duration = setting(
        parse_duration("10s"),
        "Time between two such writings; less than a second counts as ten.",
        env="PILOT_ANALYSIS_INTERVAL",
    )
    watch_lists: bool = setting(
        True, "Read all objects of a kind as a stream where the API server can.", env="PILOT_KUBERNETES_WATCH_LIST"
    )
    gateway_status: bool = setting(
        True, "Write the status of objects of the Gateway API.", env="PILOT_ENABLE_GATEWAY_API_STATUS"
    )
    gateway_classes: bool = setting(
        True, "Make the GatewayClasses that are missing.", env="PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER"
    )
    gateway_deployments: bool = setting(
        True, "Deploy Gateways of the Gateway API.", env="PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER"
    )
    gateway_metadata: bool = setting(
        True,
        "What is deployed for a Gateway has its labels and annotations, where its infrastructure names none.",
        env="PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS",
    )
