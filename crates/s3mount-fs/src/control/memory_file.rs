//! `.s3mount/memory`: shows the payload memory as JSON, and takes the limit that it is to have.
//!
//! All numbers are those of the command line: with the part of `--memory-limit` that is not the pool's.

use s3mount_prefetch::MemoryView;

/// The text of the file, of which `beside_bytes` are not the pool's.
pub(crate) fn show(view: &MemoryView, beside_bytes: u64) -> String {
    let numbers = [
        ("floor", view.least_bytes + beside_bytes),
        ("limit", view.limit_bytes + beside_bytes),
        ("ceiling", view.most_bytes + beside_bytes),
        ("used", view.used_bytes + beside_bytes),
        ("away", view.away_bytes),
        ("waiting", view.waiting_bytes),
        ("most_used", view.peak_bytes + beside_bytes),
    ];
    format!("{{{}}}\n", numbers.map(|(name, bytes)| format!("\"{name}\": {bytes}")).join(", "))
}

/// The limit of the pool that a WRITE asks for, in bytes: one number, of which `beside_bytes` are not the pool's.
pub(crate) fn parse(data: &[u8], beside_bytes: u64) -> Option<u64> {
    let text = str::from_utf8(data).ok()?.trim_ascii();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX).saturating_sub(beside_bytes))
}

#[cfg(test)]
mod tests {
    use s3mount_prefetch::MemoryView;

    use super::{parse, show};

    #[test]
    fn it_shows_the_numbers_of_the_command_line_and_takes_one() {
        let view = MemoryView {
            least_bytes: 100,
            limit_bytes: 200,
            most_bytes: 300,
            used_bytes: 50,
            away_bytes: 90,
            waiting_bytes: 7,
            peak_bytes: 60,
        };
        assert_eq!(
            show(&view, 10),
            "{\"floor\": 110, \"limit\": 210, \"ceiling\": 310, \"used\": 60, \"away\": 90, \"waiting\": 7, \
             \"most_used\": 70}\n"
        );
        assert_eq!(parse(b" 210\n", 10), Some(200));
        assert_eq!(parse(b"3", 10), Some(0), "it is raised to the least");
        assert_eq!(parse(b"99999999999999999999", 10), Some(u64::MAX - 10));
        for wrong in [&b""[..], b"\n", b"-1", b"+1", b"1MiB", b"1 2", b"\xff"] {
            assert_eq!(parse(wrong, 10), None, "{wrong:?}");
        }
    }
}
