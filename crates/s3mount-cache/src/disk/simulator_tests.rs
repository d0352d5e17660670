//! The policy in virtual time, beside Belady's optimum, LRU, random replacement and S3-FIFO.
//!
//! The test compares the policy with the optimum. `cargo test -p s3mount-cache --lib simulator -- --ignored
//! --nocapture` also runs the others, and prints the table.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::disk::evict::ageing::Ageing;
use s3mount_object::{ETag, ObjectId};

use super::layout::{Hash, SHARDS};
use crate::disk::evict::ghosts::{BUCKETS, Bucket, Place};
use crate::disk::evict::use_history::Note;
use crate::disk::evict::victims::{Candidate, MIN_SHARDS, MIN_VERSIONS, evictable, is_closed, wait};

/// How many bytes fit. Objects of one size are 1 MiB large, so 1,000 of them fit.
const CACHE: u64 = 1000 << 20;

/// When the first use of a trace is.
const START: Duration = Duration::from_secs(1_800_000_000);

type Id = usize;

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn shuffle(&mut self, ids: &mut [Id]) {
        for at in (1..ids.len()).rev() {
            ids.swap(at, self.below(at + 1));
        }
    }
}

/// Uses of objects in the order of time. Each belongs to a phase, for which hits are counted.
struct Trace {
    sizes: Vec<u64>,
    uses: Vec<(Duration, Id, usize)>,
    now: Duration,
    random: Random,
}

impl Trace {
    fn new() -> Self {
        Self { sizes: Vec::new(), uses: Vec::new(), now: START, random: Random(7) }
    }

    /// New objects that take `part` of the cache together.
    fn objects(&mut self, part: f64, size: impl Fn(&mut Random) -> u64) -> Vec<Id> {
        let (first, mut bytes) = (self.sizes.len(), 0);
        while bytes < (CACHE as f64 * part) as u64 {
            let size = size(&mut self.random);
            self.sizes.push(size);
            bytes += size;
        }
        (first..self.sizes.len()).collect()
    }

    fn even(&mut self, part: f64) -> Vec<Id> {
        self.objects(part, |_| 1 << 20)
    }

    /// Uses all of `ids` once within `length`, from now on.
    fn epoch(&mut self, ids: &[Id], order: Order, length: Duration, phase: usize) {
        let end = self.now + length;
        self.epoch_at(self.now, ids, order, length, phase);
        self.now = end;
    }

    fn epoch_at(&mut self, start: Duration, ids: &[Id], order: Order, length: Duration, phase: usize) {
        let mut ids = ids.to_vec();
        match order {
            Order::Shuffled => self.random.shuffle(&mut ids),
            Order::Same => {}
            Order::Replaced => {
                let from = ids.clone();
                ids.iter_mut().for_each(|id| *id = from[self.random.below(from.len())]);
            }
        }
        for (at, id) in ids.iter().enumerate() {
            self.uses.push((start + length.mul_f64(at as f64 / ids.len() as f64), *id, phase));
        }
    }

    /// Repeats each use of the trace `times` times, within `spread`.
    fn repeat(&mut self, times: u32, spread: Duration) {
        let once = std::mem::take(&mut self.uses);
        for (at, id, phase) in once {
            self.uses.extend(
                (0..times).map(|time| (at + spread.mul_f64(f64::from(time) / f64::from(times)), id, phase)),
            );
        }
    }

    fn sorted(mut self) -> Self {
        self.uses.sort_by_key(|(at, ..)| *at);
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Shuffled,
    Same,
    /// As many uses as there are objects, each of a random one.
    Replaced,
}

/// The bytes of hits and of all uses, by phase.
#[derive(Clone, Debug, Default)]
struct Score(Vec<(u64, u64)>);

impl Score {
    fn count(&mut self, phase: usize, bytes: u64, is_hit: bool) {
        if self.0.len() <= phase {
            self.0.resize(phase + 1, (0, 0));
        }
        self.0[phase].0 += if is_hit { bytes } else { 0 };
        self.0[phase].1 += bytes;
    }

