{{/* Copied by `python -m deploy`; do not edit. */ -}}
{{/*
The client configuration and rules of a validation webhook: (dict "root" $ "service" "istiod"). Its failure policy is Ignore until the
control plane has verified that the webhook responds.
*/}}
{{- define "validation" -}}
{{- $base := .root.Settings.base -}}
admissionReviewVersions: [v1]
clientConfig:
  {{- if $base.validationURL }}
  url: {{ $base.validationURL | quote }}
  {{- else }}
  service:
    name: {{ .service }}
    namespace: {{ .root.Settings.global.istioNamespace }}
    path: /validate
  {{- end }}
  {{- with $base.validationCABundle }}
  caBundle: {{ . | quote }}
  {{- end }}
{{- if $base.validationCABundle }}
failurePolicy: Fail
{{- else if $base.validationFailurePolicy }}
failurePolicy: {{ $base.validationFailurePolicy }}
{{- else if not .root.Release.IsUpgrade }}
failurePolicy: Ignore
{{- end }}
sideEffects: None
rules:
  - apiGroups: [security.istio.io, networking.istio.io, telemetry.istio.io, extensions.istio.io]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: ["*"]
{{- end -}}

{{/*
A policy that denies unstable configuration, and its binding:
(dict "root" $ "component" … "name" … "binding" … "revision" … "own" …). If "own" is true, it applies only to objects of the revision.
*/}}
{{- define "stable-policy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    {{- include "labels" (dict "root" .root "name" "istiod" "component" .component "more" (dict "istio" "istiod" "istio.io/rev" .revision)) | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [security.istio.io, networking.istio.io, telemetry.istio.io, extensions.istio.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: ["*"]
    {{- if .own }}
    objectSelector:
      matchExpressions:
        - {key: istio.io/rev, operator: In, values: [{{ .revision | quote }}]}
    {{- end }}
  validations:
    - expression: "!(object.kind in ['EnvoyFilter', 'WasmPlugin', 'ProxyConfig'])"
      message: this kind is not stable
    - expression: >-
        object.kind != 'Telemetry' ||
        (!(has(object.spec.tracing) && object.spec.tracing.exists(one, has(one.useRequestIdForTraceSampling)))
        && !(has(object.spec.metrics) && object.spec.metrics.exists(one, has(one.reportingInterval)))
        && !(has(object.spec.accessLogging) && object.spec.accessLogging.exists(one, has(one.filter))))
      message: tracing.useRequestIdForTraceSampling, metrics.reportingInterval and accessLogging.filter are not stable
    - expression: >-
        object.kind != 'AuthorizationPolicy' || !has(object.spec.rules) ||
        !object.spec.rules.exists(rule, has(rule.from) && rule.from.exists(one,
        has(one.source) && (has(one.source.trustDomains) || has(one.source.notTrustDomains))))
      message: trustDomains and notTrustDomains are not stable
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .binding }}
  labels:
    {{- include "labels" (dict "root" .root "name" "istiod" "component" .component "more" (dict "istio.io/rev" .revision)) | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end -}}
