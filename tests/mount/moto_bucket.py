"""Fills the bucket "bucket" of a moto server with the files of a folder, makes a user that may read
it and nothing else, turns moto's checks on, and prints the user's key and secret.
Usage: moto_bucket.py URL FOLDER"""

import json
import pathlib
import sys
import urllib.request

import boto3

url, folder = sys.argv[1], pathlib.Path(sys.argv[2])


def client(service):
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="setup",
        aws_secret_access_key="setup",
    )


s3 = client("s3")
s3.create_bucket(Bucket="bucket")
for path in sorted(folder.rglob("*")):
    if path.is_file():
        s3.put_object(Bucket="bucket", Key=str(path.relative_to(folder)), Body=path.read_bytes())

iam = client("iam")
iam.create_user(UserName="reader")
policy = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": "*"}
    ],
}
iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=json.dumps(policy))
key = iam.create_access_key(UserName="reader")["AccessKey"]
urllib.request.urlopen(
    urllib.request.Request(
        f"{url}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}, method="POST"
    )
).read()
print(key["AccessKeyId"], key["SecretAccessKey"])
