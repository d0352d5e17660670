//! Whatever a store sends with an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|xml: &[u8]| s3mount_crt::fuzzing::error(xml));
