{{/* The labels that every object of the chart has beside its component's. */}}
{{- define "simyard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/part-of: simyard
app.kubernetes.io/name: simyard
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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

{{/* The name of the PriorityClass; nothing without one. */}}
{{- define "simyard.priorityClass" -}}
{{- if or .Values.priorityClass.create .Values.priorityClass.name }}{{ default "simyard" .Values.priorityClass.name }}{{ end }}
{{- end }}

{{- define "simyard.priorityClassName" -}}
{{- with include "simyard.priorityClass" . }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The pods of frontends, for the operator, which makes them. In arguments of a container, $$ stands for $. */}}
{{- define "simyard.frontendPod" -}}
{{- $pod := pick .Values.frontends "resources" "logLevel" "nodeSelector" "tolerations" "affinity" "podAnnotations" }}
{{- $_ := set $pod "imagePullPolicy" .Values.image.pullPolicy }}
{{- $_ := set $pod "priorityClassName" (include "simyard.priorityClass" .) }}
{{- toJson $pod | replace "$" "$$" }}
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

{{/* RabbitMQ writes below its home. */}}
{{- define "simyard.brokerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* One pod per node: call with (list $ "operator"). No constraint for zones beside it: where nodes have no zone the
scheduler would score neither (see simyard.affinity). */}}
{{- define "simyard.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels: {{- include "simyard.selector" . | nindent 6 }}
{{- end }}

{{/* Zones apart, where nodes have them, unless the values say otherwise: call with (list $ "operator"). */}}
{{- define "simyard.affinity" -}}
{{- with (index (index . 0).Values (index . 1)).affinity }}
{{- toYaml . }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: topology.kubernetes.io/zone
        labelSelector:
          matchLabels: {{- include "simyard.selector" . | nindent 12 }}
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

{{/* Of a broker of ours, in either mode. The defaults, but for the histories of each channel, which nobody reads: at every
5 s, those of 10,000 workers take a third of a core. */}}
{{- define "simyard.brokerConfig" -}}
management.sample_retention_policies.global.minute = 5
management.sample_retention_policies.basic.minute = 5
management.sample_retention_policies.detailed.hour = 60
{{- end }}
