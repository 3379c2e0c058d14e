{{/* Labels of the agent's objects: (list $ (dict …)). */}}
{{- define "cni-labels" -}}
{{- include "labels" (dict "root" (index . 0) "name" "istio-cni" "component" "Cni" "more" (index . 1)) -}}
{{- end -}}

{{- define "cni-tag" -}}
{{- .Settings.tag | default .Settings.global.tag -}}
{{- end -}}

{{/* Returns "true" if the agent enters the namespaces of Pods. */}}
{{- define "enters-pods" -}}
{{- if or .Settings.repair.repairPods .Settings.ambient.enabled }}true{{ end -}}
{{- end -}}

{{/* Returns "true" if the agent uses the host network. */}}
{{- define "on-host-network" -}}
{{- if and .Settings.ambient.enabled .Settings.ambient.shareHostNetworkNamespace }}true{{ end -}}
{{- end -}}

{{/* A ClusterRole and its binding to the agent: (dict "root" $ "role" … "binding" … "rules" (list …) "labels" …). The labels are those of the binding. */}}
{{- define "cni-granted" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .role }}
  labels:
    {{- include "cni-labels" (list .root (dict "app" "istio-cni")) | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .binding }}
  labels:
    {{- include "cni-labels" (list .root .labels) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .role }}}
subjects:
  - {kind: ServiceAccount, name: istio-cni, namespace: {{ .root.Release.Namespace }}}
{{- end -}}
