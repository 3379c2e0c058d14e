{{/* Copied by `python -m deploy`; do not edit. */ -}}
{{/* The image of a container: a whole name, or the name in a registry: (dict "image" … "hub" … "tag" … "variant" …). */}}
{{- define "image" -}}
{{- if contains "/" (toString .image) -}}
{{- .image -}}
{{- else -}}
{{- .hub }}/{{ .image }}:{{ .tag }}{{ with .variant }}-{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Resources without what is null in them. */}}
{{- define "resources" -}}
{{- $found := dict -}}
{{- range $part := list "limits" "requests" -}}
  {{- $amounts := dict -}}
  {{- range $name, $amount := get $ $part | default dict -}}
    {{- if $amount }}{{ $_ := set $amounts $name $amount }}{{ end -}}
  {{- end -}}
  {{- if $amounts }}{{ $_ := set $found $part $amounts }}{{ end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Variables of a map, as text. */}}
{{- define "variables" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* A variable that is a field of the pod: (list "POD_NAME" "metadata.name"). */}}
{{- define "field" -}}
- name: {{ index . 0 }}
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: {{ index . 1 }}
{{- end -}}

{{/* The secrets that images are pulled with, of a service account. */}}
{{- define "pull-secrets" -}}
{{- with . }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The source of the root certificate of the mesh, in a volume: (dict "env" … "name" the name that the user gave "more" (dict …)). */}}
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

{{/* A quota that lets as many pods of a node's own agents run: (dict "name" … "namespace" … "pods" … "labels" text). */}}
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
