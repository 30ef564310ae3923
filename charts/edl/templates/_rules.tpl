{{/*
What the operator may do, in three parts: what says how much room there is (read in the whole cluster always), what
belongs to the jobs of a namespace, and its own lease.  No part holds a wildcard; tests/chart/golden/rbac.yaml lists it.
*/}}
{{- define "edl.followsConsent" -}}   {{- /* YAML reads off without quotes as false */}}
{{- if and .Values.agent.enabled (not (has (toString (dig "idleReclaim" "observe" .Values.policy)) (list "off" "false"))) }}true{{ end }}
{{- end }}

{{/* Whether unused GPUs are given back: without agents nobody tells which are unused. */}}
{{- define "edl.givesBack" -}}
{{- if and .Values.agent.enabled (eq (toString (dig "idleReclaim" "observe" .Values.policy)) "act") }}true{{ end }}
{{- end }}

{{- define "edl.rules.cluster" -}}
- apiGroups: [""]
  resources: [nodes, pods]
  verbs: [get, list, watch]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [get, list, watch]
{{- if .Values.agent.enabled }}
- apiGroups: [edl.dev]
  resources: [nodegpus]   # patch: asks an agent for a new report
  verbs: [get, list, watch, patch]
{{- if include "edl.followsConsent" . }}
- apiGroups: [""]
  resources: [namespaces]   # edl.dev/idle-reclaim as the default of a namespace
  verbs: [get, list, watch]
{{- end }}
{{- end }}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [trainingjobs.edl.dev]
  verbs: [get]
{{- if include "edl.etcdEndpoints" . }}
- apiGroups: [""]
  resources: [namespaces]   # its UID tells this cluster's jobs in etcd from another cluster's
  resourceNames: [kube-system]
  verbs: [get]
{{- end }}
{{- end }}

{{- define "edl.rules.namespace" -}}
- apiGroups: [edl.dev]
  resources: [trainingjobs]   # delete: those whose time after their end is over
  verbs: [get, list, watch, delete]
- apiGroups: [edl.dev]
  resources: [trainingjobs/status]
  verbs: [get, patch]
- apiGroups: [edl.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch]
- apiGroups: [""]
  resources: [pods/log]   # why a pod failed, in its own last words
  verbs: [get]
- apiGroups: [""]
  resources: [secrets]   # the token and the certificates of a job; neither listed nor watched
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [resourcequotas, limitranges]
  verbs: [get, list, watch]
- apiGroups: [apps]
  resources: [deployments]   # patch: one of masters that somebody scaled
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [daemonsets]
  verbs: [get, list, watch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if include "edl.followsConsent" . }}
- apiGroups: [apps]
  resources: [statefulsets]   # edl.dev/idle-reclaim of one
  verbs: [get, list, watch]
{{- end }}
{{- if include "edl.givesBack" . }}
- apiGroups: [""]
  resources: [pods/eviction]   # of others, whose GPUs nobody uses and whose owner agreed
  verbs: [create]
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]   # of such pods, by one each
  verbs: [get, patch]
{{- end }}
{{- end }}

{{/* What the page may do: read what it shows, and ask whose token it is given and what that user may read. */}}
{{- define "edl.rules.page.cluster" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [edl.dev]
  resources: [nodegpus]
  verbs: [list, watch]
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{/* What a plan depends on beside nodes and their GPUs, as in the role planner-view. */}}
{{- define "edl.rules.page.planner" -}}
- apiGroups: [""]
  resources: [pods, namespaces, resourcequotas, limitranges]
  verbs: [list]
- apiGroups: [apps]
  resources: [deployments, daemonsets, statefulsets]
  verbs: [list]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list]
- apiGroups: [edl.dev]
  resources: [trainingjobs]
  verbs: [list]
{{- end }}

{{- define "edl.rules.page.namespace" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [edl.dev]
  resources: [trainingjobs]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods/log]   # last lines of a pod in trouble, for those who may read it themselves
  verbs: [get]
{{- end }}

{{- define "edl.rules.lease" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "edl.fullname" . }}-operator]
  verbs: [get, patch]
{{- end }}
