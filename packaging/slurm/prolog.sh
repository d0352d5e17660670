#!/bin/sh
# Prolog= of slurm.conf: slurmd runs it as root on each node of a job, before the job's first step.
# If it fails, Slurm requeues the job and drains the node, and the node's reason has what is printed here.
set -eu
. "${S3MOUNT_SLURM_CONF:-/etc/s3mount/slurm.conf}"
dir=$ROOT/$SLURM_JOB_ID
mkdir -p "$dir"
chmod 711 "$ROOT"
# --allow-other: root mounts, and the job's user reads. The modes keep all other users out.
# $OPTIONS holds several words.
exec s3mount --allow-other --uid "$SLURM_JOB_UID" --dir-mode 0500 --file-mode 0400 $OPTIONS -- "$SOURCE" "$dir"
