{{/* Copied by `python -m deploy`; do not edit. */ -}}
{{/* Recommended labels of Kubernetes: (dict "root" $ "name" "istiod"). */}}
{{- define "part-of" -}}
app.kubernetes.io/name: {{ .name | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Release.Service }}
app.kubernetes.io/managed-by: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels with the owner of an object: (dict "root" $ "component" "Pilot"). */}}
{{- define "owner" -}}
install.operator.istio.io/owning-resource: {{ .root.Settings.ownerName | default "unknown" }}
operator.istio.io/component: {{ .component }}
{{- end -}}

{{/* All labels of an object: (dict "root" $ "name" … "component" … "more" (dict …)). */}}
{{- define "labels" -}}
{{- $more := .more | default dict -}}
{{- $release := dict "release" .root.Release.Name "istio.io/rev" (.root.Settings.revision | default "default") -}}
{{- merge (deepCopy $more) $release (include "owner" . | fromYaml) (include "part-of" . | fromYaml) | toYaml -}}
{{- end -}}
