{{- define "leaseway.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "leaseway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "leaseway.labels" -}}
{{ include "leaseway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The DNS domain of the peers; a peer is NAME-0 and so on in it. */}}
{{- define "leaseway.domain" -}}
{{ include "leaseway.name" . }}-peers.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "leaseway.peers" -}}
{{- $name := include "leaseway.name" . -}}
{{- $domain := include "leaseway.domain" . -}}
{{- range $i := until (int .Values.replicas) -}}
{{- if $i }},{{ end -}}
{{ $name }}-{{ $i }}={{ $name }}-{{ $i }}.{{ $domain }}:5120
{{- end -}}
{{- end -}}

{{- define "leaseway.peerSecret" -}}
{{- .Values.peerSecret.name | default (printf "%s-peers" (include "leaseway.name" .)) -}}
{{- end -}}

{{- define "leaseway.bootstrap" -}}
{{- if eq (toString .Values.bootstrap) "auto" -}}{{ .Release.IsInstall }}{{- else -}}{{ .Values.bootstrap }}{{- end -}}
{{- end -}}

{{/* Refuses values with which the servers would not start. */}}
{{- define "leaseway.check" -}}
{{- $policy := regexMatch "(?m)^access:" .Values.config -}}
{{- if and (not .Values.insecure) (not (and .Values.tls.secret $policy)) -}}
{{- fail "TLS or the access policy is missing, and every pod can reach the servers: set tls.secret and an `access:` section in config, or insecure=true if every pod that reaches them may do everything" -}}
{{- end -}}
{{- if not (has (int .Values.replicas) (list 1 3 5 7)) -}}
{{- fail (printf "replicas is %v; expected 1, 3, 5 or 7; an even number tolerates no more failures than the odd number below it" .Values.replicas) -}}
{{- end -}}
{{- if and .Values.parent.addresses (not .Values.parent.node) -}}
{{- fail "parent.addresses is set without parent.node: set parent.node to the name of this node at its parent" -}}
{{- end -}}
{{- end -}}
