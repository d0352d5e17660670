//! Sizes on the command line.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| s3mount_cli::fuzzing::size(text));
