//! S3 test server, models and guards for the tests of s3mount
