{{/* The mesh config that is derived from values. `meshConfig` overrides it. */}}
{{- define "mesh" -}}
{{- $s := .Settings -}}
{{- $mesh := dict "trustDomain" "cluster.local" "rootNamespace" ($s.meshConfig.rootNamespace | default $s.global.istioNamespace) -}}
{{- $telemetry := and (not $s.meshConfig.defaultProviders) $s.telemetry.enabled $s.telemetry.v2.enabled -}}
{{- $metrics := list -}}
{{- if and $telemetry $s.telemetry.v2.prometheus.enabled }}{{ $metrics = append $metrics "prometheus" }}{{ end -}}
{{- if and $telemetry $s.telemetry.v2.stackdriver.enabled }}{{ $metrics = append $metrics "stackdriver" }}{{ end -}}
{{- if $metrics -}}
  {{- $providers := dict "metrics" $metrics -}}
  {{- if has "stackdriver" $metrics }}{{ $_ := set $providers "accessLogging" (list "stackdriver") }}{{ end -}}
  {{- $_ := set $mesh "defaultProviders" $providers -}}
{{- end -}}
{{- $_ := set $mesh "defaultConfig" (include "mesh-proxies" . | fromYaml) -}}
{{- mergeOverwrite $mesh $s.meshConfig | toYaml -}}
{{- end -}}

{{/* The default proxy config. */}}
{{- define "mesh-proxies" -}}
{{- $s := .Settings -}}
discoveryAddress: {{ include "discovery-host" . }}:15012
{{- with $s.global.meshID }}
meshId: {{ . | quote }}
{{- end }}
{{- with $s.global.proxy.variant | default $s.global.variant }}
image:
  imageType: {{ . | quote }}
{{- end }}
{{- if ne $s.global.proxy.tracer "none" }}
tracing:
  {{- include "tracer" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The discovery address for proxies. */}}
{{- define "discovery-host" -}}
{{- $s := .Settings -}}
{{- if not $s.global.remotePilotAddress -}}
{{ include "revised" (list . "istiod") }}.{{ .Release.Namespace }}.svc
{{- else if and $s.istiodRemote.enabled $s.istiodRemote.enabledLocalInjectorIstiod -}}
istiod-remote.{{ .Release.Namespace }}.svc
{{- else -}}
istiod.{{ .Release.Namespace }}.svc
{{- end -}}
{{- end -}}

{{/* The settings of the selected tracer. */}}
{{- define "tracer" -}}
{{- $name := .Settings.global.proxy.tracer -}}
{{- $user := get (.Settings.global.tracer | default dict) $name | default dict -}}
{{- $defaults := dict
  "zipkin" (dict "address" (printf "zipkin.%s:9411" .Settings.global.istioNamespace))
  "datadog" (dict "address" "$(HOST_IP):8126")
  "lightstep" (dict)
  "stackdriver" (dict "debug" false "maxNumberOfAttributes" 200 "maxNumberOfAnnotations" 200 "maxNumberOfMessageEvents" 200)
-}}
{{- $tracing := dict -}}
{{- if hasKey $defaults $name }}{{ $_ := set $tracing $name (merge (dict) $user (get $defaults $name)) }}{{ end -}}
{{- toYaml $tracing -}}
{{- end -}}
