{{- define "headgate.selector" -}}
app.kubernetes.io/name: headgate
app.kubernetes.io/component: node
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headgate.common" -}}
app.kubernetes.io/name: headgate
app.kubernetes.io/part-of: headgate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headgate.labels" -}}
{{ include "headgate.common" . }}
app.kubernetes.io/component: node
{{- end }}

{{- define "headgate.secret" -}}
{{ .Values.secret.name | default (printf "%s-node" .Release.Name) }}
{{- end }}

{{- define "headgate.grpc" -}}
{{ if or .Values.keda.enabled .Values.envoy.enabled }}true{{ end }}
{{- end }}

{{- define "headgate.port" -}}
{{ ternary 5671 5672 .Values.tls.enabled }}
{{- end }}

{{- define "headgate.amqp" -}}
{{ ternary "amqps" "amqp" .Values.tls.enabled }}
{{- end }}
