"""The fields of an IstioOperator in the notation of webhook/pod/fields.py: each line is a type and its fields.

The fields of spec are those of https://istio.io/latest/docs/reference/config/istio.operator.v1alpha1/, and the fields
of the values are those of the charts. `count` is an integer, which may be quoted. `tag` is a string or a number. `map`
is any mapping, and `maps` is a list of mappings.
"""

FIELDS = """
IstioOperator apiVersion:string kind:string metadata:map spec:Spec
Spec profile:string installPackagePath:string hub:string tag:tag namespace:string revision:string \
compatibilityVersion:tag meshConfig:map components:Components values:Values unvalidatedValues:any
Components base:BaseComponent pilot:Component cni:Component ztunnel:Component istiodRemote:Component \
ingressGateways:[GatewayComponent] egressGateways:[GatewayComponent]
BaseComponent enabled:bool k8s:Settings
Component enabled:bool namespace:string hub:string tag:tag k8s:Settings
GatewayComponent enabled:bool namespace:string hub:string tag:tag k8s:Settings name:string label:{string}
Settings affinity:Affinity env:[EnvVar] hpaSpec:AutoscalerSpec imagePullPolicy:string nodeSelector:{string} \
podDisruptionBudget:BudgetSpec podAnnotations:{string} priorityClassName:string readinessProbe:Probe replicaCount:int \
resources:ResourceRequirements service:ServiceSpec strategy:Strategy tolerations:[Toleration] \
serviceAnnotations:{string} securityContext:PodSecurityContext volumes:[Volume] volumeMounts:[VolumeMount] \
overlays:[Overlay]
Overlay apiVersion:string kind:string name:string patches:[Patch]
Patch path:string value:any
Affinity nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity
NodeAffinity requiredDuringSchedulingIgnoredDuringExecution:NodeSelector \
preferredDuringSchedulingIgnoredDuringExecution:[PreferredNodes]
NodeSelector nodeSelectorTerms:[NodeSelectorTerm]
NodeSelectorTerm matchExpressions:[Expression] matchFields:[Expression]
PreferredNodes weight:int preference:NodeSelectorTerm
PodAffinity requiredDuringSchedulingIgnoredDuringExecution:[PodTerm] \
preferredDuringSchedulingIgnoredDuringExecution:[PreferredPods]
PodTerm labelSelector:LabelSelector namespaces:[string] topologyKey:string namespaceSelector:LabelSelector \
matchLabelKeys:[string] mismatchLabelKeys:[string]
PreferredPods weight:int podAffinityTerm:PodTerm
LabelSelector matchLabels:{string} matchExpressions:[Expression]
Expression key:string operator:string values:[string]
AutoscalerSpec scaleTargetRef:ScaleTarget minReplicas:int maxReplicas:int metrics:maps behavior:map
ScaleTarget apiVersion:string kind:string name:string
BudgetSpec minAvailable:port maxUnavailable:port selector:LabelSelector unhealthyPodEvictionPolicy:string
Strategy type:string rollingUpdate:RollingUpdate
RollingUpdate maxSurge:port maxUnavailable:port
ServiceSpec ports:[ServicePort] selector:{string} clusterIP:string clusterIPs:[string] type:string \
externalIPs:[string] sessionAffinity:string loadBalancerIP:string loadBalancerSourceRanges:[string] \
externalName:string externalTrafficPolicy:string healthCheckNodePort:int publishNotReadyAddresses:bool \
sessionAffinityConfig:map ipFamilies:[string] ipFamilyPolicy:string allocateLoadBalancerNodePorts:bool \
loadBalancerClass:string internalTrafficPolicy:string trafficDistribution:string
ServicePort name:string protocol:string appProtocol:string port:int targetPort:port nodePort:int
Values profile:string platform:string compatibilityVersion:tag revision:string revisionTags:[string] \
defaultRevision:string ownerName:string global:Global base:Base pilot:Pilot cni:Cni ztunnel:any gateways:Gateways \
istio_cni:CniUse telemetry:Telemetry sidecarInjectorWebhook:Injector istiodRemote:Remote meshConfig:map \
experimental:Experimental gatewayClasses:any
Global arch:{count} certSigners:[string] configValidation:bool defaultNodeSelector:map \
defaultPodDisruptionBudget:Switch defaultResources:Resources defaultTolerations:[Toleration] hub:string \
imagePullPolicy:string imagePullSecrets:[string] istioNamespace:string logAsJson:bool logging:Logging meshID:string \
meshNetworks:map multiCluster:MultiCluster network:string podDNSSearchNamespaces:[string] \
omitSidecarInjectorConfigMap:bool operatorManageWebhooks:bool priorityClassName:string proxy:Proxy \
proxy_init:ProxyInit sds:Sds tag:tag variant:string tracer:Tracer remotePilotAddress:string istiod:Analysis \
pilotCertProvider:string jwtPolicy:string sts:Sts revision:string mountMtlsCerts:bool caAddress:string \
externalIstiod:bool configCluster:bool caName:string platform:string ipFamilies:[string] ipFamilyPolicy:string \
waypoint:Waypoint trustBundleName:string nativeNftables:bool networkPolicy:Switch resourceScope:string \
agentgateway:Image enableReaderRBAC:bool readerServiceAccount:Account profile:string
Switch enabled:bool
Image image:string
Logging level:string
MultiCluster enabled:bool clusterName:string globalDomainSuffix:string includeEnvoyFilter:bool
Account name:string namespace:string
Analysis enableAnalysis:bool
Sds token:map
Sts servicePort:count
Resources limits:{quantity} requests:{quantity}
Proxy autoInject:string clusterDomain:string componentLogLevel:string enableCoreDump:bool excludeInboundPorts:string \
excludeIPRanges:string image:string includeIPRanges:string logLevel:string outlierLogPath:string privileged:bool \
readinessInitialDelaySeconds:count readinessPeriodSeconds:count readinessFailureThreshold:count \
seccompProfile:SeccompProfile startupProbe:StartupProbe statusPort:count resources:Resources tracer:string \
excludeOutboundPorts:string lifecycle:Lifecycle holdApplicationUntilProxyStarts:bool includeInboundPorts:string \
includeOutboundPorts:string variant:string
StartupProbe enabled:bool failureThreshold:count
ProxyInit image:string resources:Resources forceApplyIptables:bool
Tracer datadog:Address lightstep:Address zipkin:Address stackdriver:Stackdriver
Address address:string accessToken:string
Stackdriver debug:bool maxNumberOfAttributes:count maxNumberOfAnnotations:count maxNumberOfMessageEvents:count
Waypoint resources:Resources affinity:Affinity topologySpreadConstraints:[TopologySpreadConstraint] nodeSelector:map \
toleration:[Toleration] tolerations:[Toleration]
Base enableCRDTemplates:bool excludedCRDs:[string] validationFailurePolicy:string validationURL:string \
enableIstioConfigCRDs:bool validateGateway:bool validationCABundle:string
Remote injectionURL:string injectionPath:string injectionCABundle:string enabled:bool enabledLocalInjectorIstiod:bool
Experimental stableValidationPolicy:bool
Telemetry enabled:bool v2:TelemetryV2
TelemetryV2 enabled:bool prometheus:Switch stackdriver:Switch
Injector enableNamespacesByDefault:bool reinvocationPolicy:string neverInjectSelector:[LabelSelector] \
alwaysInjectSelector:[LabelSelector] rewriteAppHTTPProbe:bool injectedAnnotations:map injectionURL:string \
templates:map defaultTemplates:[string] aliases:map
Utilization targetAverageUtilization:count
Pilot enabled:bool autoscaleEnabled:bool autoscaleMin:count autoscaleMax:count autoscaleBehavior:map \
replicaCount:count image:string traceSampling:number resources:Resources cpu:Utilization nodeSelector:map \
keepaliveMaxServerConnectionAge:string deploymentLabels:map deploymentAnnotations:map podLabels:map configMap:bool \
env:map affinity:Affinity rollingMaxSurge:port rollingMaxUnavailable:port tolerations:[Toleration] podAnnotations:map \
serviceAnnotations:map serviceAccountAnnotations:map sidecarInjectorWebhookAnnotations:map \
jwksResolverExtraRootCA:string hub:string tag:tag variant:string seccompProfile:SeccompProfile \
topologySpreadConstraints:[TopologySpreadConstraint] extraContainerArgs:any volumeMounts:[VolumeMount] \
volumes:[Volume] ipFamilies:[string] ipFamilyPolicy:string memory:Utilization cni:CniUse taint:Taint \
trustedZtunnelNamespace:string trustedZtunnelName:string istiodRemote:Remote envVarFrom:[EnvVar] \
crlConfigMapName:string initContainers:[Container] pdb:BudgetSpec trafficDistribution:string \
terminationMessagePolicy:string memoryLimit:quantity plaintextXds:bool networkPolicy:AdmittedNamespaces
AdmittedNamespaces plaintextNamespaces:[string] metricsNamespaces:[string]
Taint enabled:bool namespace:string name:string
CniUse enabled:bool chained:bool provider:string
Cni enabled:bool hub:string tag:tag variant:string image:string pullPolicy:string cniBinDir:string cniConfDir:string \
cniConfFileName:string cniNetnsDir:string excludeNamespaces:[string] affinity:Affinity env:map daemonSetLabels:map \
podAnnotations:map podLabels:map psp_cluster_role:string logLevel:string logging:Logging repair:Repair chained:bool \
resource_quotas:Quotas resourceQuotas:Quotas resources:Resources privileged:bool seccompProfile:SeccompProfile \
ambient:Ambient provider:string rollingMaxUnavailable:port istioOwnedCNIConfig:bool \
istioOwnedCNIConfigFileName:string useAppArmorAnnotation:bool tolerations:[Toleration] updateStrategy:map \
terminationGracePeriodSeconds:count seLinuxOptions:map
Quotas enabled:bool pods:count
Repair enabled:bool hub:string tag:tag image:string labelPods:bool repairPods:bool createEvents:string \
deletePods:bool brokenPodLabelKey:string brokenPodLabelValue:string initContainerName:string
Ambient enabled:bool configDir:string dnsCapture:bool ipv6:bool reconcileIptablesOnStartup:bool \
enablementSelectors:maps shareHostNetworkNamespace:bool enableAmbientDetectionRetry:bool
Gateways enabled:bool istio-ingressgateway:Gateway istio-egressgateway:Gateway securityContext:any seccompProfile:any
Gateway autoscaleEnabled:bool autoscaleMax:count autoscaleMin:count memory:Utilization cpu:Utilization \
customService:bool enabled:bool env:map labels:{string} loadBalancerIP:string loadBalancerSourceRanges:[string] \
name:string nodeSelector:map podAnnotations:map podAntiAffinityLabelSelector:maps \
podAntiAffinityTermLabelSelector:maps ports:[PortOfValues] replicaCount:count resources:Resources \
secretVolumes:[SecretVolume] serviceAnnotations:map type:string rollingMaxSurge:port rollingMaxUnavailable:port \
externalTrafficPolicy:string tolerations:[Toleration] ingressPorts:maps additionalContainers:maps configVolumes:maps \
runAsRoot:bool injectionTemplate:string serviceAccount:Annotated ipFamilies:[string] ipFamilyPolicy:string
Annotated annotations:map
PortOfValues name:string port:count nodePort:count targetPort:count protocol:string
SecretVolume mountPath:string name:string secretName:string
"""
