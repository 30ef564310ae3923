{{/* Names and labels; one place for each. */}}
{{- define "edl.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "edl.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "edl.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "edl.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "edl.selector" -}}
app.kubernetes.io/name: {{ include "edl.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "edl.labels" -}}
{{ include "edl.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: edl
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* What the masters of jobs carry (autoscaler/clusters/kubernetes/objects/labels.py). */}}
{{- define "edl.masterPods" -}}
app.kubernetes.io/managed-by: edl
edl.dev/role: master
{{- end }}

{{- define "edl.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "edl.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name the account to use, or let the chart create one (serviceAccount.create)" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/*
image: of {image: {repository, tag, digest}, of: path of the values, name: of the image, bases: what its build
asks for, root}.  There is no default: a
name without a registry is one of a public registry, where somebody else could publish under it (ADR 0163).
*/}}
{{- define "edl.image" -}}
{{- if not .image.repository }}
{{- fail (printf "%s.repository is not set: there is no published image of EDL: build one and push it to a registry of yours (images/README.md explains the digests):\n\n  docker build -f images/%s.Dockerfile -t REGISTRY/edl/%s:%s %s .\n  docker push REGISTRY/edl/%s:%s\n\nand name it: --set %s.repository=REGISTRY/edl/%s" .of .name .name .root.Chart.AppVersion .bases .name .root.Chart.AppVersion .of .name) }}
{{- end }}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{- define "edl.operatorImage" -}}
{{- include "edl.image" (dict "image" .Values.image "of" "image" "name" "operator" "bases" "--build-arg PYTHON_DIGEST=sha256:..." "root" .) }}
{{- end }}

{{- define "edl.etcdImage" -}}
{{- include "edl.image" (dict "image" .Values.etcd.image "of" "etcd.image" "name" "etcd" "bases" "--build-arg GO_DIGEST=sha256:... --build-arg DEBIAN_DIGEST=sha256:..." "root" .) }}
{{- end }}

{{/* The restricted level of pod security, and a read-only root on top. */}}
{{- define "edl.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "edl.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "edl.etcdSecret" -}}
{{- default (printf "%s-etcd" (include "edl.fullname" .)) .Values.etcd.existingSecret }}
{{- end }}

{{/* Where masters and the operator find etcd; empty: nowhere. */}}
{{- define "edl.etcdEndpoints" -}}
{{- if .Values.etcd.enabled }}
{{- $full := include "edl.fullname" . }}
{{- $members := list }}
{{- range $n := until 3 }}
{{- $members = append $members (printf "https://%s-etcd-%d.%s-etcd.%s.svc:2379" $full $n $full $.Release.Namespace) }}
{{- end }}
{{- join "," $members }}
{{- else }}
{{- join "," .Values.etcd.external.endpoints }}
{{- end }}
{{- end }}

{{- define "edl.externalEtcdPorts" -}}
{{- $ports := list }}
{{- range .Values.etcd.external.endpoints }}
{{- $ports = append $ports (dict "port" (int (default "2379" (regexFind "[0-9]+$" (regexFind ":[0-9]+$" .)))) "protocol" "TCP") }}
{{- end }}
{{- toJson ($ports | uniq) }}
{{- end }}

{{/* Namespaces whose jobs get network policies. */}}
{{- define "edl.jobNamespaces" -}}
{{- toJson (default .Values.namespaces .Values.networkPolicy.jobNamespaces) }}
{{- end }}

{{/* Checks that the schema of values cannot express. */}}
{{- define "edl.check" -}}
{{- if and .Values.etcd.enabled .Values.etcd.external.endpoints }}
{{- fail "etcd.external.endpoints: cannot be combined with etcd.enabled; remove one of the two" }}
{{- end }}
{{- if and .Values.etcd.external.endpoints (not .Values.etcd.external.secretName) }}
{{- if or .Values.etcd.external.clientCertificate .Values.etcd.external.password }}
{{- fail "etcd.external.secretName: is missing: name the Secret with the client certificate or password that clientCertificate and password announce" }}
{{- end }}
{{- end }}
{{- if .Values.priorityClasses.create }}
{{- range $name, $value := dict "edl-core" .Values.priorityClasses.core "edl-surplus" .Values.priorityClasses.core "edl-operator" .Values.priorityClasses.operator }}
{{- $there := lookup "scheduling.k8s.io/v1" "PriorityClass" "" $name }}
{{- if and $there (ne (int64 $there.value) (int64 $value)) }}
{{- fail (printf "priorityClasses: %s has the value %d, which cannot become %d while the class exists; kubectl delete priorityclass %s first (pods keep the priority that they have)" $name (int64 $there.value) (int64 $value) $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Address of the page for links in notices; empty: there are none. */}}
{{- define "edl.noticesPage" -}}
{{- if .Values.notices.page }}
{{- .Values.notices.page }}
{{- else if and .Values.page.enabled .Values.page.ingress.enabled }}
{{- printf "https://%s" .Values.page.ingress.host }}
{{- end }}
{{- end }}

{{/* Port of the mail server: its own, or the usual one of its encryption. */}}
{{- define "edl.mailPort" -}}
{{- $port := regexFind ":[0-9]+$" .Values.notices.mail.server | trimPrefix ":" }}
{{- default (get (dict "starttls" "587" "tls" "465" "none" "25") .Values.notices.mail.tls) $port }}
{{- end }}
