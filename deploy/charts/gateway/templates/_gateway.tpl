{{- define "gateway-name" -}}
{{- if .Settings.name -}}
{{- .Settings.name -}}
{{- else if eq .Release.Name "RELEASE-NAME" -}}
istio-ingressgateway
{{- else -}}
{{- .Release.Name -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the gateway's Pods. */}}
{{- define "gateway-selected" -}}
{{- $name := include "gateway-name" . -}}
app: {{ .Settings.labels.app | default $name | quote }}
istio: {{ .Settings.labels.istio | default (trimPrefix "istio-" $name) | quote }}
{{- end -}}

{{/* Labels of the gateway's objects, with additional ones: (list $ (dict …)). */}}
{{- define "gateway-labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "gateway-selected" $root | fromYaml -}}
{{- $part := include "part-of" (dict "root" $root "name" (include "gateway-name" $root)) | fromYaml -}}
{{- mergeOverwrite $part (deepCopy $root.Settings.labels) $own (index . 1) | toYaml -}}
{{- end -}}

{{- define "gateway-account" -}}
{{- $account := .Settings.serviceAccount -}}
{{- $account.name | default ($account.create | ternary (include "gateway-name" .) "default") -}}
{{- end -}}

{{/* The type and metadata of an object: (list $ "v1" "Service" name (dict …)). The dict has additional labels. */}}
{{- define "gateway-head" -}}
{{- $root := index . 0 -}}
apiVersion: {{ index . 1 }}
kind: {{ index . 2 }}
metadata:
  name: {{ index . 3 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "gateway-labels" (list $root (index . 4)) | nindent 4 }}
{{- end -}}

{{/* The ports of the gateway's Service. */}}
{{- define "gateway-ports" -}}
{{- if .Settings.networkGateway -}}
{{- range $name := list "status-port" "tls" "tls-istiod" "tls-webhook" }}
{{- $port := get $.Settings.networkGatewayPorts $name | required (printf "networkGatewayPorts.%s is required if networkGateway is set" $name) }}
- {name: {{ $name }}, port: {{ $port.port }}, targetPort: {{ $port.targetPort | default $port.port }}, protocol: {{ $port.protocol | default "TCP" }}}
{{- end }}
{{- else if .Settings.service.ports -}}
{{ toYaml .Settings.service.ports }}
{{- else -}}
{{- fail "service.ports must not be empty unless networkGateway is set" -}}
{{- end -}}
{{- end -}}
