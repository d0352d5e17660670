//! Turns keys into numbers, to find the place of a key between others, and the text some names further on.
//!
//! A few keys of a page show the pattern of a directory's keys: which positions hold digits, hexadecimal digits,
//! letters, or characters of another script. Each key is then read as a number of mixed radix. In most directories,
//! neighbouring keys are spread evenly over these numbers, whether names are counters, hashes or dates. So a page shows
//! how many names lie between two numbers, and a number gives a text to start a listing after. The result is a guess,
//! so its user compares texts.

/// How many bits of a number are for the positions where the keys of a page differ. As many are for the
/// positions before these, which change from page to page.
const HALF_BITS: u32 = 50;

const DIGIT: u8 = 1;
const LOWER_HEX: u8 = 2;
const LOWER: u8 = 4;
const UPPER_HEX: u8 = 8;
const UPPER: u8 = 16;

fn class(c: char) -> u8 {
    match c {
        '0'..='9' => DIGIT,
        'a'..='f' => LOWER_HEX,
        'g'..='z' => LOWER,
        'A'..='F' => UPPER_HEX,
        'G'..='Z' => UPPER,
        _ => 0,
    }
}

/// The characters that may stand at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    /// Ranges of characters, from and to, in order. No two overlap.
    ranges: Vec<(u32, u32)>,
    /// Whether keys may end before this position. The end comes before all characters.
    may_end: bool,
}

impl Position {
    fn fixed(c: char) -> Self {
        Self { ranges: vec![(c.into(), c.into())], may_end: false }
    }

    /// All characters of these classes, and `others` with the neighbours of their scripts.
    fn new(classes: u8, others: impl Iterator<Item = char>, may_end: bool) -> Self {
        let has = |class| classes & class != 0;
        let mut ranges = Vec::new();
        let mut add = |is_in: bool, from: char, to: char| {
            if is_in {
                ranges.push((u32::from(from), u32::from(to)));
            }
        };
        add(has(DIGIT), '0', '9');
        add(has(UPPER), 'A', 'Z');
        add(has(UPPER_HEX) && !has(UPPER), 'A', 'F');
        add(has(LOWER), 'a', 'z');
        add(has(LOWER_HEX) && !has(LOWER), 'a', 'f');
        // Characters of one script lie together.
        let block = |code: u32| match code {
            0..0x80 => (code, code),
            0x80..0x3000 => (0x80.max(code & !0xff), code | 0xff),
            0x3000..0xd800 => (0x3000, 0xd7ff),
            _ => (code & !0xfff, code | 0xfff),
        };
        ranges.extend(others.map(u32::from).map(block));
        ranges.sort_unstable();
        ranges.dedup();
        Self { ranges, may_end }
    }

    fn radix(&self) -> u128 {
        let count: u32 = self.ranges.iter().map(|(from, to)| to - from + 1).sum();
        u128::from(count) + u128::from(self.may_end)
    }

    /// The number of the last possible character up to `c`, and whether it is `c`. `None` if there is none.
    fn digit(&self, c: Option<char>) -> (Option<u128>, bool) {
        let Some(c) = c.map(u32::from) else { return (self.may_end.then_some(0), self.may_end) };
        let before = |(from, to): &(u32, u32)| if c < *from { 0 } else { c.min(*to) - from + 1 };
        let upto = u128::from(self.ranges.iter().map(before).sum::<u32>()) + u128::from(self.may_end);
        let is_it = self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
        (upto.checked_sub(1), is_it)
    }

    /// The character of a number. `None` for the end of a key.
    fn char(&self, digit: u128) -> Option<char> {
        let mut left = u32::try_from(digit.checked_sub(u128::from(self.may_end))?).ok()?;
        for (from, to) in &self.ranges {
            if left <= to - from {
                return char::from_u32(from + left);
            }
            left -= to - from + 1;
        }
        None
    }
}

/// The rule that turns keys near a page into numbers.
#[derive(Debug)]
pub(crate) struct KeyScale {
    /// The text that all keys begin with.
    fixed: String,
    positions: Vec<Position>,
    /// The text after the positions.
    tail: String,
}

