//! From keys to names: none may be one that the kernel cannot name, and look-ups agree with listings.
#![no_main]

use s3mount_fs::fuzzing::page;

libfuzzer_sys::fuzz_target!(|input: (&str, Vec<&str>, bool, &str)| {
    let (prefix, keys, has_more, name) = input;
    s3mount_fs::fuzzing::names(prefix, page(prefix, &keys, has_more), name);
});
