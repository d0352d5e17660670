//! The time in the cache's records: the boot of the machine, and the time since it.
//!
//! Wall-clock time may jump. The time since the boot never goes back, and it means the same in all processes
//! of the machine.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// One boot of one machine, as the kernel names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BootId(pub(crate) [u8; 16]);

impl BootId {
    /// No known boot: the bytes may not have survived the last one.
    pub(crate) const UNKNOWN: Self = Self([0; 16]);

    fn of_this_boot() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = Self::parse(&text);
        let boot = boot.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "boot_id is no UUID"))?;
        // A kernel without time namespaces has no such file.
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Ok(boot.shifted(offset(&offsets)))
    }

    /// The boot for processes whose time since the boot is shifted by `offset`: those of a container with its own time
    /// namespace. Their times can't be compared with those of other processes, so they count as another boot.
    fn shifted(self, offset: i128) -> Self {
        let mixed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128 as i128);
        Self((u128::from_be_bytes(self.0) ^ mixed as u128).to_be_bytes())
    }

    fn parse(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
        u128::from_str_radix(&digits, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

/// The nanoseconds by which this process's time since the boot is shifted, from the kernel's list of offsets.
fn offset(list: &str) -> i128 {
    let boot_time = list.lines().find_map(|line| line.trim_start().strip_prefix("boottime"));
    let mut numbers = boot_time.unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok());
    let (seconds, nanoseconds): (i128, i128) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds * 1_000_000_000 + nanoseconds
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Nanoseconds since the boot, including the time that the machine was suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SinceBoot(pub(crate) u64);

impl SinceBoot {
    /// The time from `earlier` to `self`; 0 if `self` is not later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time that is `time` after `self`.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The start of the times that this clock gives to files: later than any time that the machine gives to a file
/// meanwhile.
const FAR: Duration = Duration::from_secs(4_000_000_000);

/// Returns the nanoseconds since the boot.
type Told = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The clock: the boot and the time since it. Tests and simulations set both.
#[derive(Clone)]
pub(crate) struct Clock {
    boot: BootId,
    /// The time of a test or a simulation; `None` is the machine's.
    told: Option<Told>,
    /// Whether files also get their times from this clock, so that nothing depends on the machine's time.
    marks_files: bool,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("boot", &self.boot).field("is_told", &self.told.is_some()).finish()
    }
}

impl Clock {
    /// The machine's clock.
    pub(crate) fn machine() -> io::Result<Self> {
        Ok(Self { boot: BootId::of_this_boot()?, told: None, marks_files: false })
    }

    /// A clock that stands at the nanoseconds in `now`, on boot number `boot`.
    #[cfg(test)]
    pub(crate) fn manual(boot: u8, now: Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self::told(boot, move || now.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// A clock that calls a function for the nanoseconds since boot number `boot`.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn told(boot: u8, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { boot: BootId([boot; 16]), told: Some(Arc::new(now)), marks_files: false }
    }

    /// As [`told`](Self::told), and files get their times from this clock.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn by_hand(boot: u8, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { marks_files: true, ..Self::told(boot, now) }
    }

    /// Whether files get their times from this clock.
    pub(crate) fn marks_files(&self) -> bool {
        self.marks_files
    }

    /// The time that a file written now gets.
    pub(crate) fn file_time(&self) -> Duration {
        if self.marks_files { FAR + Duration::from_nanos(self.now().0) } else { file_time() }
    }

    pub(crate) fn boot(&self) -> BootId {
        self.boot
    }

    pub(crate) fn now(&self) -> SinceBoot {
        SinceBoot(match &self.told {
            Some(now) => now(),
            None => {
                let now = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
                seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
            }
        })
    }
}

/// The time of the clock that file systems take the times of files from. It may jump.
pub(crate) fn file_time() -> Duration {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::{BootId, Clock, offset};

    #[test]
    fn a_boot_is_a_uuid() {
        let boot = BootId::parse("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n").expect("a UUID");
        assert_eq!(format!("{boot:?}"), "0f1e2d3c4b5a69788796a5b4c3d2e1f0");
        assert_eq!(BootId::parse("none"), None);
    }

    #[test]
    fn a_time_namespace_is_another_boot() {
        let list =
            |seconds: i64| format!("monotonic           0         0\nboottime  {seconds:>10}         7\n");
        assert_eq!((offset(&list(-3600)), offset("")), (-3_599_999_999_993, 0));
        let boot = BootId([7; 16]);
        let boots = [0, 1, -1, 3600, i128::from(i64::MAX)].map(|offset| boot.shifted(offset));
        assert_eq!(boots[0], boot);
        assert!((0..5).all(|one| (0..one).all(|other| boots[one] != boots[other])));
    }

    #[test]
    fn the_machine_has_a_boot_and_a_time() {
        let clock = Clock::machine().expect("Linux");
        let before = clock.now();
        assert!(before.0 > 0 && clock.now() >= before);
        assert_eq!(clock.boot(), Clock::machine().expect("Linux").boot());
    }
}
