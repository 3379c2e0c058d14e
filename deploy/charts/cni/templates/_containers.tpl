{{/* Copied by `python -m deploy`; do not edit. */ -}}
{{/* The image of a container: "image" if it contains a slash, or else a name below "hub": (dict "image" … "hub" … "tag" … "variant" …). */}}
{{- define "image" -}}
{{- if contains "/" (toString .image) -}}
{{- .image -}}
{{- else -}}
{{- .hub }}/{{ .image }}:{{ .tag }}{{ with .variant }}-{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Resources without null values. */}}
{{- define "resources" -}}
{{- $resources := dict -}}
{{- range $part := list "limits" "requests" -}}
  {{- $amounts := dict -}}
  {{- range $name, $amount := get $ $part | default dict -}}
    {{- if $amount }}{{ $_ := set $amounts $name $amount }}{{ end -}}
  {{- end -}}
  {{- if $amounts }}{{ $_ := set $resources $part $amounts }}{{ end -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* Environment variables from a map. */}}
{{- define "variables" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* An environment variable with the value of a Pod field: (list "POD_NAME" "metadata.name"). */}}
{{- define "field" -}}
- name: {{ index . 0 }}
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: {{ index . 1 }}
{{- end -}}

{{/* The image pull secrets of a service account. */}}
{{- define "pull-secrets" -}}
{{- with . }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The volume source of the mesh's root certificate: (dict "env" … "name" … "more" (dict …)). "name" is the user's name for the
ConfigMap or ClusterTrustBundle, or "".
*/}}
{{- define "root-certificate" -}}
{{- if eq (toString (get (.env | default dict) "ENABLE_CLUSTER_TRUST_BUNDLE_API")) "true" -}}
projected:
  sources:
  - clusterTrustBundle:
      name: istio.io:istiod-ca:{{ .name | default "root-cert" }}
      path: root-cert.pem
      {{- if get .more "optional" }}
      optional: true
      {{- end }}
{{- else -}}
configMap:
  name: {{ .name | default "istio-ca-root-cert" }}
  {{- with .more }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* A quota for Pods of node agents: (dict "name" … "namespace" … "pods" … "labels" text). */}}
{{- define "node-quota" }}
apiVersion: v1
kind: ResourceQuota
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- .labels | nindent 4 }}
spec:
  hard: {pods: {{ .pods | quote }}}
  scopeSelector:
    matchExpressions:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical]}
{{- end -}}
