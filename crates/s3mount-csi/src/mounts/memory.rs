//! The memory of the node, and what each mount holds of it.
//!
//! A mount holds what it may take as it is: its ceiling less what it has given back to the kernel. All of them together
//! never hold more than the node's memory: a limit is raised only by what nobody holds. A mount that does not answer keeps
//! what it was last known to hold.
//!
//! **Lock order:** whose turn it is, then what is known.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use s3mount_settings::flags::size::Size;

use super::asked::{Asked, MemoryAnswer};
use super::record::Record;
use crate::shares::{Use, divide, raises};
use crate::volume::Volume;

/// How long a volume waits for the memory that others have to give back. Kubernetes asks again.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// How often they are asked meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

/// Smaller changes of a limit are not worth the asking: a limit has steps of 2 MiB.
const LEAST_CHANGE: u64 = 2 * STEP;

/// The steps of a limit: huge pages.
const STEP: u64 = 2 << 20;

/// A mount that may be written has this much more than the floor of others, as parts of the floor: what is being written
/// can't be given back.
const FOR_WRITES: (u64, u64) = (1, 2);

/// A volume finds no memory on the node.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// So many volumes are there that the node has no part for one more.
    Full(String),
    /// Others have yet to give theirs back.
    NotYet(String),
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(text) | Self::NotYet(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for NoRoom {}

/// The memory that all mounts of a node have together.
#[derive(Debug)]
pub(crate) struct NodeMemory {
    bytes: u64,
    floor: u64,
    /// What a mount holds whose limit stays as it is, if its volume names none.
    fixed: u64,
    /// Whoever divides the memory has the turn.
    turn: Mutex<()>,
    /// What each mount was last known to hold, by the names of the records.
    known: Mutex<HashMap<String, Held>>,
}

/// What a mount holds, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: u64,
    floor: u64,
    /// Whether it is being mounted.
    is_coming: bool,
}

/// The place of a volume that is being mounted. It is given up if that fails.
#[derive(Debug)]
pub(super) struct Place<'a> {
    memory: &'a NodeMemory,
    name: String,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.memory.known().get_mut(&self.name) {
            held.is_coming = false;
        }
    }
}

