{{/* The prefix of the names of the objects of the chart. */}}
{{- define "simyard.fullname" -}}
{{ default "simyard" .Values.fullnameOverride }}
{{- end }}

{{/* The labels of every object of the chart, without the label of the component. */}}
{{- define "simyard.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")
  "app.kubernetes.io/part-of" "simyard"
  "app.kubernetes.io/name" (default "simyard" .Values.nameOverride)
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service }}
{{- merge $own .Values.commonLabels | toYaml }}
{{- end }}

{{/* The labels that select the pods of a component: call with (list $ "operator"). */}}
{{- define "simyard.selector" -}}
app.kubernetes.io/part-of: simyard
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "simyard.image" -}}
{{- with .Values.image }}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The name of the PriorityClass; empty without one. */}}
{{- define "simyard.priorityClass" -}}
{{- if or .Values.priorityClass.create .Values.priorityClass.name }}{{ default "simyard" .Values.priorityClass.name }}{{ end }}
{{- end }}

{{- define "simyard.priorityClassName" -}}
{{- with include "simyard.priorityClass" . }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The pods of frontends as JSON, for the operator, which creates them. In arguments of a container, $$ means $. */}}
{{- define "simyard.frontendPod" -}}
{{- $pod := omit .Values.frontends "enabled" "domain" "amqp" "cloud4e" "serviceAccount" "ingress" "gateway" }}
{{- $_ := set $pod "role" (printf "%s-frontend" (include "simyard.fullname" .)) }}
{{- $_ := set $pod "accountAnnotations" .Values.frontends.serviceAccount.annotations }}
{{- $_ := set $pod "imagePullSecrets" .Values.image.pullSecrets }}
{{- $_ := set $pod "imagePullPolicy" .Values.image.pullPolicy }}
{{- $_ := set $pod "priorityClassName" (include "simyard.priorityClass" .) }}
{{- $_ := set $pod "labels" .Values.commonLabels }}
{{- $_ := set $pod "podSecurityContext" .Values.podSecurityContext }}
{{- $_ := set $pod "containerSecurityContext" .Values.containerSecurityContext }}
{{- $_ := set $pod "spread" (include "simyard.spreadMode" (list . "frontends")) }}
{{- toJson $pod | replace "$" "$$" }}
{{- end }}

{{/* The way of clients to the frontends as JSON, for the operator: Ingress or Gateway. */}}
{{- define "simyard.frontendRoute" -}}
{{- $route := dict }}
{{- with .Values.frontends }}
{{- if .ingress.enabled }}{{ $_ := set $route "ingress" (omit .ingress "enabled") }}{{ end }}
{{- if .gateway.enabled }}
{{- $own := ternary (printf "%s-frontend-ca" (include "simyard.fullname" $)) "" (eq $.Values.certificates.mode "helm") }}
{{- $gateway := dict "name" (default (include "simyard.fullname" $) .gateway.name) "caConfigMap" (default $own .gateway.caConfigMap) }}
{{- $_ := set $route "gateway" (merge $gateway (pick .gateway "namespace" "sectionName")) }}
{{- end }}
{{- end }}
{{- toJson $route | replace "$" "$$" }}
{{- end }}

