{{/* A name with the revision as suffix: (list $ "istiod"). */}}
{{- define "revised" -}}
{{- index . 1 }}{{ with (index . 0).Settings.revision }}-{{ . }}{{ end -}}
{{- end -}}

{{/* Labels that select the Pods of this control plane. */}}
{{- define "selected" -}}
app: istiod
{{- if .Settings.revision }}
istio.io/rev: {{ .Settings.revision | quote }}
{{- else }}
istio: pilot
{{- end }}
{{- end -}}

{{/* Labels of the control plane's objects: (list $ (dict "app" "istiod")). */}}
{{- define "istiod-labels" -}}
{{- include "labels" (dict "root" (index . 0) "name" "istiod" "component" "Pilot" "more" (index . 1)) -}}
{{- end -}}

{{/* Returns "true" if the control plane runs in this cluster. */}}
{{- define "runs-here" -}}
{{- if or (not .Settings.istiodRemote.enabled) .Settings.istiodRemote.enabledLocalInjectorIstiod -}}true{{- end -}}
{{- end -}}

{{/* Returns "true" if configuration in this cluster is validated. */}}
{{- define "validates" -}}
{{- if or (include "runs-here" .) .Settings.global.configCluster -}}true{{- end -}}
{{- end -}}
