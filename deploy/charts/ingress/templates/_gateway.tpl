{{/* Sets `.Gateway` to the values of the chart's gateway. */}}
{{- define "gateway" -}}
{{- include "settings" . -}}
{{- if not (hasKey . "Gateway") }}{{ $_ := set . "Gateway" (index .Settings.gateways .Chart.Annotations.gateway) }}{{ end -}}
{{- end -}}

{{/* Labels of the gateway's objects: (list $ (dict …)). */}}
{{- define "gateway-labels" -}}
{{- $root := index . 0 -}}
{{- include "labels" (dict "root" $root "name" $root.Chart.Annotations.gateway "component" $root.Chart.Annotations.component "more" (index . 1)) -}}
{{- end -}}

{{/* Returns "true" if the proxy is injected. */}}
{{- define "injected" -}}
{{- if .Gateway.injectionTemplate }}true{{ end -}}
{{- end -}}

{{/* Labels of the gateway's Pods. */}}
{{- define "gateway-pod-labels" -}}
{{- $g := .Gateway -}}
{{- $version := get $g.labels "app.kubernetes.io/version" | default (get $g.labels "version") | default .Settings.revision | default "latest" -}}
{{- $labels := dict
  "service.istio.io/canonical-name" $g.name
  "service.istio.io/canonical-revision" (toString $version)
  "sidecar.istio.io/inject" (empty $g.injectionTemplate | ternary "false" "true")
-}}
{{- if include "injected" . -}}
  {{- with .Settings.revision }}{{ $_ := set $labels "istio.io/rev" . }}{{ end -}}
{{- else -}}
  {{- $_ := set $labels "istio.io/rev" (.Settings.revision | default "default") -}}
  {{- $_ := set $labels "istio.io/dataplane-mode" "none" -}}
{{- end -}}
{{- if eq .Release.Namespace "istio-system" -}}
  {{- $labels = merge $labels (dict "heritage" "Tiller" "release" "istio" "chart" "gateways") -}}
{{- end -}}
{{- $owner := include "owner" (dict "root" . "component" .Chart.Annotations.component) | fromYaml -}}
{{- $part := include "part-of" (dict "root" . "name" .Chart.Annotations.gateway) | fromYaml -}}
{{- merge (deepCopy $g.labels) $labels $owner $part | toYaml -}}
{{- end -}}

{{/* Annotations of the gateway's Pods. */}}
{{- define "gateway-pod-annotations" -}}
{{- $annotations := dict "sidecar.istio.io/inject" (empty .Gateway.injectionTemplate | ternary "false" "true") -}}
{{- if include "injected" . -}}
  {{- $_ := set $annotations "inject.istio.io/templates" .Gateway.injectionTemplate -}}
{{- else -}}
  {{- $_ := set $annotations "istio.io/rev" (.Settings.revision | default "default") -}}
{{- end -}}
{{- if .Settings.meshConfig.enablePrometheusMerge -}}
  {{- $annotations = merge $annotations (dict "prometheus.io/port" "15020" "prometheus.io/scrape" "true" "prometheus.io/path" "/stats/prometheus") -}}
{{- end -}}
{{- mergeOverwrite $annotations (.Gateway.podAnnotations | default dict) | toYaml -}}
{{- end -}}
