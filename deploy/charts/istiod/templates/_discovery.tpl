{{/* The image of pilot-discovery: that of this project, unless the user names an image or a registry. */}}
{{- define "discovery-image" -}}
{{- $s := .Settings -}}
{{- if or $s.image $s.hub (ne $s.global.hub .Values.chartDefaults.global.hub) -}}
{{- $tag := $s.tag | default $s.global.tag -}}
{{- include "image" (dict "image" ($s.image | default "pilot") "hub" ($s.hub | default $s.global.hub) "tag" $tag "variant" ($s.variant | default $s.global.variant)) -}}
{{- else -}}
{{- .Chart.Annotations.image }}:{{ $s.tag | default .Chart.AppVersion -}}
{{- end -}}
{{- end -}}

{{/* Resources of pilot-discovery. The default memory limit applies only to the default request. */}}
{{- define "discovery-resources" -}}
{{- $s := .Settings -}}
{{- $resources := deepCopy ($s.resources | default $s.global.defaultResources) -}}
{{- $is_default := eq (toString (dig "requests" "memory" "" $resources)) (toString .Values.chartDefaults.resources.requests.memory) -}}
{{- if and $is_default $s.memoryLimit (not (dig "limits" "memory" "" $resources)) -}}
  {{- $resources = mergeOverwrite $resources (dict "limits" (dict "memory" $s.memoryLimit)) -}}
{{- end -}}
{{- include "resources" $resources -}}
{{- end -}}

{{/* Arguments of pilot-discovery. */}}
{{- define "discovery-arguments" -}}
{{- $s := .Settings -}}
- discovery
- --monitoringAddr=:15014
{{- if not $s.plaintextXds }}
- --grpcAddr=
{{- end }}
{{- with $s.global.logging.level }}
- --log_output_level={{ . }}
{{- end }}
{{- if $s.global.logAsJson }}
- --log_as_json
{{- end }}
- --domain
- {{ $s.global.proxy.clusterDomain }}
{{- with $s.taint.namespace }}
- --cniNamespace={{ . }}
{{- end }}
- --keepaliveMaxServerConnectionAge
- {{ $s.keepaliveMaxServerConnectionAge | quote }}
{{- with $s.extraContainerArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Environment variables of pilot-discovery. Variables that the user sets by name take precedence over other values. */}}
{{- define "discovery-variables" -}}
{{- $s := .Settings -}}
{{- $own := $s.env | default dict -}}
{{- $set := dict
  "REVISION" ($s.revision | default "default")
  "PILOT_CERT_PROVIDER" $s.global.pilotCertProvider
  "KUBECONFIG" "/var/run/secrets/remote/config"
  "PILOT_ENABLE_ANALYSIS" $s.global.istiod.enableAnalysis
  "CLUSTER_ID" ($s.global.multiCluster.clusterName | default "Kubernetes")
  "PLATFORM" (include "platform" .)
-}}
{{- if not (get $own "CA_TRUSTED_NODE_ACCOUNTS") -}}
  {{- $_ := set $set "CA_TRUSTED_NODE_ACCOUNTS" (printf "%s/%s" ($s.trustedZtunnelNamespace | default .Release.Namespace) ($s.trustedZtunnelName | default "ztunnel")) -}}
{{- end -}}
{{- if $s.traceSampling }}{{ $_ := set $set "PILOT_TRACE_SAMPLING" $s.traceSampling }}{{ end -}}
{{- if $s.taint.enabled -}}
  {{- $_ := set $set "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS" "true" -}}
  {{- $_ := set $set "PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME" $s.taint.name -}}
{{- end -}}
{{- if and $s.global.externalIstiod (not (get $own "EXTERNAL_ISTIOD")) }}{{ $_ := set $set "EXTERNAL_ISTIOD" $s.global.externalIstiod }}{{ end -}}
{{- with $s.global.trustBundleName }}{{ $_ := set $set "PILOT_CA_CERT_CONFIGMAP" . }}{{ end -}}
{{- with $s.crlConfigMapName }}{{ $_ := set $set "PILOT_CRL_CONFIGMAP" . }}{{ end -}}
{{- include "variables" (mergeOverwrite $set $own) }}
{{ include "field" (list "POD_NAME" "metadata.name") }}
{{ include "field" (list "POD_NAMESPACE" "metadata.namespace") }}
{{ include "field" (list "SERVICE_ACCOUNT" "spec.serviceAccountName") }}
{{- with $s.envVarFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volume mounts of pilot-discovery. */}}
{{- define "discovery-mounts" }}
- {name: istio-token, mountPath: /var/run/secrets/tokens, readOnly: true}
- {name: local-certs, mountPath: /var/run/secrets/istio-dns}
- {name: cacerts, mountPath: /etc/cacerts, readOnly: true}
- {name: istio-kubeconfig, mountPath: /var/run/secrets/remote, readOnly: true}
- {name: istio-csr-dns-cert, mountPath: /var/run/secrets/istiod/tls, readOnly: true}
- {name: istio-csr-ca-configmap, mountPath: /var/run/secrets/istiod/ca, readOnly: true}
{{- if .Settings.jwksResolverExtraRootCA }}
- {name: extracacerts, mountPath: /cacerts}
{{- end }}
{{- with .Settings.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes of these mounts: optional Secrets with the CA key, and certificates from other signers. */}}
{{- define "discovery-volumes" }}
- name: local-certs
  emptyDir: {medium: Memory}
- name: istio-token
  projected:
    sources:
    - serviceAccountToken:
        audience: {{ .Settings.global.sds.token.aud }}
        expirationSeconds: 43200
        path: istio-token
- name: cacerts
  secret: {secretName: cacerts, optional: true}
- name: istio-kubeconfig
  secret: {secretName: istio-kubeconfig, optional: true}
- name: istio-csr-dns-cert
  secret: {secretName: istiod-tls, optional: true}
- name: istio-csr-ca-configmap
  {{- include "root-certificate" (dict "env" .Settings.env "name" .Settings.global.trustBundleName "more" (dict "defaultMode" 420 "optional" true)) | nindent 2 }}
{{- if .Settings.jwksResolverExtraRootCA }}
- name: extracacerts
  configMap: {name: {{ include "revised" (list . "pilot-jwks-extra-cacerts") }}}
{{- end }}
{{- with .Settings.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
