//! Whatever a store sends for a listing: an error, or a page whose names the filesystem takes.
#![no_main]

libfuzzer_sys::fuzz_target!(|xml: &[u8]| {
    if let Some(page) = s3mount_crt::fuzzing::list_page(xml) {
        s3mount_fs::fuzzing::names("", page, "a");
    }
});
