{{/* The labels of values, on each object. */}}
{{- define "dra-extender.labels" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The name of an image: by its digest, or else by its tag. Takes image (of values) and tag (the default). */}}
{{- define "dra-extender.image" -}}
{{ .image.name }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .tag .image.tag }}{{ end }}
{{- end }}

{{- define "dra-extender.extender-image" -}}
{{ include "dra-extender.image" (dict "image" .Values.images.extender "tag" .Chart.AppVersion) }}
{{- end }}

{{/* Without a tag, the scheduler has the version of the cluster. Vendors add words to it, which images lack. */}}
{{- define "dra-extender.scheduler-image" -}}
{{- $version := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version }}
{{- include "dra-extender.image" (dict "image" .Values.images.scheduler "tag" $version) }}
{{- end }}

{{/* Refuses a value that makes policies of a kind that the cluster does not have. Takes root and value. */}}
{{- define "dra-extender.mutating-policies" }}
{{- $version := .root.Capabilities.KubeVersion.Version }}
{{- if semverCompare "<1.36.0-0" $version }}
{{- fail (printf "%s needs Kubernetes 1.36 or later, because of MutatingAdmissionPolicy; this cluster has %s" .value $version) }}
{{- end }}
{{- end }}

{{/*
The objects of a file that kustomize uses as well, in the namespace of the release and with the labels of values. Takes root
and file. Leases stay in kube-system, whatever the namespace, so that all replicas of a cluster share them; so does the role
for reading how the API server authenticates.
*/}}
{{- define "dra-extender.objects" }}
{{- $namespace := .root.Release.Namespace }}
{{- $text := .root.Files.Get .file | replace "system:serviceaccount:kube-system:" (printf "system:serviceaccount:%s:" $namespace) }}
{{- range $part := splitList "\n---\n" $text }}
{{- $object := fromYaml $part }}
{{- if and $object.metadata.namespace (not (has $object.kind (list "Role" "RoleBinding"))) }}
{{- $_ := set $object.metadata "namespace" $namespace }}
{{- end }}
{{- range $subject := $object.subjects }}
{{- $_ := set $subject "namespace" $namespace }}
{{- end }}
{{- with $.root.Values.labels }}
{{- $_ := set $object.metadata "labels" (merge (default dict $object.metadata.labels) .) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

{{/* An object for the Prometheus operator, from a file. Takes root and file. */}}
{{- define "dra-extender.monitor" }}
{{- $monitoring := .root.Values.monitoring }}
{{- $text := .root.Files.Get .file | replace "docs/how-to/runbook.md" .root.Values.runbook | replace "kube-system" .root.Release.Namespace }}
{{- $object := fromYaml $text }}
{{- $_ := set $object.metadata "namespace" $monitoring.namespace }}
{{- $_ := set $object.metadata "labels" (merge (dict) $object.metadata.labels $monitoring.labels .root.Values.labels) }}
---
{{ toYaml $object }}
{{- end }}
