//! How numbers and names are shown.

use indicatif::BinaryBytes;
use s3mount_system::terminal::plain;

/// A number of bytes a second.
pub(crate) fn rate(bytes: f64) -> String {
    format!("{}/s", BinaryBytes(bytes as u64))
}

/// A number of bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

/// A share of the whole.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Dollars. Small sums have more digits.
pub(crate) fn dollars(sum: f64) -> String {
    if sum > 0.0 && sum < 0.1 { format!("${sum:.4}") } else { format!("${sum:.2}") }
}

/// The end of a name that is longer than `width` characters, after a dot for what is left out.
pub(crate) fn tail(name: &str, width: usize) -> String {
    let name = plain(name);
    let len = name.chars().count();
    if len <= width {
        return name.into_owned();
    }
    let kept: String = name.chars().skip(len - width.saturating_sub(1)).collect();
    if width == 0 { kept } else { format!("…{kept}") }
}

#[cfg(test)]
mod tests {
    use super::{dollars, tail};

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(tail("train/shard-000.tar", 9), "…-000.tar");
        assert_eq!((tail("abc", 3).as_str(), tail("abc", 0).as_str()), ("abc", ""));
    }

    #[test]
    fn small_sums_are_not_shown_as_nothing() {
        assert_eq!([0.0, 0.0012, 3.456].map(dollars), ["$0.00", "$0.0012", "$3.46"]);
    }
}