    fn rate(&self, phases: Range<usize>) -> f64 {
        let sum = self.0[phases].iter().fold((0, 0), |sum, phase| (sum.0 + phase.0, sum.1 + phase.1));
        sum.0 as f64 / sum.1 as f64
    }
}

trait Policy {
    /// Whether the object is here; it may be afterwards.
    fn is_hit(&mut self, at: Duration, id: Id, bytes: u64) -> bool;
}

fn run(trace: &Trace, policy: &mut dyn Policy) -> Score {
    let mut score = Score::default();
    for (at, id, phase) in &trace.uses {
        let bytes = trace.sizes[*id];
        score.count(*phase, bytes, policy.is_hit(*at, *id, bytes));
    }
    score
}

/// The shipped policy, around a disk that is a table.
struct Ours {
    ageing: Ageing,
    ghosts: Vec<Bucket>,
    hashes: Vec<Hash>,
    /// The last use of each object that is here, as its file records it, and its bytes.
    files: Vec<Option<(Duration, u64)>>,
    shards: Vec<Vec<Id>>,
    spare: Vec<Candidate<Id>>,
    used: u64,
    closed_until: Duration,
    random: Random,
    written: u64,
}

impl Ours {
    /// A cache for `count` objects.
    fn new(count: usize) -> Self {
        let hash = |id: Id| Hash::of("", &ObjectId::new(&id.to_string(), ETag::new("")));
        Self {
            ageing: Ageing::default(),
            ghosts: vec![[0; 64]; BUCKETS as usize],
            hashes: (0..count).map(hash).collect(),
            files: vec![None; count],
            shards: vec![Vec::new(); usize::from(SHARDS)],
            spare: Vec::new(),
            used: 0,
            closed_until: Duration::ZERO,
            random: Random(1),
            written: 0,
        }
    }

    fn on_use(&mut self, at: Duration, id: Id) {
        let place = Place::of(&self.hashes[id]);
        let file = self.files[id].as_mut();
        let note = Note { place, at, before: file.as_ref().map(|(used, _)| *used) };
        let bucket = &mut self.ghosts[place.offset() as usize / size_of::<Bucket>()];
        let had_changed = self.ageing.has_changed();
        if let Some(used) = note.in_bucket(bucket, self.ageing.quick()) {
            self.ageing.note(used, at);
        }
        if self.ageing.has_changed() && !had_changed {
            self.closed_until = Duration::ZERO;
        }
        if let Some((used, _)) = file
            && self.ageing.is_time_stale(*used, at)
        {
            *used = at;
        }
    }

    fn look(&mut self) -> Vec<Candidate<Id>> {
        let mut filled: Vec<_> =
            (0..self.shards.len()).filter(|shard| !self.shards[*shard].is_empty()).collect();
        let (mut seen, mut shards) = (Vec::new(), 0);
        while !filled.is_empty() && (shards < MIN_SHARDS || seen.len() < MIN_VERSIONS) {
            shards += 1;
            let shard = filled.swap_remove(self.random.below(filled.len()));
            let used = |id: &Id| self.files[*id].map(|(used, _)| Candidate { version: *id, used });
            seen.extend(self.shards[shard].iter().filter_map(used));
        }
        seen
    }

