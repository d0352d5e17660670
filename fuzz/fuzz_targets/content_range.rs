//! The header by which a store says which bytes it sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|header: &str| s3mount_crt::fuzzing::content_range(header));
