{{/* The container of a proxy that is not injected. */}}
{{- define "proxy" -}}
{{- $s := .Settings -}}
- name: istio-proxy
  {{- $proxy := $s.global.proxy }}
  image: {{ include "image" (dict "image" ($proxy.image | default "proxyv2") "hub" $s.global.hub "tag" (.Gateway.tag | default $s.global.tag) "variant" ($proxy.variant | default $s.global.variant)) | quote }}
  args:
    - proxy
    - router
    - --domain
    - $(POD_NAMESPACE).svc.{{ $proxy.clusterDomain }}
    {{- with $proxy.logLevel }}
    - --proxyLogLevel={{ . }}
    {{- end }}
    {{- with $proxy.componentLogLevel }}
    - --proxyComponentLogLevel={{ . }}
    {{- end }}
    {{- with $s.global.logging.level }}
    - --log_output_level={{ . }}
    {{- end }}
    {{- if $s.global.logAsJson }}
    - --log_as_json
    {{- end }}
    {{- with $s.global.sts.servicePort }}
    - --stsPort={{ . }}
    {{- end }}
  readinessProbe:
    httpGet: {path: /healthz/ready, port: 15021, scheme: HTTP}
    initialDelaySeconds: 1
    periodSeconds: 2
    timeoutSeconds: 1
    successThreshold: 1
    failureThreshold: 30
  {{- include "proxy-frame" . | nindent 2 }}
  env:
    {{- include "proxy-variables" . | trim | nindent 4 }}
  volumeMounts:
    {{- include "proxy-mounts" . | trim | nindent 4 }}
{{- end -}}

{{/* The part of the proxy's container that an injection template does not set. */}}
{{- define "injected-proxy" -}}
- name: istio-proxy
  image: auto
  {{- include "proxy-frame" . | nindent 2 }}
  env:
    {{- if not .Gateway.runAsRoot }}
    - {name: ISTIO_META_UNPRIVILEGED_POD, value: "true"}
    {{- end }}
    {{- include "variables" .Gateway.env | nindent 4 }}
  volumeMounts:
    {{- include "user-mounts" . | nindent 4 }}
{{- end -}}

