{{/* A name with the revision behind it: (list $ "istiod"). */}}
{{- define "revised" -}}
{{- index . 1 }}{{ with (index . 0).Settings.revision }}-{{ . }}{{ end -}}
{{- end -}}

{{/* Labels that the pods of this control plane, and of no other, have. */}}
{{- define "selected" -}}
app: istiod
{{- if .Settings.revision }}
istio.io/rev: {{ .Settings.revision | quote }}
{{- else }}
istio: pilot
{{- end }}
{{- end -}}

{{/* Labels of an object of the control plane: (list $ (dict "app" "istiod")). */}}
{{- define "istiod-labels" -}}
{{- include "labels" (dict "root" (index . 0) "name" "istiod" "component" "Pilot" "more" (index . 1)) -}}
{{- end -}}

{{/* Returns "true" where the control plane's process runs in this cluster. */}}
{{- define "runs-here" -}}
{{- if or (not .Settings.istiodRemote.enabled) .Settings.istiodRemote.enabledLocalInjectorIstiod -}}true{{- end -}}
{{- end -}}

{{/* Returns "true" where configuration of this cluster is validated. */}}
{{- define "validates" -}}
{{- if or (include "runs-here" .) .Settings.global.configCluster -}}true{{- end -}}
{{- end -}}
