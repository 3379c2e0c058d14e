{{/*
An injection webhook: (dict "root" $ "prefix" "rev.namespace." "namespaces" (list …) "pods" (list …)). The lists are match expressions
for namespaces and Pods.
*/}}
{{- define "injection-webhook" -}}
{{- $s := .root.Settings -}}
- name: {{ .prefix }}sidecar-injector.istio.io
  admissionReviewVersions: [v1]
  clientConfig:
    {{- if $s.istiodRemote.injectionURL }}
    url: {{ $s.istiodRemote.injectionURL | quote }}
    {{- else }}
    service:
      name: {{ include "revised" (list .root "istiod") }}
      namespace: {{ .root.Release.Namespace }}
      path: {{ $s.istiodRemote.injectionPath | quote }}
      port: 443
    {{- end }}
    {{- with $s.istiodRemote.injectionCABundle }}
    caBundle: {{ . | quote }}
    {{- end }}
  failurePolicy: Fail
  reinvocationPolicy: {{ $s.sidecarInjectorWebhook.reinvocationPolicy }}
  sideEffects: None
  rules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [pods]
  namespaceSelector:
    matchExpressions:
      {{- toYaml .namespaces | nindent 6 }}
  objectSelector:
    matchExpressions:
      {{- toYaml .pods | nindent 6 }}
{{- end -}}

{{/*
The injection webhooks of a revision or tag: (dict "root" $ "named" "default" "unlabelled" true). The label of a namespace takes
precedence over that of a Pod. If `unlabelled` is true, webhooks for namespaces and Pods without a revision are included.
*/}}
{{- define "injection-webhooks" -}}
{{- $no_revision := dict "key" "istio.io/rev" "operator" "DoesNotExist" -}}
{{- $revision := dict "key" "istio.io/rev" "operator" "In" "values" (list .named) -}}
{{- $no_switch := dict "key" "istio-injection" "operator" "DoesNotExist" -}}
{{- $on := dict "key" "istio-injection" "operator" "In" "values" (list "enabled") -}}
{{- $not_refused := dict "key" "sidecar.istio.io/inject" "operator" "NotIn" "values" (list "false") -}}
{{- $asked := dict "key" "sidecar.istio.io/inject" "operator" "In" "values" (list "true") -}}
{{- $silent := dict "key" "sidecar.istio.io/inject" "operator" "DoesNotExist" -}}
{{- $system := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease" "local-path-storage") -}}
{{ include "injection-webhook" (dict "root" .root "prefix" "rev.namespace." "namespaces" (list $revision $no_switch) "pods" (list $not_refused)) }}
{{ include "injection-webhook" (dict "root" .root "prefix" "rev.object." "namespaces" (list $no_revision $no_switch) "pods" (list $not_refused $revision)) }}
{{- if .unlabelled }}
{{ include "injection-webhook" (dict "root" .root "prefix" "namespace." "namespaces" (list $on) "pods" (list $not_refused)) }}
{{ include "injection-webhook" (dict "root" .root "prefix" "object." "namespaces" (list $no_switch $no_revision) "pods" (list $asked $no_revision)) }}
{{- if .root.Settings.sidecarInjectorWebhook.enableNamespacesByDefault }}
{{ include "injection-webhook" (dict "root" .root "prefix" "auto." "namespaces" (list $no_switch $no_revision $system) "pods" (list $silent $no_revision)) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A MutatingWebhookConfiguration for injection: (dict "root" $ "name" … "named" … "unlabelled" … "more" (dict …)). */}}
{{- define "injection-configuration" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: {{ .name }}{{ if ne .root.Release.Namespace "istio-system" }}-{{ .root.Release.Namespace }}{{ end }}
  labels:
    {{- include "istiod-labels" (list .root (merge (dict "app" "sidecar-injector") .more)) | nindent 4 }}
  {{- with .root.Settings.sidecarInjectorWebhookAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
webhooks:
  {{- include "injection-webhooks" . | nindent 2 }}
{{- end -}}
