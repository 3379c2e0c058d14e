"""Settings for reading from and writing to Kubernetes."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class KubernetesSettings:
    """Settings for access to API servers, and for the objects that are read and written there.

    An API server is used if a kubeconfig is given or the process runs in a Pod. With --configDir, KUBECONFIG is
    ignored.
    """

    kubeconfig: str = setting(
        "",
        "Kubeconfig file for the API server to read from. If empty, the pod's service account is used.",
        flag="kubeconfig",
    )
    kubeconfig_env: str = setting(
        "", "Kubeconfig file to use if neither --kubeconfig nor --configDir is set.", env="KUBECONFIG"
    )
    service_host: str = setting(
        "",
        "Set by Kubernetes in every pod. The process uses it to detect that it runs in a pod.",
        env="KUBERNETES_SERVICE_HOST",
    )
    context: str = setting("", "Context of the kubeconfig. If empty, the current context is used.", flag="context")
    qps: float = setting(
        80.0, "Maximum number of requests per second to an API server. 0 means no limit.", flag="kubernetesApiQPS"
    )
    burst: int = setting(160, "Maximum burst of requests to an API server.", flag="kubernetesApiBurst")
    ignored: tuple[str, ...] = setting((), "Kinds to ignore, as PLURAL.GROUP or *.GROUP.", env="PILOT_IGNORE_RESOURCES")
    included: tuple[str, ...] = setting(
        (),
        "Kinds to read even if PILOT_IGNORE_RESOURCES matches them, in the same format.",
        env="PILOT_INCLUDE_RESOURCES",
    )
    shared_mesh_config: str = setting(
        "",
        "Name of a ConfigMap with a base mesh configuration. The revision's ConfigMap overrides it.",
        env="SHARED_MESH_CONFIG",
    )
    remote_timeout: Duration = setting(
        parse_duration("30s"),
        "Maximum time to wait at startup for the objects of a remote cluster. 0s means no limit.",
        env="PILOT_REMOTE_CLUSTER_TIMEOUT",
    )
    remote_options: tuple[str, ...] = setting(
        (),
        "Kubeconfig options to allow for remote clusters: exec, authProvider, clientCertificate, clientKey, "
        "tokenFile, certificateAuthority, insecureSkipTLSVerify. All of them are rejected by default, because "
        "they run programs, read files or skip verification.",
        env="PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS",
    )
    watched_namespace: str = setting(
        "",
        "Namespace to watch, along with cluster-scoped objects. If empty, all namespaces are watched.",
        env="ISTIO_WATCH_NAMESPACE",
    )
    kubeconfig_folder: str = setting(
        "",
        "Directory to watch for kubeconfig files (.yaml, .yml) of remote clusters, in place of Secrets. The "
        "cluster ID is the name of the cluster in the kubeconfig's current context.",
        env="PILOT_MULTICLUSTER_KUBECONFIG_PATH",
    )
    external: bool = setting(
        False,
        "Run outside the clusters that this control plane manages. The control plane writes to a remote "
        "cluster only if, in that cluster, the annotation topology.istio.io/controlPlaneClusters on the control "
        "plane's namespace lists the control plane's own cluster ID or *.",
        env="EXTERNAL_ISTIOD",
    )
    secrets_of_this_cluster: bool = setting(
        False,
        "With EXTERNAL_ISTIOD, read the Secrets that define remote clusters from the cluster in which the "
        "process runs instead of the cluster that holds the configuration.",
        env="LOCAL_CLUSTER_SECRET_WATCHER",
    )
    remote_credentials: bool = setting(
        True,
        "Read Secrets in remote clusters for the gateways in those clusters.",
        env="PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER",
    )
    remote_entries: bool = setting(
        True, "Read WorkloadEntries in remote clusters.", env="PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY"
    )
    untaint_nodes: bool = setting(
        False,
        "Remove a taint from each node on which the pod of the CNI plugin is ready.",
        env="PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS",
    )
    taint: str = setting(
        "cni.istio.io/not-ready",
        "Key of the taint that PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS removes.",
        env="PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME",
    )
    cni_namespace: str = setting(
        "", "Namespace of the CNI plugin's pods. If empty, the control plane's namespace is used.", flag="cniNamespace"
    )
    leader_election: bool = setting(
        True,
        "Elect a leader among the replicas. Only the leader writes to the cluster. If false, every replica writes.",
        env="ENABLE_LEADER_ELECTION",
    )
    trust_bundle: bool = setting(
        False,
        "Write the root certificates to the ClusterTrustBundle istio.io:istiod-ca:root-cert instead of ConfigMaps.",
        env="ENABLE_CLUSTER_TRUST_BUNDLE_API",
    )
    auto_export: bool = setting(
        False,
        "Create a ServiceExport for each Service that the mesh configuration does not make cluster-local. The "
        "ServiceExport CRD must be installed first.",
        env="ENABLE_MCS_AUTO_EXPORT",
    )
    mcs_group: str = setting(
        "multicluster.x-k8s.io", "API group of ServiceExports and ServiceImports.", env="MCS_API_GROUP"
    )
    mcs_version: str = setting("v1alpha1", "API version of ServiceExports and ServiceImports.", env="MCS_API_VERSION")
    roots_map: str = setting(
        "istio-ca-root-cert",
        "Name of the ConfigMap with the root certificates in each namespace.",
        env="PILOT_CA_CERT_CONFIGMAP",
    )
    crl: bool = setting(
        True, "Write a ConfigMap with the certificate revocation list into each namespace.", env="PILOT_ENABLE_CA_CRL"
    )
    crl_map: str = setting(
        "istio-ca-crl", "Name of the ConfigMap with the certificate revocation list.", env="PILOT_CRL_CONFIGMAP"
    )
    registration: bool = setting(
        True,
        "Register workloads outside Kubernetes when their proxies request it.",
        env="PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION",
    )
    registration_grace: Duration = setting(
        parse_duration("10s"),
        "Time that a registered WorkloadEntry is kept after its proxy has disconnected.",
        env="PILOT_WORKLOAD_ENTRY_GRACE_PERIOD",
    )
    registration_identity: bool = setting(
        True,
        "Reject the registration of a workload if its namespace or service account differs from the proxy's "
        "authenticated identity.",
        env="ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY",
    )
    injection_webhook: str = setting(
        "istio-sidecar-injector",
        "If empty, the root certificates are not written into the webhook configurations for injection. Any other "
        "value enables writing; the name itself is not used, because the label istio.io/rev selects the "
        "configurations.",
        env="INJECTION_WEBHOOK_CONFIG_NAME",
        may_be_empty=True,
    )
    validation_webhook: str = setting(
        "istio-istio-system",
        "If empty, the root certificates are not written into the webhook configurations for validation. Any other "
        "value enables writing; the name itself is not used, because the label istio.io/rev selects the "
        "configurations.",
        env="VALIDATION_WEBHOOK_CONFIG_NAME",
        may_be_empty=True,
    )
    analysis: bool = setting(False, "Write analysis messages to the status of objects.", env="PILOT_ENABLE_ANALYSIS")
    analysis_interval: Duration = setting(
        parse_duration("10s"),
        "Interval at which analysis messages are written. If it is less than 1s, 10s is used.",
        env="PILOT_ANALYSIS_INTERVAL",
    )
    delivery_status: bool = setting(
        False,
        "Write the condition Reconciled into the status of Istio objects. It tells how many proxies have the last "
        "change of the object.",
        env="PILOT_ENABLE_STATUS",
    )
    watch_lists: bool = setting(
        True, "Use streaming lists (WatchList) if the API server supports them.", env="PILOT_KUBERNETES_WATCH_LIST"
    )
    gateway_status: bool = setting(
        True, "Write the status of Gateway API objects.", env="PILOT_ENABLE_GATEWAY_API_STATUS"
    )
    gateway_classes: bool = setting(
        True, "Create missing GatewayClasses.", env="PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER"
    )
    gateway_deployments: bool = setting(
        True, "Deploy proxies for Gateway API Gateways.", env="PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER"
    )
    gateway_metadata: bool = setting(
        True,
        "Copy a Gateway's labels and annotations to the objects deployed for it, unless its "
        "spec.infrastructure sets them.",
        env="PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS",
    )
