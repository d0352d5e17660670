"""Mounts S3 buckets for training jobs.

    with s3mount.mount("s3://my-bucket/train/", memory_limit="4GiB") as path:
        train(path)

All processes of a user and a machine that name the same source and options share one mount: the ranks of
torchrun, a notebook and its restarted kernel. It goes away when the last of them has left it, however they end.
"""

from s3mount._mount import Mount, MountError, binary, mount
from s3mount.hints import HintedSampler, hinted

__all__ = ["HintedSampler", "Mount", "MountError", "binary", "hinted", "mount"]
