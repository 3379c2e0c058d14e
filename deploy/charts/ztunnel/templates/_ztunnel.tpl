{{- define "ztunnel-name" -}}
{{- .Settings.resourceName | default "ztunnel" -}}
{{- end -}}

{{/* Labels of ztunnel's objects, without a revision: (list $ (dict …)). */}}
{{- define "ztunnel-labels" -}}
{{- $root := index . 0 -}}
{{- $part := include "part-of" (dict "root" $root "name" "ztunnel") | fromYaml -}}
{{- mergeOverwrite $part (deepCopy (index . 1)) | toYaml -}}
{{- end -}}

{{- define "ztunnel-annotations" -}}
{{- $found := deepCopy .Settings.annotations -}}
{{- with .Settings.revision }}{{ $_ := set $found "istio.io/rev" . }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Environment variables of ztunnel. Variables that the user sets by name take precedence over other values. */}}
{{- define "ztunnel-variables" -}}
{{- $s := .Settings -}}
{{- $istiod := printf "istiod%s.%s.svc:15012" (empty $s.revision | ternary "" (printf "-%s" $s.revision)) $s.istioNamespace -}}
{{- $set := dict
  "CA_ADDRESS" ($s.caAddress | default $istiod)
  "XDS_ADDRESS" ($s.xdsAddress | default $istiod)
  "RUST_LOG" $s.logLevel
  "RUST_BACKTRACE" "1"
  "ISTIO_META_CLUSTER_ID" ($s.multiCluster.clusterName | default "Kubernetes")
  "INPOD_ENABLED" "true"
  "TERMINATION_GRACE_PERIOD_SECONDS" $s.terminationGracePeriodSeconds
-}}
{{- if $s.logAsJson }}{{ $_ := set $set "LOG_FORMAT" "json" }}{{ end -}}
{{- with $s.network }}{{ $_ := set $set "NETWORK" . }}{{ end -}}
{{- if $s.peerCaCrl.enabled }}{{ $_ := set $set "CRL_PATH" "/var/run/secrets/istio/crl/ca-crl.pem" }}{{ end -}}
{{- include "variables" (mergeOverwrite $set (dig "defaultConfig" "proxyMetadata" dict $s.meshConfig | default dict) ($s.env | default dict)) }}
{{ include "field" (list "POD_NAME" "metadata.name") }}
{{ include "field" (list "POD_NAMESPACE" "metadata.namespace") }}
{{ include "field" (list "NODE_NAME" "spec.nodeName") }}
{{ include "field" (list "INSTANCE_IP" "status.podIP") }}
{{ include "field" (list "SERVICE_ACCOUNT" "spec.serviceAccountName") }}
{{- $amounts := dict "ZTUNNEL_CPU_LIMIT" "limits.cpu" }}
{{- if dig "limits" "cpu" "" ($s.resources | default dict) }}{{ $_ := set $amounts "ZTUNNEL_RESOURCE_CPU_LIMIT" "limits.cpu" }}{{ end }}
{{- if dig "requests" "cpu" "" ($s.resources | default dict) }}{{ $_ := set $amounts "ZTUNNEL_RESOURCE_CPU_REQUEST" "requests.cpu" }}{{ end }}
{{- range $name, $amount := $amounts }}
- name: {{ $name }}
  valueFrom:
    resourceFieldRef: {resource: {{ $amount }}, divisor: "1"}
{{- end }}
{{- end -}}
