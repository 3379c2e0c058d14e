{{/* Copied by `python -m deploy`; do not edit. */ -}}
{{/*
Makes `.Settings` of the values, once for all templates: the chart's defaults, the layers that are chosen by name, and over them what the
user says. Values are under `chartDefaults` in values.yaml because Helm would otherwise not tell what is a default and what a user said.
An annotation of the chart, `lifted`, names a key whose values count as if they stood at the top.
*/}}
{{- define "settings" -}}
{{- if not (hasKey . "Settings") -}}
  {{- $said := deepCopy (omit .Values "chartDefaults") -}}
  {{- $global := get $said "global" | default dict -}}
  {{- $layers := .Files.Get "files/layers.yaml" | fromYaml -}}
  {{- $settings := deepCopy .Values.chartDefaults -}}
  {{- $annotations := .Chart.Annotations | default dict -}}
  {{- $lifted := index $annotations "lifted" | default "" -}}
  {{- range $word := list "profile" "compatibilityVersion" "platform" -}}
    {{- $name := coalesce (get $said $word) (eq $word "compatibilityVersion" | ternary "" (get $global $word)) -}}
    {{- if $name -}}
      {{- if not (hasKey (index $layers $word) (toString $name)) -}}
        {{- fail (printf "unknown %s %v" (eq $word "compatibilityVersion" | ternary "compatibility version" $word) $name) -}}
      {{- end -}}
      {{- $layer := index $layers $word (toString $name) -}}
      {{- $settings = mergeOverwrite $settings $layer (deepCopy (get $layer $lifted | default dict)) -}}
    {{- end -}}
  {{- end -}}
  {{- if index $annotations "flat-global" -}}
    {{- $settings = mergeOverwrite $settings (deepCopy ($settings.global | default dict)) $global -}}
  {{- end -}}
  {{- $settings = mergeOverwrite $settings $said (deepCopy (get $said $lifted | default dict)) -}}
  {{- $_ := set . "Settings" $settings -}}
{{- end -}}
{{- end -}}

{{/* Returns "true" where objects of a scope, `namespace` or `cluster`, are wanted: (list $ "cluster"). */}}
{{- define "wanted" -}}
{{- $scope := (index . 0).Settings.global.resourceScope | default "all" -}}
{{- if or (eq $scope "all") (eq $scope (index . 1)) -}}true{{- end -}}
{{- end -}}

{{/* Returns "openshift" and the like, "" where the platform is not said. */}}
{{- define "platform" -}}
{{- coalesce .Settings.platform .Settings.global.platform | default "" -}}
{{- end -}}