    fn reserve(&mut self, at: Duration, bytes: u64) -> bool {
        if self.used + bytes <= CACHE {
            return true;
        }
        if is_closed(self.closed_until, at) || bytes > CACHE {
            return false;
        }
        let oldest_kept = self.ageing.oldest_kept(at);
        while self.used + bytes > CACHE {
            let Some(candidate) = self.spare.pop() else {
                let seen = self.look();
                let wait = wait(&seen, oldest_kept);
                self.spare = evictable(seen, oldest_kept);
                if self.spare.is_empty() {
                    self.closed_until = at + wait;
                    return false;
                }
                continue;
            };
            let id = candidate.version;
            if let Some((used, bytes)) = self.files[id]
                && used < oldest_kept
            {
                self.files[id] = None;
                let shard = usize::from(self.hashes[id].shard());
                self.shards[shard].retain(|other| *other != id);
                self.used -= bytes;
            }
        }
        true
    }
}

impl Policy for Ours {
    fn is_hit(&mut self, at: Duration, id: Id, bytes: u64) -> bool {
        self.on_use(at, id);
        let is_hit = self.files[id].is_some();
        if !is_hit && self.reserve(at, bytes) {
            self.files[id] = Some((at, bytes));
            let shard = usize::from(self.hashes[id].shard());
            self.shards[shard].push(id);
            self.used += bytes;
            self.written += bytes;
        }
        assert!(self.used <= CACHE, "the limit");
        is_hit
    }
}

/// Objects that were idle for 2.2 times the median of all times between two uses may be evicted, and none before an
/// hour.
#[derive(Default)]
struct Median {
    last: HashMap<Id, Duration>,
    times: VecDeque<Duration>,
    median: Duration,
    files: HashMap<Id, u64>,
    by_use: BTreeSet<(Duration, Id)>,
    used: u64,
}

impl Median {
    fn learn(&mut self, after: Duration) {
        self.times.push_back(after);
        if self.times.len() > 1000 {
            self.times.drain(..100);
            let mut sorted: Vec<_> = self.times.iter().copied().collect();
            sorted.sort();
            self.median = sorted[sorted.len() / 2];
        }
    }
}

impl Policy for Median {
    fn is_hit(&mut self, at: Duration, id: Id, bytes: u64) -> bool {
        let before = self.last.insert(id, at);
        if let Some(before) = before {
            self.learn(at.saturating_sub(before));
            if self.files.contains_key(&id) {
                self.by_use.remove(&(before, id));
                self.by_use.insert((at, id));
                return true;
            }
        }
        let idle = self.median.mul_f64(2.2).max(Duration::from_secs(3600));
        while self.used + bytes > CACHE {
            match self.by_use.first().copied() {
                Some((used, oldest)) if used + idle < at => {
                    self.by_use.remove(&(used, oldest));
                    self.used -= self.files.remove(&oldest).expect("it is here");
                }
                _ => return false,
            }
        }
        self.files.insert(id, bytes);
        self.by_use.insert((at, id));
        self.used += bytes;
        false
    }
}

/// Evicts what is used last of all, or does not admit.
struct Belady {
    /// The next use of the object of each use, from the last one to the first.
    next: Vec<Option<usize>>,
    here: Vec<Option<(usize, u64)>>,
    by_next: BTreeSet<(usize, Id)>,
    used: u64,
}

impl Belady {
    fn new(trace: &Trace) -> Self {
        let mut later = vec![None; trace.sizes.len()];
        let next = trace.uses.iter().enumerate().rev().map(|(at, (_, id, _))| later[*id].replace(at));
        Self { next: next.collect(), here: vec![None; trace.sizes.len()], by_next: BTreeSet::new(), used: 0 }
    }
}

impl Policy for Belady {
    fn is_hit(&mut self, _: Duration, id: Id, bytes: u64) -> bool {
        let next = self.next.pop().expect("a use of the trace");
        let before = self.here[id].take();
        if let Some((next, bytes)) = before {
            self.by_next.remove(&(next, id));
            self.used -= bytes;
        }
        if let Some(next) = next {
            self.here[id] = Some((next, bytes));
            self.by_next.insert((next, id));
            self.used += bytes;
        }
        while self.used > CACHE {
            let (_, last) = self.by_next.pop_last().expect("it is not empty");
            self.used -= self.here[last].take().expect("it is here").1;
        }
        before.is_some()
    }
}

/// Evicts what was used least recently.
#[derive(Default)]
struct Lru {
    here: HashMap<Id, (u64, u64)>,
    by_use: BTreeSet<(u64, Id)>,
    used: u64,
    clock: u64,
}

impl Policy for Lru {
    fn is_hit(&mut self, _: Duration, id: Id, bytes: u64) -> bool {
        self.clock += 1;
        let before = self.here.insert(id, (self.clock, bytes));
        match before {
            Some((used, _)) => drop(self.by_use.remove(&(used, id))),
            None => self.used += bytes,
        }
        self.by_use.insert((self.clock, id));
        while self.used > CACHE {
            let (_, oldest) = self.by_use.pop_first().expect("it is not empty");
            self.used -= self.here.remove(&oldest).expect("it is here").1;
        }
        before.is_some()
    }
}

/// Evicts a random object.
struct Chance {
    here: HashMap<Id, u64>,
    ids: Vec<Id>,
    used: u64,
    random: Random,
}

impl Chance {
    fn new() -> Self {
        Self { here: HashMap::new(), ids: Vec::new(), used: 0, random: Random(3) }
    }
}

impl Policy for Chance {
    fn is_hit(&mut self, _: Duration, id: Id, bytes: u64) -> bool {
        if self.here.contains_key(&id) {
            return true;
        }
        while self.used + bytes > CACHE {
            let victim = self.ids.swap_remove(self.random.below(self.ids.len()));
            self.used -= self.here.remove(&victim).expect("it is here");
        }
        self.here.insert(id, bytes);
        self.ids.push(id);
        self.used += bytes;
        false
    }
}

/// S3-FIFO as its paper has it: a small queue of a tenth, a main queue, and ghosts.
#[derive(Default)]
struct S3Fifo {
    here: HashMap<Id, (u8, u64, bool)>,
    small: VecDeque<Id>,
    main: VecDeque<Id>,
    ghosts: VecDeque<Id>,
    small_bytes: u64,
    used: u64,
}

impl S3Fifo {
    fn evict(&mut self) {
        if self.small_bytes * 10 > CACHE || self.main.is_empty() {
            let id = self.small.pop_front().expect("it is not empty");
            let entry = self.here.get_mut(&id).expect("it is here");
            self.small_bytes -= entry.1;
            if entry.0 > 1 {
                (entry.0, entry.2) = (0, false);
                self.main.push_back(id);
            } else {
                self.used -= entry.1;
                self.here.remove(&id);
                self.ghosts.push_back(id);
                if self.ghosts.len() > self.main.len().max(100) {
                    self.ghosts.pop_front();
                }
            }
            return;
        }
        let id = self.main.pop_front().expect("it is not empty");
        let entry = self.here.get_mut(&id).expect("it is here");
        if entry.0 > 0 {
            entry.0 -= 1;
            self.main.push_back(id);
        } else {
            self.used -= entry.1;
            self.here.remove(&id);
        }
    }
}

impl Policy for S3Fifo {
    fn is_hit(&mut self, _: Duration, id: Id, bytes: u64) -> bool {
        if let Some((uses, ..)) = self.here.get_mut(&id) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.used + bytes > CACHE {
            self.evict();
        }
        let is_small = !self.ghosts.contains(&id);
        self.here.insert(id, (0, bytes, is_small));
        if is_small {
            self.small.push_back(id);
            self.small_bytes += bytes;
        } else {
            self.ghosts.retain(|ghost| *ghost != id);
            self.main.push_back(id);
        }
        self.used += bytes;
        false
    }
}

const MINUTES_5: Duration = Duration::from_secs(300);
const HOURS_8: Duration = Duration::from_secs(8 * 3600);

/// One row: a trace, the phases that are counted, and the part of Belady's hits that is asserted.
struct Row {
    name: String,
    trace: Trace,
    phases: Range<usize>,
    least: f64,
}

/// The part of Belady's hits that a policy is to reach where the past predicts the future.
const GOOD: f64 = 0.95;

fn row(name: &str, phases: Range<usize>, least: f64, trace: Trace) -> Row {
    Row { name: name.to_owned(), trace: trace.sorted(), phases, least }
}

fn epochs(part: f64, order: Order, length: Duration, count: usize) -> Trace {
    let mut trace = Trace::new();
    let ids = trace.even(part);
    (0..count).for_each(|phase| trace.epoch(&ids, order, length, phase));
    trace
}

/// Four epochs of one data set, then four of another, with objects of `bytes`.
fn changed(parts: (f64, f64), order: Order, length: Duration, bytes: u64) -> Trace {
    let mut trace = Trace::new();
    let (one, other) = (trace.objects(parts.0, |_| bytes), trace.objects(parts.1, |_| bytes));
    (0..4).for_each(|phase| trace.epoch(&one, order, length, phase));
    (4..8).for_each(|phase| trace.epoch(&other, order, length, phase));
    trace
}

/// The rows that each come with epochs of this length and in this order.
fn rows_in(order: Order, length: Duration, of: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: &str, phases, least, trace| {
        let order = if order == Order::Same { "in order" } else { "shuffled" };
        rows.push(row(&format!("{name}, {order}, {of}"), phases, least, trace));
    };
    for part in [1.5, 1.05, 10.0] {
        add(&format!("{part} C"), 0..5, GOOD, epochs(part, order, length, 5));
    }
    for parts in [(1.5, 1.5), (1.5, 1.0), (1.5, 0.7), (0.8, 1.5), (1.5, 10.0)] {
        let name = format!("{} C changed for {} C: 2nd epoch", parts.0, parts.1);
        add(&name, 5..6, GOOD, changed(parts, order, length, 1 << 20));
    }
    add("75 large, changed: 2nd epoch", 5..6, GOOD, changed((1.5, 1.5), order, length, 20 << 20));
    for part in [0.75, 1.5] {
        let mut trace = Trace::new();
        let sets = [trace.even(part), trace.even(part)];
        (0..10).for_each(|phase| trace.epoch(&sets[phase % 2], order, length, phase));
        add(&format!("two of {part} C in turns"), 0..10, GOOD, trace);
    }
    let mut trace = Trace::new();
    let ids = trace.objects(1.5, |random| 1 << (14 + random.below(12)));
    (0..5).for_each(|phase| trace.epoch(&ids, order, length, phase));
    add("16 KiB to 32 MiB, 1.5 C", 0..5, GOOD, trace);
    add(
        "half changed: 2nd epoch",
        5..6,
        GOOD,
        renewed(order, length, 8, |phase| if phase == 3 { 0.75 } else { 0.0 }),
    );
    let least = if order == Order::Same { 0.93 } else { 0.7 };
    add("a tenth new in each epoch", 0..10, least, renewed(order, length, 10, |_| 0.15));
    rows
}

/// Epochs of 1.5 times the cache. After each, the oldest objects are replaced by new ones.
fn renewed(order: Order, length: Duration, count: usize, part: impl Fn(usize) -> f64) -> Trace {
    let mut trace = Trace::new();
    let mut ids = trace.even(1.5);
    for phase in 0..count {
        trace.epoch(&ids, order, length, phase);
        let new = trace.even(part(phase));
        ids.drain(..new.len());
        ids.extend(new);
    }
    trace
}

/// The rows that come with epochs of this length.
fn rows_of(length: Duration, of: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for (times, spread) in [(3, 0.0005), (3, 0.05), (2, 0.5)] {
        let mut trace = epochs(1.5, Order::Shuffled, length, 5);
        trace.repeat(times, length.mul_f64(spread));
        let name = format!("1.5 C, each {times} times within {spread} epochs, {of}");
        rows.push(row(&name, 0..5, 0.7, trace));
    }
    let trace = epochs(1.5, Order::Replaced, length, 10);
    rows.push(row(&format!("1.5 C, with replacement, {of}"), 0..10, 0.7, trace));
    let mut trace = Trace::new();
    let ids = trace.even(1.5);
    for phase in 0..8 {
        trace.epoch(&ids, Order::Shuffled, length, phase);
        trace.now += if phase == 3 { Duration::from_secs(60 * 3600) } else { Duration::ZERO };
    }
    rows.push(row(&format!("1.5 C, after a weekend, {of}"), 4..8, GOOD, trace));
    let mut trace = Trace::new();
    let ids = trace.even(0.9);
    for phase in 0..8 {
        let (start, new) = (trace.now, trace.even(0.9));
        trace.epoch_at(start, &new, Order::Same, length, 8);
        trace.epoch(&ids, Order::Shuffled, length, phase);
    }
    rows.push(row(&format!("0.9 C beside a scan: hits of the 0.9 C, {of}"), 0..8, 0.7, trace));
    rows
}

/// Two mounts that share the cache: epochs of one length from an epoch on, and epochs of the other.
fn mounts(part: f64, slow: (Duration, u32), fast: (Duration, Range<u32>)) -> Trace {
    let mut trace = Trace::new();
    let (fast_ids, slow_ids, start) = (trace.even(part), trace.even(part), trace.now);
    for epoch in 0..slow.1 {
        trace.epoch_at(start + slow.0 * epoch, &slow_ids, Order::Shuffled, slow.0, 0);
    }
    for epoch in fast.1 {
        trace.epoch_at(start + fast.0 * epoch, &fast_ids, Order::Shuffled, fast.0, 0);
    }
    trace
}

/// A change of the clock in the middle of an epoch.
#[derive(Clone, Copy, Debug)]
enum Jump {
    Ahead(Duration),
    Back(Duration),
}

/// Eight epochs of one data set, with a clock that jumps in the middle of the third one. The epochs behind that
/// one count.
fn jumped(order: Order, length: Duration, by: Jump, of: &str) -> Row {
    let mut trace = epochs(1.5, order, length, 8);
    let at = START + length * 2 + length / 2;
    for (time, ..) in trace.uses.iter_mut().filter(|(time, ..)| *time >= at) {
        match by {
            Jump::Ahead(by) => *time += by,
            Jump::Back(by) => *time -= by,
        }
    }
    let order = if order == Order::Same { "in order" } else { "shuffled" };
    let days = match by {
        Jump::Ahead(by) => format!("+{}", by.as_secs() / 86_400),
        Jump::Back(by) => format!("-{}", by.as_secs() / 86_400),
    };
    Row { name: format!("1.5 C, clock {days} days, {order}, {of}"), trace, phases: 3..8, least: GOOD }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (length, of) in [(MINUTES_5, "5 min"), (HOURS_8, "8 h")] {
        rows.extend(rows_in(Order::Shuffled, length, of));
        rows.extend(rows_in(Order::Same, length, of));
        rows.extend(rows_of(length, of));
    }
    let year = Duration::from_secs(365 * 24 * 3600);
    for (length, of) in [(MINUTES_5, "5 min"), (HOURS_8, "8 h")] {
        for order in [Order::Shuffled, Order::Same] {
            for by in [Jump::Ahead(year / 365), Jump::Ahead(year), Jump::Back(year / 365), Jump::Back(year)] {
                rows.push(jumped(order, length, by, of));
            }
        }
    }
    for part in [0.75, 1.5] {
        for (name, fast) in [("slow first", 96..384), ("fast first", 0..200)] {
            let trace = mounts(part, (HOURS_8, 4), (MINUTES_5, fast));
            rows.push(row(&format!("mounts of 8 h and 5 min, {part} C each, {name}"), 0..1, GOOD, trace));
        }
    }
    let hour = Duration::from_secs(3600);
    let trace = mounts(0.75, (hour * 3, 2), (hour, 0..6));
    rows.push(row("mounts of 3 h and 1 h, 0.75 C each", 0..1, GOOD, trace));
    rows
}

/// The part of the optimum's hits that the policy reaches in one row, and the text of the row.
struct Result {
    best: f64,
    ours: f64,
    written: f64,
}

impl Row {
    fn rate(&self, policy: &mut dyn Policy) -> f64 {
        run(&self.trace, policy).rate(self.phases.clone())
    }