{{/* The common part of both containers. */}}
{{- define "proxy-frame" -}}
{{- with .Settings.global.imagePullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
ports:
  {{- range .Gateway.ports }}
  - {containerPort: {{ .targetPort | default .port }}, protocol: {{ .protocol | default "TCP" }}}
  {{- end }}
  - {name: http-envoy-prom, containerPort: 15090, protocol: TCP}
{{- if not .Gateway.runAsRoot }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  privileged: false
  readOnlyRootFilesystem: true
{{- end }}
resources:
  {{- include "resources" (.Gateway.resources | default .Settings.global.defaultResources) | nindent 2 }}
{{- end -}}

{{/* Environment variables of the agent. Variables that the user sets by name take precedence over other values. */}}
{{- define "proxy-variables" -}}
{{- $s := .Settings -}}
{{- $g := .Gateway -}}
{{- $istiod := printf "istiod%s.%s.svc:15012" ($s.revision | default "" | printf "-%s" | trimSuffix "-") $s.global.istioNamespace -}}
{{- $set := dict
  "PILOT_CERT_PROVIDER" $s.global.pilotCertProvider
  "CA_ADDR" ($s.global.caAddress | default $istiod)
  "ISTIO_META_WORKLOAD_NAME" $g.name
  "ISTIO_META_OWNER" (printf "kubernetes://apis/apps/v1/namespaces/%s/deployments/%s" .Release.Namespace $g.name)
  "ISTIO_META_CLUSTER_ID" ($s.global.multiCluster.clusterName | default "Kubernetes")
-}}
{{- with $s.global.meshID | default $s.meshConfig.trustDomain }}{{ $_ := set $set "ISTIO_META_MESH_ID" . }}{{ end -}}
{{- with $s.meshConfig.trustDomain }}{{ $_ := set $set "TRUST_DOMAIN" . }}{{ end -}}
{{- if not $g.runAsRoot }}{{ $_ := set $set "ISTIO_META_UNPRIVILEGED_POD" "true" }}{{ end -}}
{{- with $s.global.network }}{{ $_ := set $set "ISTIO_META_NETWORK" . }}{{ end -}}
{{- $metadata := dig "defaultConfig" "proxyMetadata" dict $s.meshConfig | default dict -}}
{{- include "variables" (mergeOverwrite $set ($g.env | default dict) $metadata) }}
{{ include "field" (list "NODE_NAME" "spec.nodeName") }}
{{ include "field" (list "POD_NAME" "metadata.name") }}
{{ include "field" (list "POD_NAMESPACE" "metadata.namespace") }}
{{ include "field" (list "INSTANCE_IP" "status.podIP") }}
{{ include "field" (list "HOST_IP" "status.hostIP") }}
{{ include "field" (list "SERVICE_ACCOUNT" "spec.serviceAccountName") }}
{{ include "field" (list "ISTIO_META_NODE_NAME" "spec.nodeName") }}
- name: ISTIO_CPU_LIMIT
  valueFrom:
    resourceFieldRef: {resource: limits.cpu, divisor: "1"}
{{- end -}}

{{- define "proxy-mounts" }}
- {name: workload-socket, mountPath: /var/run/secrets/workload-spiffe-uds}
- {name: credential-socket, mountPath: /var/run/secrets/credential-uds}
- {name: workload-certs, mountPath: /var/run/secrets/workload-spiffe-credentials}
- {name: istio-envoy, mountPath: /etc/istio/proxy}
- {name: config-volume, mountPath: /etc/istio/config}
- {name: istio-token, mountPath: /var/run/secrets/tokens, readOnly: true}
- {name: istio-data, mountPath: /var/lib/istio/data}
- {name: podinfo, mountPath: /etc/istio/pod}
{{- if eq .Settings.global.pilotCertProvider "istiod" }}
- {name: istiod-ca-cert, mountPath: /var/run/secrets/istio}
{{- end }}
{{- if .Settings.global.mountMtlsCerts }}
- {name: istio-certs, mountPath: /etc/certs, readOnly: true}
{{- end }}
{{- include "user-mounts" . }}
{{- end -}}

{{/* Mounts of the user's Secrets and ConfigMaps. */}}
{{- define "user-mounts" -}}
{{- range concat (.Gateway.secretVolumes | default list) (.Gateway.configVolumes | default list) }}
{{- if .mountPath }}
- {name: {{ .name }}, mountPath: {{ .mountPath | quote }}, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "proxy-volumes" }}
{{- range $name := list "workload-socket" "credential-socket" "workload-certs" "istio-envoy" "istio-data" }}
- name: {{ $name }}
  emptyDir: {}
{{- end }}
{{- if eq .Settings.global.pilotCertProvider "istiod" }}
- name: istiod-ca-cert
  {{- $env := dig "pilot" "env" dict .Settings }}
  {{- include "root-certificate" (dict "env" $env "name" .Settings.global.trustBundleName "more" dict) | nindent 2 }}
{{- end }}
- name: podinfo
  downwardAPI:
    items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
- name: istio-token
  projected:
    sources:
      - serviceAccountToken:
          audience: {{ .Settings.global.sds.token.aud }}
          expirationSeconds: 43200
          path: istio-token
{{- if .Settings.global.mountMtlsCerts }}
- name: istio-certs
  secret: {secretName: istio.{{ .Chart.Annotations.gateway }}-service-account, optional: true}
{{- end }}
- name: config-volume
  configMap: {name: istio{{ with .Settings.revision }}-{{ . }}{{ end }}, optional: true}
{{- include "user-volumes" . }}
{{- end -}}

{{- define "user-volumes" -}}
{{- range .Gateway.secretVolumes }}
- name: {{ .name }}
  secret: {secretName: {{ .secretName | quote }}, optional: true}
{{- end }}
{{- range .Gateway.configVolumes }}
- name: {{ .name }}
  configMap: {name: {{ .configMapName | quote }}, optional: true}
{{- end }}
{{- end -}}
