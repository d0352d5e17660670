#!/bin/sh
# TaskProlog= of slurm.conf: Slurm adds to the environment of each task what is printed here.
. "${S3MOUNT_SLURM_CONF:-/etc/s3mount/slurm.conf}"
echo "export S3MOUNT_DATA=$ROOT/$SLURM_JOB_ID"