/// The digits that follow a position whose character is not a possible one.
enum FollowingDigits {
    AsInKey,
    Lowest,
    Highest,
}

fn common(a: &[char], b: &[char]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn bits(radix: u128) -> u32 {
    u128::BITS - radix.leading_zeros()
}

impl KeyScale {
    /// A scale for keys near `samples`, which are some keys of a page in order, and up to `end`. `None` if
    /// the samples show nothing.
    pub(crate) fn new(samples: &[&str], end: Option<&str>) -> Option<Self> {
        let keys: Vec<Vec<char>> = samples.iter().map(|key| key.chars().collect()).collect();
        let (first, last) = (keys.first()?, keys.last()?);
        let differ = common(first, last);
        let longest = keys.iter().map(Vec::len).max()?;
        let at = |position: usize| keys.iter().map(move |key| key.get(position).copied());
        let is_varying = |position: usize| at(position).any(|c| c != last.get(position).copied());
        let behind = (differ..longest).rev().find(|position| is_varying(*position))? + 1;
        let position = |index: usize| Self::position(last, index, &at, &is_varying);
        let mut positions: Vec<Position> = Vec::new();
        let mut left = HALF_BITS;
        for position in (differ..behind).map(position) {
            match left.checked_sub(bits(position.radix())) {
                Some(rest) => left = rest,
                None => break,
            }
            positions.push(position);
        }
        let behind = differ + positions.len();
        let shared = end.map_or(0, |end| common(first, &end.chars().collect::<Vec<_>>()).min(differ));
        let (mut begin, mut left) = (differ, HALF_BITS);
        for position in (shared..differ).rev().map(position) {
            match left.checked_sub(bits(position.radix())) {
                Some(rest) => left = rest,
                None => break,
            }
            begin -= 1;
            positions.insert(0, position);
        }
        let text = |part: Option<&[char]>| part.unwrap_or_default().iter().collect::<String>();
        Some(Self { fixed: text(last.get(..begin)), positions, tail: text(last.get(behind..)) })
    }

    /// The characters that may stand at a position of keys like `key`: the classes of those that the samples
    /// have there. If other positions of the same word vary over more classes, this one may, too, although
    /// its character is the same in all samples.
    fn position<I: Iterator<Item = Option<char>>>(
        key: &[char],
        index: usize,
        at: &impl Fn(usize) -> I,
        is_varying: &impl Fn(usize) -> bool,
    ) -> Position {
        let is_word = |c: &char| class(*c) != 0;
        let begin = key.iter().take(index).rposition(|c| !is_word(c)).map_or(0, |before| before + 1);
        let len = key.iter().skip(begin).take_while(|c| is_word(c)).count();
        let classes = |position: usize| at(position).flatten().fold(0, |classes, c| classes | class(c));
        let is_in_word = (begin..begin + len).contains(&index);
        let word = (begin..begin + len).filter(|position| is_in_word && is_varying(*position));
        let word = word.fold(0, |all, position| all | classes(position));
        let own = classes(index);
        let classes = if is_varying(index) || own & !word == 0 {
            own | word
        } else if own & (LOWER | LOWER_HEX) != 0 {
            own | LOWER
        } else if own & (UPPER | UPPER_HEX) != 0 {
            own | UPPER
        } else {
            own
        };
        let others = at(index).flatten().filter(|c| class(*c) == 0 && *c != '/');
        if classes == 0
            && !is_varying(index)
            && let Some(c) = key.get(index).filter(|c| c.is_ascii())
        {
            return Position::fixed(*c);
        }
        Position::new(classes, others, at(index).any(|c| c.is_none()))
    }

    /// How many numbers there are.
    pub(crate) fn total(&self) -> u128 {
        self.positions.iter().map(Position::radix).product()
    }

    /// The number of a key, or of the last text before it that has a number. `None` for a key with another
    /// beginning.
    pub(crate) fn number(&self, key: &str) -> Option<u128> {
        let mut chars = key.strip_prefix(self.fixed.as_str())?.chars();
        let (mut number, mut rest) = (0, FollowingDigits::AsInKey);
        for position in &self.positions {
            let digit = match rest {
                FollowingDigits::Lowest => 0,
                FollowingDigits::Highest => position.radix() - 1,
                FollowingDigits::AsInKey => match position.digit(chars.next()) {
                    (Some(digit), true) => digit,
                    (Some(digit), false) => {
                        rest = FollowingDigits::Highest;
                        digit
                    }
                    (None, _) => {
                        rest = FollowingDigits::Lowest;
                        0
                    }
                },
            };
            number = number * position.radix() + digit;
        }
        Some(number)
    }

    /// The text with this number.
    pub(crate) fn text(&self, number: u128) -> String {
        let mut text = self.fixed.clone();
        let (mut weight, mut left) = (self.total(), number);
        for position in &self.positions {
            weight /= position.radix();
            match position.char(left / weight) {
                Some(c) => text.push(c),
                None => return text,
            }
            left %= weight;
        }
        text.push_str(&self.tail);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::KeyScale;

    fn scale(samples: &[&str], end: Option<&str>) -> KeyScale {
        KeyScale::new(samples, end).expect("a scale")
    }

    /// The text `names` names after the last sample, if the samples are all names.
    fn further(samples: &[&str], names: u128) -> String {
        let scale = scale(samples, None);
        let [first, last] =
            [samples[0], samples[samples.len() - 1]].map(|key| scale.number(key).expect("a number"));
        scale.text(last + (last - first) * names / (samples.len() as u128 - 1))
    }

    #[test]
    fn counted_names_are_met_exactly() {
        let keys: Vec<_> = (0..1000).map(|index| format!("img_{index:07}.jpeg")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        assert_eq!(further(&keys, 1), "img_0001000.jpeg");
        assert_eq!(further(&keys, 9_998_000), "img_9998999.jpeg");
        let keys: Vec<_> = (8000..9000).map(|index| format!("f{index:05}")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        assert_eq!(further(&keys, 12_345), "f21344");
    }

    #[test]
    fn hashes_have_all_digits_also_where_a_page_shows_few() {
        let keys: Vec<_> = (0..64_u32)
            .map(|index| format!("00{:02x}{:08x}", index, index.wrapping_mul(0x9e37_79b9)))
            .collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let scale = scale(&keys, None);
        assert_eq!(&scale.text(scale.total() / 2)[..2], "80");
        assert_eq!(&scale.text(scale.total() * 11 / 16)[..1], "b");
    }

    #[test]
    fn dates_lengths_and_scripts() {
        let keys = ["2023-01-01T00:00:01.json", "2023-01-01T00:00:09.json", "2023-01-01T00:10:00.json"];
        assert_eq!(further(&keys, 20), "2023-01-01T01:09:90.json");
        let keys = ["a", "aa", "ab", "b", "ba", "bb"];
        assert!(*further(&keys, 12) > *"c");
        let keys = ["犬", "犬二", "猫一", "猫二"];
        assert!(*further(&keys, 4) > *"猫二");
        assert!(KeyScale::new(&["a"], None).is_none() && KeyScale::new(&["a", "a"], None).is_none());
    }

    proptest! {
        /// Numbers are in the order of the keys, and a number's text has the number.
        #[test]
        fn numbers_keep_the_order(
            samples in proptest::collection::btree_set("[a-c0-9_é猫]{1,6}", 2..20),
            mut keys in proptest::collection::vec("[a-d0-9_é犬/]{0,7}", 2..20),
            part in 0u128..1000,
        ) {
            let samples: Vec<_> = samples.iter().map(String::as_str).collect();
            let scale = scale(&samples, None);
            keys.sort_unstable();
            let numbers: Vec<_> = keys.iter().filter_map(|key| scale.number(key)).collect();
            prop_assert!(numbers.is_sorted(), "{keys:?} {numbers:?} {scale:?}");
            let number = scale.total() / 1000 * part;
            let text = scale.text(number);
            let back = scale.number(&text).expect("a number");
            let has_ends = scale.positions.iter().any(|position| position.may_end);
            prop_assert!(back == number || has_ends && back < number, "{text} of {number}: {scale:?}");
            prop_assert!(!text.contains('/'));
        }
    }
}
