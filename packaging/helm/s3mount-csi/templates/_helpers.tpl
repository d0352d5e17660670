{{/* What all objects have. */}}
{{- define "s3mount.labels" -}}
app.kubernetes.io/name: s3mount-csi
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* What chooses the pods of a component: the name of the component. */}}
{{- define "s3mount.selector" -}}
app.kubernetes.io/name: s3mount-csi
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "s3mount.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "s3mount.node.account" -}}
{{ .Values.node.serviceAccount.name | default "s3mount-csi-node" }}
{{- end }}

{{- define "s3mount.controller.account" -}}
{{ .Values.controller.serviceAccount.name | default "s3mount-csi-controller" }}
{{- end }}
