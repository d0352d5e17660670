//! What is written to `.s3mount/prefetch`, cut anyhow.
#![no_main]

libfuzzer_sys::fuzz_target!(|pieces: Vec<&[u8]>| s3mount_fs::fuzzing::hints(&pieces));
