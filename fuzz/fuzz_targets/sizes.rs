//! Sizes on the command line.
#![no_main]

use s3mount_settings::flags::size::Size;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(size) = text.parse::<Size>() {
        assert_eq!(size.to_string().parse(), Ok(size), "it is shown as it can be read");
    }
});
