//! A cache directory without threads, for simulations: a [`Hand`] does the work of its threads.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::checking::Checking;
use super::{Disk, READERS, SharedDisk, TICK, WRITERS, lock};
use crate::disk::clock::SinceBoot;
use crate::disk::dir::Dir;
use crate::disk::io::faults::Op;
use crate::disk::io::pool::Pool;
use crate::disk::metrics::DiskMetrics;
use crate::disk::object::queue::Queue;
use crate::disk::object::version::Offer;

/// How often the housekeeper of the room works.
const ROOM_TICK: Duration = Duration::from_secs(1);

/// Does the work of the threads of one cache directory, step by step.
pub struct Hand {
    disk: Arc<SharedDisk>,
    bell: Arc<Notify>,
    ticks: Mutex<Ticks>,
    /// The objects that are being compared with their checksums.
    checked: Mutex<Checking>,
}

#[derive(Debug)]
struct Ticks {
    /// How many looks for hanging operations there were.
    looked: u64,
    /// When to look again, and when the housekeeper of the room works again.
    look_at: SinceBoot,
    room_at: SinceBoot,
    /// No object is compared before this time.
    check_at: SinceBoot,
}

/// A step that is due.
#[derive(Clone, Copy, Debug)]
enum Due {
    Task(usize),
    Item(usize),
    Look,
    Room,
    Check,
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").field("ticks", &self.ticks).finish_non_exhaustive()
    }
}

/// Opens the directory without a thread.
pub(crate) fn open(dir: Dir, queue_bytes: u64) -> (Disk, Hand) {
    let bell = Arc::new(Notify::new());
    let (queue, readers) = (Queue::by_hand(queue_bytes, bell.clone()), Pool::by_hand(bell.clone()));
    let now = dir.clock.now();
    let disk = Arc::new(SharedDisk { is_by_hand: true, ..SharedDisk::new(dir, queue, readers) });
    let (look_at, room_at) = (now.after(TICK), now.after(ROOM_TICK));
    let ticks = Mutex::new(Ticks { looked: 0, look_at, room_at, check_at: now });
    (Disk(disk.clone()), Hand { disk, bell, ticks, checked: Mutex::default() })
}

impl Hand {
    /// Resolves when new work has come since the last call. Work that is due at a certain time is not announced.
    pub async fn rings(&self) {
        self.bell.notified().await;
    }

    /// Does one step that a thread could do now, chosen by `choice`. Returns whether there was one.
    pub fn step(&self, choice: u64) -> bool {
        let due = self.due();
        let chosen = choice.checked_rem(due.len() as u64).and_then(|at| due.get(at as usize));
        match chosen {
            None => return false,
            Some(Due::Task(number)) => self.disk.readers.step(*number),
            Some(Due::Item(number)) => self.disk.queue.step(*number, Offer::keep),
            Some(Due::Look) => {
                let looked = {
                    let mut ticks = lock(&self.ticks);
                    ticks.look_at = self.disk.dir.clock.now().after(TICK);
                    ticks.looked += 1;
                    ticks.looked
                };
                self.disk.look_after(looked);
            }
            Some(Due::Room) => {
                lock(&self.ticks).room_at = self.disk.dir.clock.now().after(ROOM_TICK);
                self.disk.dir.room.step();
            }
            Some(Due::Check) => {
                let rest = self.disk.check_piece(&mut lock(&self.checked)).unwrap_or_default();
                lock(&self.ticks).check_at = self.disk.dir.clock.now().after(rest);
            }
        }
        true
    }

    fn due(&self) -> Vec<Due> {
        let tasks = (0..self.disk.readers.waiting().min(READERS)).map(Due::Task);
        let items = (0..self.disk.queue.waiting().min(WRITERS)).map(Due::Item);
        let (now, ticks) = (self.disk.dir.clock.now(), lock(&self.ticks));
        let look = (now >= ticks.look_at).then_some(Due::Look);
        let room = (now >= ticks.room_at || self.disk.dir.room.has_notes()).then_some(Due::Room);
        let has_checks = self.disk.checks.has_any() || lock(&self.checked).has_any();
        let check = (now >= ticks.check_at && has_checks).then_some(Due::Check);
        tasks.chain(items).chain(look).chain(room).chain(check).collect()
    }

    /// The metrics of the cache.
    pub fn metrics(&self) -> Arc<DiskMetrics> {
        self.disk.dir.metrics.clone()
    }

    /// Calls `fault` before each operation of the disk from now on. The operation fails with the error that `fault`
    /// returns.
    pub fn set_faults(&self, fault: impl Fn(Op) -> io::Result<()> + Send + Sync + 'static) {
        self.disk.dir.io.faults.set(fault);
    }

    /// Ends everything as a kill does: drops all waiting work, ends the waits for it, and releases all locks.
    pub fn kill(&self) {
        self.set_faults(|_| Err(io::ErrorKind::Interrupted.into()));
        self.disk.readers.close();
        self.disk.queue.close();
        self.disk.checks.close();
        drop(std::mem::take(&mut *lock(&self.checked)));
        self.disk.parts.clear();
        let versions: Vec<_> = lock(&self.disk.table).versions().collect();
        lock(&self.disk.table).objects.clear();
        versions.iter().for_each(|version| drop(version.give_up()));
        self.disk.dir.room.resign();
    }
}
