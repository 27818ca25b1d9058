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

{{- define "collector.strategy" -}}
{{- .Values.strategy | default (ternary "Recreate" "RollingUpdate" (and .Values.file.enabled .Values.persistence.enabled)) }}
{{- end }}

{{- /* The name of the file, so that two Pods never write to one. A new Pod continues the file of the last one where that is possible:
       otherwise each would begin files of its own, and fill the volume. */ -}}
{{- define "collector.file" -}}
{{- if and .Values.persistence.enabled (or (eq (include "collector.strategy" .) "RollingUpdate") (gt (int .Values.replicas) 1)) -}}
${env:POD_NAME}.json
{{- else -}}
telemetry.json
{{- end }}
{{- end }}

{{- /* A text as the OpenTelemetry Collector has to read it: it replaces ${...} in a value, and takes $$ for $. It leaves keys as they are. */ -}}
{{- define "collector.literal" -}}
{{- . | replace "$" "$$" -}}
{{- end }}

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
    path: /data/{{ include "collector.file" . }}
    rotation:
      max_megabytes: {{ .Values.file.rotation.maxMegabytes }}
      max_backups: {{ .Values.file.rotation.maxBackups }}
{{- end }}
{{- if .Values.otlp.enabled }}
  otlp_grpc:
    endpoint: {{ include "collector.literal" .Values.otlp.endpoint | quote }}
    tls: {insecure: {{ .Values.otlp.insecure }}}
    {{- with .Values.otlp.headers }}
    {{- $headers := dict }}
    {{- range $name, $value := . }}{{ $_ := set $headers $name (include "collector.literal" $value) }}{{ end }}
    headers: {{ toJson $headers }}
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
