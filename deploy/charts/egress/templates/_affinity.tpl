{{/* Copied by `python -m deploy`; do not edit. */ -}}
{{/* The affinity of the gateway's Pods: nodes by architecture and labels, and the user's anti-affinity. */}}
{{- define "gateway-affinity" -}}
{{- $affinity := dict -}}
{{- $labels := .Gateway.nodeSelector | default .Settings.global.defaultNodeSelector | default dict -}}
{{- $expressions := list -}}
{{- $preferred := list -}}
{{- $wanted := list -}}
{{- range $arch, $weight := .Settings.global.arch -}}
  {{- if gt (int $weight) 0 -}}
    {{- $wanted = append $wanted $arch -}}
    {{- $of := dict "key" "kubernetes.io/arch" "operator" "In" "values" (list $arch) -}}
    {{- $preferred = append $preferred (dict "weight" (int $weight) "preference" (dict "matchExpressions" (list $of))) -}}
  {{- end -}}
{{- end -}}
{{- if $wanted }}{{ $expressions = append $expressions (dict "key" "kubernetes.io/arch" "operator" "In" "values" $wanted) }}{{ end -}}
{{- range $key, $value := $labels -}}
  {{- $expressions = append $expressions (dict "key" $key "operator" "In" "values" (list (toString $value))) -}}
{{- end -}}
{{- $nodes := dict -}}
{{- if $expressions -}}
  {{- $_ := set $nodes "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" (list (dict "matchExpressions" $expressions))) -}}
{{- end -}}
{{- if $preferred }}{{ $_ := set $nodes "preferredDuringSchedulingIgnoredDuringExecution" $preferred }}{{ end -}}
{{- if $nodes }}{{ $_ := set $affinity "nodeAffinity" $nodes }}{{ end -}}
{{- $pods := dict -}}
{{- with .Gateway.podAntiAffinityLabelSelector }}{{ $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" (include "pod-terms" . | fromYamlArray) }}{{ end -}}
{{- with .Gateway.podAntiAffinityTermLabelSelector -}}
  {{- $terms := list -}}
  {{- range include "pod-terms" . | fromYamlArray }}{{ $terms = append $terms (dict "weight" 100 "podAffinityTerm" (omit . "namespaces")) }}{{ end -}}
  {{- $_ := set $pods "preferredDuringSchedulingIgnoredDuringExecution" $terms -}}
{{- end -}}
{{- if $pods }}{{ $_ := set $affinity "podAntiAffinity" $pods }}{{ end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* Pod affinity terms, from items whose values and namespaces are separated by commas. */}}
{{- define "pod-terms" -}}
{{- $terms := list -}}
{{- range . -}}
  {{- $expression := pick . "key" "operator" -}}
  {{- with .values }}{{ $_ := set $expression "values" (splitList "," (toString .)) }}{{ end -}}
  {{- $term := dict "labelSelector" (dict "matchExpressions" (list $expression)) "topologyKey" .topologyKey -}}
  {{- with .namespaces }}{{ $_ := set $term "namespaces" (splitList "," (toString .)) }}{{ end -}}
  {{- $terms = append $terms $term -}}
{{- end -}}
{{- toYaml $terms -}}
{{- end -}}
