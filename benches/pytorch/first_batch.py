"""Measures the time from `pip install` to the first batch of a job that mounts a bucket by itself.

    make package
    cargo build --release --package s3mount-testkit --bin s3mount-test-server
    venv/bin/python benches/pytorch/first_batch.py dist/s3mount-*.whl

The store is the test server with the latencies of S3. The Python that runs this has PyTorch (`python3 -m venv
--system-site-packages venv`, with Debian's python3-torch). What is told are
seconds: to install the wheel into a new environment, and from the start of the job to its mount and to its first
batch, with the imports of PyTorch, the listing of the folder and the start of the workers.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from second_epoch import ENVIRONMENT, Server

JOB = """
import os, sys, time
import s3mount
from torch.utils.data import DataLoader
url, images, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Files:
    def __init__(self, folder):
        self.paths = sorted(entry.path for entry in os.scandir(folder))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return len(file.read())

with s3mount.mount("s3://data/", endpoint_url=url, preset="small-files") as path:
    print("mounted", time.time(), flush=True)
    loader = s3mount.hinted(DataLoader(Files(os.path.join(path, images)), 24, shuffle=True, num_workers=workers))
    for batch in loader:
        print("batch", time.time(), flush=True)
        break
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wheel")
    parser.add_argument("--server", default="target/release/s3mount-test-server")
    parser.add_argument("--images", type=int, default=10_000, help="files of 110 KiB in the folder")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--passes", type=int, default=3)
    args = parser.parse_args()
    server = Server(args.server, "aws", "--bucket", "data", "--many", f"data/images/={args.images}x110KiB")
    try:
        for _ in range(args.passes):
            with tempfile.TemporaryDirectory() as folder:
                venv = os.path.join(folder, "venv")
                subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", venv], check=True)
                python, began = os.path.join(venv, "bin", "python"), time.time()
                pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
                subprocess.run([*pip, args.wheel], check=True)
                installed = time.time()
                environment = {**os.environ, **ENVIRONMENT, "S3MOUNT_LOG_DIRECTORY": folder}
                job = [python, "-c", JOB, server.url, "images", str(args.workers)]
                said = subprocess.run(job, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
                times = dict(line.split() for line in said.splitlines())
                mounted, batch = float(times["mounted"]), float(times["batch"])
                print(f"pip install {installed - began:.1f} s, mounted {mounted - installed:.1f} s after that, "
                      f"first batch {batch - installed:.1f} s; {batch - began:.1f} s in all", flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