{{/* The fields of the pods of a role that values set: call with (list $ "operator"). `containers` must follow. */}}
{{- define "simyard.pod" -}}
{{- $ := index . 0 }}{{ $role := index . 1 }}{{ $values := index $.Values $role }}
metadata:
  labels:
    {{- $own := merge (dict "app.kubernetes.io/component" $role) (include "simyard.labels" $ | fromYaml) }}
    {{- merge $own $values.podLabels | toYaml | nindent 4 }}
  {{- with $values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "simyard.fullname" $ }}-{{ $role }}
  enableServiceLinks: false
  {{- include "simyard.priorityClassName" $ | nindent 2 }}
  {{- include "simyard.pullSecrets" $ | nindent 2 }}
  nodeSelector: {{- merge (deepCopy $values.nodeSelector) (dict "kubernetes.io/os" "linux") | toYaml | nindent 4 }}
  {{- with $values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  affinity: {{- include "simyard.affinity" . | nindent 4 }}
  securityContext: {{- toYaml $.Values.podSecurityContext | nindent 4 }}
  topologySpreadConstraints: {{- include "simyard.spread" . | nindent 4 }}
{{- end }}

{{/* The fields of the container of a role that values set: call with (list $ "operator"). */}}
{{- define "simyard.container" -}}
{{- $ := index . 0 }}{{ $role := index . 1 }}{{ $values := index $.Values $role }}
name: {{ $role }}
image: {{ default (include "simyard.image" $) $values.image | quote }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
{{- with $values.extraEnv }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml $values.resources | nindent 2 }}
securityContext: {{- toYaml $.Values.containerSecurityContext | nindent 2 }}
{{- end }}

{{/* The URL of the embedded file store. Users and workers outside the cluster need another one than the Service. */}}
{{- define "simyard.filesEndpoint" -}}
{{ default (printf "https://%s-files.%s.svc:7070" (include "simyard.fullname" .) .Release.Namespace) .Values.files.embedded.endpoint }}
{{- end }}

{{/* The volume with the access to the file store: one file per key, as docs/file-store.md lists them. */}}
{{- define "simyard.filesVolume" -}}
{{- with .Values.files }}
name: files
projected:
  defaultMode: 0440
  sources:
    {{- if eq .mode "embedded" }}
    - secret: {name: {{ include "simyard.fullname" $ }}-files}
    - secret:
        name: {{ include "simyard.certificateSecret" (list $ "files") }}
        items: [{key: ca.crt, path: ca.crt}]
    {{- else if eq .mode "existing" }}
    - secret: {name: {{ .existingSecret | quote }}}
    {{- else }}
    - configMap:
        name: {{ .objectBucketClaim.name | quote }}
        items:
          - {key: BUCKET_HOST, path: host}
          - {key: BUCKET_PORT, path: port}
          - {key: BUCKET_NAME, path: bucket}
    - secret:
        name: {{ .objectBucketClaim.name | quote }}
        items:
          - {key: AWS_ACCESS_KEY_ID, path: accessKey}
          - {key: AWS_SECRET_ACCESS_KEY, path: secretKey}
    - configMap: {name: {{ include "simyard.fullname" $ }}-files}
    {{- end }}
    {{- if and .caSecret (ne .mode "embedded") }}
    - secret:
        name: {{ .caSecret | quote }}
        items: [{key: ca.crt, path: ca.crt}]
    {{- end }}
{{- end }}
{{- end }}

{{- define "simyard.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The security context of RabbitMQ. Its root file system is writable, because it writes below its home. */}}
{{- define "simyard.brokerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* The value of `spread`, with `auto` resolved: call with (list $ "operator"). Two nodes that accept pods of the role are
enough for `required`. Helm finds no nodes without a cluster (helm template); then the result is `available`. */}}
{{- define "simyard.spreadMode" -}}
{{- $ := index . 0 }}{{ $values := index $.Values (index . 1) }}
{{- $mode := $.Values.spread }}
{{- if eq $mode "auto" }}
{{- $usable := list }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- $node := . }}
{{- $takes := true }}
{{- range $key, $value := merge (deepCopy $values.nodeSelector) (dict "kubernetes.io/os" "linux") }}
{{- if ne (dig "metadata" "labels" $key "" $node) $value }}{{ $takes = false }}{{ end }}
{{- end }}
{{- /* Taints of Kubernetes describe the state of a node and are temporary. */ -}}
{{- range (default list $node.spec.taints) }}
{{- if and (ne .effect "PreferNoSchedule") (not (hasPrefix "node.kubernetes.io/" .key)) }}{{ $takes = false }}{{ end }}
{{- end }}
{{- if $takes }}{{ $usable = append $usable $node.metadata.name }}{{ end }}
{{- end }}
{{- $mode = ternary "required" "available" (ge (len $usable) 2) }}
{{- end }}
{{- $mode }}
{{- end }}

{{/* The constraints that keep replicas on different nodes: call with (list $ "operator"). `required` also counts tainted
nodes: each has no pod, so no node may have all replicas. Zones have no constraint here, because the scheduler ignores a
node for all constraints when it lacks the label of one (see simyard.affinity). */}}
{{- define "simyard.spread" -}}
{{- $ := index . 0 }}{{ $values := index $.Values (index . 1) }}
{{- $mode := include "simyard.spreadMode" . }}
{{- with $values.topologySpreadConstraints }}
{{- toYaml . }}
{{- else }}
- topologyKey: kubernetes.io/hostname
  maxSkew: {{ ternary (max 1 (sub $values.replicas 1)) 1 (eq $mode "required") }}
  whenUnsatisfiable: {{ ternary "ScheduleAnyway" "DoNotSchedule" (eq $mode "preferred") }}
  nodeTaintsPolicy: {{ ternary "Ignore" "Honor" (eq $mode "required") }}
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels: {{- include "simyard.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* The affinity of the values, or a preference for different zones: call with (list $ "operator"). */}}
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

{{/* The probes of a role, on its metrics port. */}}
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

{{/* The Secret that describes the broker, and the Secret that contains its CA. */}}
{{- define "simyard.brokerSecret" -}}
{{- if eq .Values.broker.mode "existing" }}{{ required "broker.existing.secretName: missing. broker.mode=existing needs the name of the Secret that describes the broker" .Values.broker.existing.secretName }}
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

{{/* The configuration of the embedded broker and of the RabbitmqCluster. It keeps short statistics of each channel,
which no client reads: for 10,000 workers at 5 s, the default takes a third of a core. */}}
{{- define "simyard.brokerConfig" -}}
management.sample_retention_policies.global.minute = 5
management.sample_retention_policies.basic.minute = 5
management.sample_retention_policies.detailed.hour = 60
max_message_size = 4456448
{{- end }}
