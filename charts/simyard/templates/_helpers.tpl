{{/* The labels that every object of the chart has beside its component's. */}}
{{- define "simyard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/part-of: simyard
app.kubernetes.io/name: simyard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What a component's pods are selected by: call with (list $ "operator"). */}}
{{- define "simyard.selector" -}}
app.kubernetes.io/part-of: simyard
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "simyard.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- define "simyard.priorityClassName" -}}
{{- if or .Values.priorityClass.create .Values.priorityClass.name }}
priorityClassName: {{ default "simyard" .Values.priorityClass.name }}
{{- end }}
{{- end }}

{{/* Pods that pass the restricted profile of Pod Security. */}}
{{- define "simyard.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "simyard.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Call with (list $ "operator"): nodes first, then zones. */}}
{{- define "simyard.spread" -}}
{{- $component := index . 1 }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      app.kubernetes.io/part-of: simyard
      app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- end }}

{{/* Probes of a role: they are on its metrics port. */}}
{{- define "simyard.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{/* The Secret that describes the broker, and the one that has its CA. */}}
{{- define "simyard.brokerSecret" -}}
{{- if eq .Values.broker.mode "existing" }}{{ required "broker.existing.secretName: the Secret of the broker is needed with broker.mode=existing" .Values.broker.existing.secretName }}
{{- else if eq .Values.broker.mode "operator" }}simyard-broker-default-user
{{- else }}simyard-broker{{ end }}
{{- end }}

{{- define "simyard.brokerCaSecret" -}}
{{- if eq .Values.broker.mode "existing" }}{{ default .Values.broker.existing.secretName .Values.broker.existing.caSecretName }}
{{- else }}simyard-broker-tls{{ end }}
{{- end }}

{{- define "simyard.brokerTls" -}}
{{- if or (ne .Values.broker.mode "existing") .Values.broker.existing.tls }}true{{ end }}
{{- end }}
