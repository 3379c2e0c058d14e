{{/* A name with the revision as suffix. */}}
{{- define "name" -}}
istio-operator{{ with .Values.revision }}-{{ . }}{{ end }}
{{- end -}}

{{/* The name of cluster-scoped objects, which differs between operators in different namespaces. */}}
{{- define "cluster-name" -}}
{{ include "name" . }}{{ if ne .Values.operatorNamespace "istio-operator" }}-{{ .Values.operatorNamespace }}{{ end }}
{{- end -}}

{{/* The watched namespaces as a YAML list, empty for all namespaces. */}}
{{- define "watched" -}}
{{- $names := list -}}
{{- range $name := splitList "," (nospace (.Values.watchedNamespaces | default "")) -}}
{{- if $name }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- toYaml ($names | uniq) -}}
{{- end -}}

{{/* Labels of an object. */}}
{{- define "labels" -}}
name: {{ include "name" . }}
app.kubernetes.io/name: istio-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The subject of role bindings. */}}
{{- define "subjects" -}}
- {kind: ServiceAccount, name: {{ include "name" . }}, namespace: {{ .Values.operatorNamespace }}}
{{- end -}}

{{/* A Role and its binding: (dict "root" $ "name" … "namespace" … "rules" (list …)). */}}
{{- define "role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "labels" .root | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "labels" .root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
subjects:
  {{- include "subjects" .root | nindent 2 }}
{{- end -}}
