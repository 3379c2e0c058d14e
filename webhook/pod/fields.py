# ruff: noqa: E501
"""All fields of a Pod in the Kubernetes API, and the fields of gateway deployments that are merged by type.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/

Each line is a type with its fields as `name:type`. `*` before a type means that an absent value differs from zero. `!`
after a name means that zero is serialized. `[T]` is a list of T, and `{T}` is a map from strings to T. `@key` after a
list is its merge key. `@` alone means that the list is merged by value.
"""

FIELDS = """
Pod kind:string apiVersion:string metadata:ObjectMeta spec:PodSpec status:any
ObjectMeta name:string generateName:string namespace:string selfLink:string uid:string resourceVersion:string generation:int \
creationTimestamp:any deletionTimestamp:any deletionGracePeriodSeconds:*int labels:{string} annotations:{string} \
ownerReferences:[OwnerReference]@uid finalizers:[string]@ managedFields:[any]
OwnerReference apiVersion!:string kind!:string name!:string uid!:string controller:*bool blockOwnerDeletion:*bool
PodSpec volumes:[Volume]@name initContainers:[Container]@name containers!:[Container]@name ephemeralContainers:[Container]@name \
restartPolicy:string terminationGracePeriodSeconds:*int activeDeadlineSeconds:*int dnsPolicy:string nodeSelector:{string} \
serviceAccountName:string serviceAccount:string automountServiceAccountToken:*bool nodeName:string hostNetwork:bool hostPID:bool \
hostIPC:bool shareProcessNamespace:*bool securityContext:*PodSecurityContext imagePullSecrets:[LocalObjectReference]@name hostname:string \
subdomain:string affinity:*any schedulerName:string tolerations:[Toleration] hostAliases:[HostAlias]@ip priorityClassName:string \
priority:*int dnsConfig:*PodDNSConfig readinessGates:[PodReadinessGate] runtimeClassName:*string enableServiceLinks:*bool \
preemptionPolicy:*string overhead:{quantity} topologySpreadConstraints:[TopologySpreadConstraint]@topologyKey setHostnameAsFQDN:*bool \
os:*PodOS hostUsers:*bool schedulingGates:[PodSchedulingGate]@name resourceClaims:[PodResourceClaim]@name resources:*ResourceRequirements \
hostnameOverride:*string
Container name!:string image:string command:[string] args:[string] workingDir:string ports:[ContainerPort]@containerPort \
envFrom:[EnvFromSource] env:[EnvVar]@name resources:ResourceRequirements resizePolicy:[any] restartPolicy:*string \
restartPolicyRules:[any] volumeMounts:[VolumeMount]@mountPath volumeDevices:[VolumeDevice]@devicePath livenessProbe:*Probe \
readinessProbe:*Probe startupProbe:*Probe lifecycle:*Lifecycle terminationMessagePath:string terminationMessagePolicy:string \
imagePullPolicy:string securityContext:*SecurityContext stdin:bool stdinOnce:bool tty:bool targetContainerName:string
ContainerPort name:string hostPort:int containerPort!:int protocol:string hostIP:string
EnvFromSource prefix:string configMapRef:*EnvFromReference secretRef:*EnvFromReference
EnvFromReference name:string optional:*bool
EnvVar name!:string value:string valueFrom:*EnvVarSource
EnvVarSource fieldRef:*ObjectFieldSelector resourceFieldRef:*ResourceFieldSelector configMapKeyRef:*KeySelector secretKeyRef:*KeySelector \
fileKeyRef:*any
ObjectFieldSelector apiVersion:string fieldPath!:string
ResourceFieldSelector containerName:string resource!:string divisor:quantity
KeySelector name:string key!:string optional:*bool
ResourceRequirements limits:{quantity} requests:{quantity} claims:[ResourceClaim]
ResourceClaim name!:string request:string
VolumeMount name!:string readOnly:bool recursiveReadOnly:*string mountPath!:string subPath:string mountPropagation:*string subPathExpr:string
VolumeDevice name!:string devicePath!:string
Probe exec:*ExecAction httpGet:*HTTPGetAction tcpSocket:*TCPSocketAction grpc:*GRPCAction initialDelaySeconds:int timeoutSeconds:int \
periodSeconds:int successThreshold:int failureThreshold:int terminationGracePeriodSeconds:*int
ExecAction command:[string]
HTTPGetAction path:string port!:port host:string scheme:string httpHeaders:[HTTPHeader]
HTTPHeader name!:string value!:string
TCPSocketAction port!:port host:string
GRPCAction port!:int service:*string
Lifecycle postStart:*LifecycleHandler preStop:*LifecycleHandler stopSignal:*string
LifecycleHandler exec:*ExecAction httpGet:*HTTPGetAction tcpSocket:*TCPSocketAction sleep:*SleepAction
SleepAction seconds!:int
SecurityContext capabilities:*Capabilities privileged:*bool seLinuxOptions:*any windowsOptions:*any runAsUser:*int runAsGroup:*int \
runAsNonRoot:*bool readOnlyRootFilesystem:*bool allowPrivilegeEscalation:*bool procMount:*string seccompProfile:*SeccompProfile \
appArmorProfile:*any
Capabilities add:[string] drop:[string]
SeccompProfile type!:string localhostProfile:*string
PodSecurityContext seLinuxOptions:*any windowsOptions:*any runAsUser:*int runAsGroup:*int runAsNonRoot:*bool supplementalGroups:[int] \
supplementalGroupsPolicy:*string fsGroup:*int sysctls:[Sysctl] fsGroupChangePolicy:*string seccompProfile:*SeccompProfile \
appArmorProfile:*any seLinuxChangePolicy:*string
Sysctl name!:string value!:string
LocalObjectReference name:string
Toleration key:string operator:string value:string effect:string tolerationSeconds:*int
HostAlias ip!:string hostnames:[string]
PodDNSConfig nameservers:[string] searches:[string] options:[PodDNSConfigOption]
PodDNSConfigOption name:string value:*string
PodReadinessGate conditionType!:string
TopologySpreadConstraint maxSkew!:int topologyKey!:string whenUnsatisfiable!:string labelSelector:*any minDomains:*int \
nodeAffinityPolicy:*string nodeTaintsPolicy:*string matchLabelKeys:[string]
PodOS name!:string
PodSchedulingGate name!:string
PodResourceClaim name!:string resourceClaimName:*string resourceClaimTemplateName:*string
Volume name!:string hostPath:*any emptyDir:*EmptyDirVolumeSource gcePersistentDisk:*any awsElasticBlockStore:*any gitRepo:*any \
secret:*SecretVolumeSource nfs:*any iscsi:*any glusterfs:*any persistentVolumeClaim:*PersistentVolumeClaimVolumeSource rbd:*any \
flexVolume:*any cinder:*any cephfs:*any flocker:*any downwardAPI:*DownwardAPIVolumeSource fc:*any azureFile:*any \
configMap:*ConfigMapVolumeSource vsphereVolume:*any quobyte:*any azureDisk:*any photonPersistentDisk:*any \
projected:*ProjectedVolumeSource portworxVolume:*any scaleIO:*any storageos:*any csi:*CSIVolumeSource ephemeral:*any image:*any
EmptyDirVolumeSource medium:string sizeLimit:*quantity
SecretVolumeSource secretName:string items:[KeyToPath] defaultMode:*int optional:*bool
PersistentVolumeClaimVolumeSource claimName!:string readOnly:bool
ConfigMapVolumeSource name:string items:[KeyToPath] defaultMode:*int optional:*bool
KeyToPath key!:string path!:string mode:*int
DownwardAPIVolumeSource items:[DownwardAPIVolumeFile] defaultMode:*int
DownwardAPIVolumeFile path!:string fieldRef:*ObjectFieldSelector resourceFieldRef:*ResourceFieldSelector mode:*int
ProjectedVolumeSource sources:[VolumeProjection] defaultMode:*int
VolumeProjection secret:*any downwardAPI:*any configMap:*any serviceAccountToken:*ServiceAccountTokenProjection \
clusterTrustBundle:*ClusterTrustBundleProjection podCertificate:*any
ServiceAccountTokenProjection audience:string expirationSeconds:*int path!:string
ClusterTrustBundleProjection name:*string signerName:*string labelSelector:*any optional:*bool path!:string
CSIVolumeSource driver!:string readOnly:*bool fsType:*string volumeAttributes:{string} nodePublishSecretRef:*LocalObjectReference
Deployment kind:string apiVersion:string metadata:ObjectMeta spec:DeploymentSpec status:any
DaemonSet kind:string apiVersion:string metadata:ObjectMeta spec:DeploymentSpec status:any
DeploymentSpec replicas:*int selector:any template:PodTemplateSpec strategy:any
PodTemplateSpec metadata:ObjectMeta spec:PodSpec
Service kind:string apiVersion:string metadata:ObjectMeta spec:ServiceSpec status:any
ServiceSpec ports:[ServicePort]@port selector:{string} type:string
ServicePort name:string port!:int protocol:string appProtocol:*string targetPort:any nodePort:int
ServiceAccount kind:string apiVersion:string metadata:ObjectMeta secrets:[LocalObjectReference]@name \
imagePullSecrets:[LocalObjectReference]@name automountServiceAccountToken:*bool
HorizontalPodAutoscaler kind:string apiVersion:string metadata:ObjectMeta spec:any status:any
PodDisruptionBudget kind:string apiVersion:string metadata:ObjectMeta spec:any status:any
"""
