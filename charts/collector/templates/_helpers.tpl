{{- define "collector.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "collector.labels" -}}
{{ include "collector.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The collector's configuration. The Pod's name is part of the file's name, so that two Pods never write to one file. */ -}}
{{- define "collector.config" -}}
receivers:
  otlp:
    protocols:
      grpc: {endpoint: "0.0.0.0:4317"}
      http: {endpoint: "0.0.0.0:4318"}
extensions:
  health_check: {endpoint: "0.0.0.0:13133"}
exporters:
{{- if .Values.file.enabled }}
  file:
    path: /data/${env:POD_NAME}.json
    rotation:
      max_megabytes: {{ .Values.file.rotation.maxMegabytes }}
      max_backups: {{ .Values.file.rotation.maxBackups }}
{{- end }}
{{- if .Values.otlp.enabled }}
  otlp_grpc:
    endpoint: {{ .Values.otlp.endpoint | quote }}
    tls: {insecure: {{ .Values.otlp.insecure }}}
    {{- with .Values.otlp.headers }}
    headers: {{ toJson . }}
    {{- end }}
{{- end }}
{{- if not (or .Values.file.enabled .Values.otlp.enabled) }}
  debug: {}
{{- end }}
service:
  extensions: [health_check]
  telemetry:
    metrics:
      readers:
      - pull: {exporter: {prometheus: {host: "0.0.0.0", port: 8888}}}
  pipelines:
  {{- range list "traces" "metrics" "logs" }}
    {{ . }}:
      receivers: [otlp]
      exporters: [{{ include "collector.exporters" $ }}]
  {{- end }}
{{- end }}

{{- define "collector.exporters" -}}
{{- $names := list }}
{{- if .Values.file.enabled }}{{ $names = append $names "file" }}{{ end }}
{{- if .Values.otlp.enabled }}{{ $names = append $names "otlp_grpc" }}{{ end }}
{{- join ", " ($names | default (list "debug")) }}
{{- end }}
