{{/* Copied by `python -m deploy`; do not edit. */ -}}
{{/*
Computes `.Settings` once for all templates: the chart's defaults, overlaid with the selected layers and then the user's values.
Defaults are below `chartDefaults` in values.yaml, because Helm does not tell defaults and user's values apart. The chart's annotation
`lifted` names a key whose values are merged into the top level.
*/}}
{{- define "settings" -}}
{{- if not (hasKey . "Settings") -}}
  {{- $user := deepCopy (omit .Values "chartDefaults") -}}
  {{- $global := get $user "global" | default dict -}}
  {{- $layers := .Files.Get "files/layers.yaml" | fromYaml -}}
  {{- $settings := deepCopy .Values.chartDefaults -}}
  {{- $annotations := .Chart.Annotations | default dict -}}
  {{- $lifted := index $annotations "lifted" | default "" -}}
  {{- range $word := list "profile" "compatibilityVersion" "platform" -}}
    {{- $name := coalesce (get $user $word) (eq $word "compatibilityVersion" | ternary "" (get $global $word)) -}}
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
  {{- $settings = mergeOverwrite $settings $user (deepCopy (get $user $lifted | default dict)) -}}
  {{- $_ := set . "Settings" $settings -}}
{{- end -}}
{{- end -}}

{{/* Returns "true" if objects with a scope, `namespace` or `cluster`, are rendered: (list $ "cluster"). */}}
{{- define "in-scope" -}}
{{- $scope := (index . 0).Settings.global.resourceScope | default "all" -}}
{{- if or (eq $scope "all") (eq $scope (index . 1)) -}}true{{- end -}}
{{- end -}}

{{/* Returns the platform, such as "openshift", or "" if none is set. */}}
{{- define "platform" -}}
{{- coalesce .Settings.platform .Settings.global.platform | default "" -}}
{{- end -}}