    fn result(&self) -> Result {
        let mut ours = Ours::new(self.trace.sizes.len());
        let rate = self.rate(&mut ours);
        let best = self.rate(&mut Belady::new(&self.trace));
        Result { best, ours: rate, written: ours.written as f64 / CACHE as f64 }
    }
}

#[test]
fn hits_come_near_the_optimum() {
    let ratios = rows().into_iter().map(|row| {
        let Result { best, ours, .. } = row.result();
        (ours / best, row.least, row.name)
    });
    let wrong: Vec<_> = ratios.filter(|(ratio, least, _)| ratio < least).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
#[ignore = "prints the table with what others reach; run it with --ignored --nocapture"]
fn what_others_reach() {
    println!(
        "{:56} {:>6} | {:>5} {:>5} {:>7} | {:>6} {:>5} {:>6} {:>6}",
        "", "Belady", "ours", "ratio", "written", "median", "LRU", "random", "S3FIFO"
    );
    for row in rows() {
        let Result { best, ours, written } = row.result();
        let others: [&mut dyn Policy; 4] =
            [&mut Median::default(), &mut Lru::default(), &mut Chance::new(), &mut S3Fifo::default()];
        let [median, lru, chance, fifo] = others.map(|policy| row.rate(policy));
        let (name, ratio) = (&row.name, ours / best);
        println!(
            "{name:56} {best:6.3} | {ours:.3} {ratio:.3} {written:5.2} C | {median:6.3} {lru:.3} {chance:6.3} {fifo:6.3}"
        );
    }
}
