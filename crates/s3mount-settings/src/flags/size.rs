//! Sizes with units.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];

impl FromStr for Size {
    type Err = String;

    /// Parses a size. `K`, `KiB`, `M` ... are powers of 1024; `KB`, `MB` ... are powers of 1000, as in
    /// coreutils.
    fn from_str(text: &str) -> Result<Self, String> {
        let error = || "not a size; write a number with a unit, such as 8MiB or 2G".to_owned();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_uppercase();
        let (letter, base) = match unit.strip_suffix("IB") {
            Some(letter) => (letter, 1024u64),
            None => unit.strip_suffix('B').map_or((unit.as_str(), 1024), |letter| (letter, 1000)),
        };
        let power = UNITS.iter().position(|known| *known == letter).ok_or_else(error)?;
        let factor = base.pow(u32::try_from(power).map_err(|_| error())?);
        if let Ok(number) = number.parse::<u64>() {
            return number.checked_mul(factor).map(Size).ok_or_else(|| "too large".to_owned());
        }
        let number: f64 = number.parse().map_err(|_| error())?;
        let bytes = number * factor as f64;
        if bytes < u64::MAX as f64 { Ok(Size(bytes as u64)) } else { Err("too large".to_owned()) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut power = 0;
        let mut number = self.0;
        while number > 0 && number.is_multiple_of(1024) && power + 1 < UNITS.len() {
            number /= 1024;
            power += 1;
        }
        match UNITS[power] {
            "" => write!(f, "{number}B"),
            unit => write!(f, "{number}{unit}iB"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Size;

    #[test]
    fn units_are_those_of_coreutils() {
        let cases = [
            ("8MiB", 8 << 20),
            ("2G", 2 << 30),
            ("512k", 512 << 10),
            ("1MB", 1_000_000),
            ("1.5GiB", 3 << 29),
            ("1048576", 1 << 20),
            ("100B", 100),
            ("0", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "banana", "MiB", "8XB", "-1", "1e9", "8 M i B", "1..5G", "99999999999999999999G"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(bytes: u64) {
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }

        #[test]
        fn nothing_panics(text: String) {
            let _ = text.parse::<Size>();
        }
    }
}
