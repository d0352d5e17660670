#!/bin/sh
# Epilog= of slurm.conf: slurmd runs it as root on each node of a job, after the job's last process.
set -eu
. "${S3MOUNT_SLURM_CONF:-/etc/s3mount/slurm.conf}"
dir=$ROOT/$SLURM_JOB_ID
[ -d "$dir" ] || exit 0
# A prolog that failed has left no mount. --lazy: a process that Slurm could not kill holds nothing up.
mountpoint -q "$dir" && s3mount umount --lazy "$dir"
exec rmdir "$dir"
