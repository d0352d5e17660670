//! Times that have passed, with a unit.

use std::str::FromStr;
use std::time::Duration;

/// The value of `--idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub Duration);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || "not a time; write a number with a unit, such as 7d, 12h, 30m or 45s".to_owned();
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let (number, unit) = text.split_at(digits);
        let unit_s: u64 = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 24 * 3600,
            "w" => 7 * 24 * 3600,
            _ => return Err(error()),
        };
        let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s));
        seconds.map(|seconds| Self(Duration::from_secs(seconds))).ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Age;

    #[test]
    fn an_age_has_a_unit() {
        let seconds = |text: &str| text.parse().map(|Age(age): Age| age.as_secs());
        assert_eq!(
            ["45s", "30m", "12h", "7d", "2w"].map(seconds),
            [45, 1800, 43_200, 604_800, 1_209_600].map(Ok)
        );
        for text in
            ["", "7", "d", "-1d", "1.5h", "7 d", "1y", "99999999999999999999s", "9999999999999999999w"]
        {
            assert!(text.parse::<Age>().is_err(), "{text}");
        }
        assert_eq!("0s".parse(), Ok(Age(Duration::ZERO)));
    }
}
