"""Makes a bucket and puts objects into it, one of them in parts, each with a CRC-32.
OBJECTS is a JSON file: keys, and their bytes in base64.
Usage: fill_bucket.py URL BUCKET OBJECTS KEY_IN_PARTS PART_BYTES"""

import base64
import json
import pathlib
import sys

import boto3
from botocore.exceptions import ClientError

url, bucket, objects, key_in_parts, part_bytes = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
s3.create_bucket(Bucket=bucket)


def put_in_parts(key, body, length):
    upload = s3.create_multipart_upload(
        Bucket=bucket, Key=key, ChecksumAlgorithm="CRC32", ChecksumType="COMPOSITE"
    )
    parts = []
    for number, start in enumerate(range(0, len(body), length), start=1):
        part = s3.upload_part(
            Bucket=bucket,
            Key=key,
            UploadId=upload["UploadId"],
            PartNumber=number,
            Body=body[start : start + length],
            ChecksumAlgorithm="CRC32",
        )
        parts.append(
            {"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}
        )
    s3.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload["UploadId"], MultipartUpload={"Parts": parts}
    )


refused = []
for key, text in json.loads(pathlib.Path(objects).read_text()).items():
    body = base64.b64decode(text)
    try:
        if key == key_in_parts:
            put_in_parts(key, body, int(part_bytes))
        else:
            s3.put_object(Bucket=bucket, Key=key, Body=body, ChecksumAlgorithm="CRC32")
    except ClientError as error:
        refused.append(f"{key!r}: {error}")
if refused:
    sys.exit("\n".join(refused))