impl NodeMemory {
    /// `bytes` for all mounts, of which each has at least the `floor`. A mount that another driver has made, without a
    /// floor, has the `fixed` limit.
    ///
    /// # Errors
    /// A floor that does not fit the node's memory, or is too little for a mount.
    pub(crate) fn new(bytes: Size, floor: Size, fixed: Size) -> anyhow::Result<Self> {
        anyhow::ensure!(
            (Size(64 << 20).0..=bytes.0).contains(&floor.0),
            "--memory-floor {floor} is not between 64MiB and --node-memory {bytes}"
        );
        let (bytes, floor, fixed) = (bytes.0, floor.0, fixed.0);
        Ok(Self { bytes, floor, fixed, turn: Mutex::default(), known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits of a volume's memory: the highest, and the least.
    pub(super) fn limits(&self, volume: &Volume) -> (u64, u64) {
        let ceiling = volume.memory_bytes.unwrap_or(self.bytes);
        let (part, of) = FOR_WRITES;
        let is_written = volume.is_written();
        let floor = if is_written { self.floor + self.floor / of * part } else { self.floor };
        // A floor that the limit can have.
        let above = ceiling.saturating_sub(floor) / STEP * STEP;
        (ceiling, ceiling - above)
    }

    /// Says what is wrong if one more volume with this `floor` does not fit beside these floors.
    fn check(&self, floor: u64, others: &[u64]) -> Result<(), NoRoom> {
        let sum: u64 = others.iter().sum();
        if sum + floor <= self.bytes {
            return Ok(());
        }
        Err(NoRoom::Full(format!(
            "the memory of this node is too little for one more volume: {} volumes have at least {} of --node-memory {}, \
             and this one needs {}; raise --node-memory, lower --memory-floor, or let the pod run on another node",
            others.len(),
            Size(sum),
            Size(self.bytes),
            Size(floor)
        )))
    }
}

/// What all mounts are asked for beyond their shares while a volume waits. A mount that is busy may hold a huge page more than
/// its limit for long: with twelve such mounts, a volume waited in vain for 2 MiB in most tries.
#[derive(Debug, Default)]
struct Spare {
    bytes: u64,
    seconds: u64,
}

impl Spare {
    /// After each second in which `missing` bytes were still held, these are asked for, too.
    fn ask_for(&mut self, missing: u64, waited: Duration) {
        if waited.as_secs() > self.seconds {
            self.seconds = waited.as_secs();
            self.bytes += missing;
        }
    }
}

/// A mount, and what it has answered.
struct Answered {
    record: Record,
    answer: MemoryAnswer,
}

/// Lists the records of all mounts that are there.
type Mounted<'a> = &'a dyn Fn() -> anyhow::Result<Vec<Record>>;

impl NodeMemory {
    /// Finds a place for one more mount, which has this `record`.
    ///
    /// # Errors
    /// [`NoRoom`], and those of listing the mounts.
    pub(super) fn place_for(
        &self,
        record: &Record,
        asked: &Asked,
        mounted: Mounted<'_>,
    ) -> anyhow::Result<Place<'_>> {
        let (_, floor) = self.limits(record.volume());
        let name = record.name().to_owned();
        self.divide(asked, mounted)?;
        {
            let mut known = self.known();
            let others = known.iter().filter(|(other, _)| **other != name).map(|(_, held)| held.floor);
            self.check(floor, &others.collect::<Vec<_>>())?;
            known.insert(name.clone(), Held { bytes: floor, floor, is_coming: true });
        }
        let place = Place { memory: self, name };
        let (began, mut spare) = (Instant::now(), Spare::default());
        loop {
            let held = self.divide_less(spare.bytes, asked, mounted)?;
            if held <= self.bytes {
                return Ok(place);
            }
            spare.ask_for(held - self.bytes, began.elapsed());
            if began.elapsed() >= WAIT_LIMIT {
                return Err(NoRoom::NotYet(format!(
                    "other volumes have not yet given back the {} of this node's memory that the volume needs",
                    Size(floor)
                ))
                .into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Asks all mounts, and tells them their limits. Returns how much all of them hold then.
    ///
    /// # Errors
    /// Those of listing the mounts.
    pub(super) fn divide(&self, asked: &Asked, mounted: Mounted<'_>) -> anyhow::Result<u64> {
        self.divide_less(0, asked, mounted)
    }

    /// As [`divide`](Self::divide), with so many bytes less.
    fn divide_less(&self, spare: u64, asked: &Asked, mounted: Mounted<'_>) -> anyhow::Result<u64> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (mounts, mut uses): (Vec<Record>, Vec<Use>) = self
            .ask(asked, mounted()?)
            .into_iter()
            .filter_map(|Answered { record, answer }| match answer {
                MemoryAnswer::Use(shown) => Some((record, shown)),
                MemoryAnswer::Fixed | MemoryAnswer::Dead | MemoryAnswer::Silence => None,
            })
            .unzip();
        let others: u64 = {
            let known = self.known();
            let is_other = |name: &String| mounts.iter().all(|record| record.name() != name);
            known.iter().filter(|(name, _)| is_other(name)).map(|(_, held)| held.bytes).sum()
        };
        let targets = divide(self.bytes.saturating_sub(others + spare), &uses);
        for ((record, shown), target) in mounts.iter().zip(&mut uses).zip(&targets) {
            let least_change = if *target == shown.floor { STEP } else { LEAST_CHANGE };
            if shown.limit >= target + least_change {
                asked.set_memory(&record.folder(), *target);
                if let MemoryAnswer::Use(now) = asked.memory(&record.folder()) {
                    *shown = now;
                    self.note(record.name(), now);
                }
            }
        }
        let held: u64 = others + uses.iter().map(Use::held).sum::<u64>();
        for (index, limit) in raises(self.bytes.saturating_sub(held), &uses, &targets) {
            let (record, shown) = (&mounts[index], uses[index]);
            if limit >= shown.limit + LEAST_CHANGE {
                // It holds that from now on, whether it answers or not.
                let away = shown.away.min(shown.ceiling.saturating_sub(limit));
                self.note(record.name(), Use { away, ..shown });
                asked.set_memory(&record.folder(), limit);
            }
        }
        Ok(self.known().values().map(|held| held.bytes).sum())
    }

    /// Asks these mounts for their memory, all at once, and notes what they hold. All others hold nothing, but for those
    /// that are being mounted.
    fn ask(&self, asked: &Asked, mounted: Vec<Record>) -> Vec<Answered> {
        let is_there = |name: &str| mounted.iter().any(|record| record.name() == name);
        self.known().retain(|name, held| held.is_coming || is_there(name));
        let ask = |record: Record| Answered { answer: asked.memory(&record.folder()), record };
        let answered: Vec<Answered> = std::thread::scope(|scope| {
            let asking: Vec<_> = mounted.into_iter().map(|record| scope.spawn(move || ask(record))).collect();
            asking.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        for Answered { record, answer } in &answered {
            let name = record.name();
            match answer {
                MemoryAnswer::Use(shown) => self.note(name, *shown),
                MemoryAnswer::Fixed => {
                    let bytes = record.volume().memory_bytes.unwrap_or(self.fixed);
                    let held = Held { bytes, floor: bytes, is_coming: false };
                    self.known().insert(name.to_owned(), held);
                }
                MemoryAnswer::Dead => drop(self.known().remove(name)),
                // The driver before may have given it all that it may have.
                MemoryAnswer::Silence => {
                    let (bytes, floor) = self.limits(record.volume());
                    let unknown = Held { bytes, floor, is_coming: false };
                    self.known().entry(name.to_owned()).or_insert(unknown);
                }
            }
        }
        answered
    }

    /// Notes what a mount holds.
    fn note(&self, name: &str, shown: Use) {
        let mut known = self.known();
        let held = known.entry(name.to_owned()).or_default();
        (held.bytes, held.floor) = (shown.held(), shown.floor);
    }
}

#[cfg(test)]
mod tests {
    use s3mount_settings::flags::size::Size;

    use std::time::Duration;

    use super::{NoRoom, NodeMemory, Spare};
    use crate::credentials::Credentials;
    use crate::volume::Volume;

    const MIB: u64 = 1 << 20;

    fn volume(flags: &[&str], memory_bytes: Option<u64>) -> Volume {
        Volume {
            id: "v".to_owned(),
            source: "s3://b/".to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            memory_bytes,
            credentials: Credentials::Driver,
        }
    }

    #[test]
    fn what_is_missing_for_a_second_is_asked_for() {
        let mut spare = Spare::default();
        let mut asked = |missing: u64, waited_ms: u64| {
            spare.ask_for(missing, Duration::from_millis(waited_ms));
            spare.bytes
        };
        assert_eq!([asked(100, 0), asked(50, 900)], [0, 0], "they are giving it back");
        assert_eq!([asked(8, 1000), asked(8, 1900)], [8, 8]);
        assert_eq!([asked(2, 2050), asked(2, 3100)], [10, 12]);
    }

    #[test]
    fn a_volume_has_the_node_s_memory_or_its_own_and_a_floor() {
        let memory = NodeMemory::new(Size(1024 * MIB), Size(128 * MIB), Size(MIB)).expect("a node");
        let limits = |flags: &[&str], own: Option<u64>| {
            let (ceiling, floor) = memory.limits(&volume(flags, own.map(|mib| mib * MIB)));
            (ceiling / MIB, floor / MIB)
        };
        assert_eq!(limits(&[], None), (1024, 128));
        assert_eq!(limits(&["--allow=write"], None), (1024, 192));
        assert_eq!(limits(&["--allow=write"], Some(512)), (512, 192));
        assert_eq!(limits(&[], Some(96)), (96, 96));
        assert_eq!(limits(&[], Some(257)), (257, 129), "a whole number of steps below");
        assert!(NodeMemory::new(Size(1024 * MIB), Size(MIB), Size(MIB)).is_err());
        assert!(NodeMemory::new(Size(100 * MIB), Size(128 * MIB), Size(MIB)).is_err());
    }

    #[test]
    fn who_finds_no_room_hears_what_to_do() {
        let memory = NodeMemory::new(Size(512 * MIB), Size(128 * MIB), Size(MIB)).expect("a node");
        assert!(memory.check(128 * MIB, &[128 * MIB; 3]).is_ok());
        let Err(NoRoom::Full(text)) = memory.check(128 * MIB, &[128 * MIB; 4]) else {
            panic!("there is no room")
        };
        assert!(text.contains("4 volumes have at least 512MiB of --node-memory 512MiB"), "{text}");
        assert!(text.contains("needs 128MiB; raise --node-memory"), "{text}");
    }
}
