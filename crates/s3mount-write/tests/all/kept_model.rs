//! A draft beside a model, in processes that are killed at any moment: the next one goes on with all bytes that were
//! acknowledged.

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use s3mount_object::{ByteRange, Condition, ErrorKind, NewObject, ObjectClient as _, ObjectId};
use s3mount_testkit::MemoryClient;
use s3mount_write::{Draft, KeptChanges, MemoryDisk, SpoolBytes, SpoolConfig, SpoolDisk, WriteError, Writer};

use crate::draft::write_piece;
use crate::faulty::{Fault, FaultyClient};
use crate::kept::Noted;
use crate::{MIB, pattern, writer_with};

/// The length of the object that bytes are copied from, and of that which the file is to begin with.
const SOURCE: usize = 12 << 20;

/// A length of time after which nothing is under way.
const LONG: Duration = Duration::from_secs(600);

/// How long a process lives, in steps: each write to the disk, each call of the keeper and each poll of the program
/// is one.
#[derive(Debug)]
struct Life(AtomicU64);

impl Life {
    /// The process makes a step. Returns whether it has lived to make it as a whole, and whether it has begun it.
    fn step(&self) -> (bool, bool) {
        let left =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(1)));
        let left = left.unwrap_or_default();
        (left > 1, left > 0)
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A disk that takes only half of what the process was writing when it died, and nothing after that. One write in
/// `failing` fails.
#[derive(Debug)]
struct MortalDisk {
    life: Arc<Life>,
    failing: u64,
}

#[derive(Debug)]
struct MortalFile {
    file: Arc<dyn SpoolBytes>,
    life: Arc<Life>,
    writes: AtomicU64,
    failing: u64,
}

impl SpoolDisk for MortalDisk {
    fn file(&self) -> io::Result<Arc<dyn SpoolBytes>> {
        let (life, writes) = (self.life.clone(), AtomicU64::new(0));
        Ok(Arc::new(MortalFile { file: MemoryDisk.file()?, life, writes, failing: self.failing }))
    }

    fn blocks(&self) -> bool {
        false
    }
}

impl SpoolBytes for MortalFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.writes.fetch_add(1, Ordering::Relaxed) + 1 == self.failing {
            return Err(io::Error::other("a broken disk"));
        }
        match self.life.step() {
            (true, _) => self.file.write(offset, bytes),
            (false, true) => self.file.write(offset, &bytes[..bytes.len() / 2]),
            (false, false) => Ok(()),
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, into)
    }

    fn taken_bytes(&self) -> u64 {
        self.file.taken_bytes()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// What outlives the process.
#[derive(Clone, Debug, Default)]
enum Kept {
    #[default]
    Nothing,
    Draft(Noted),
    GivenUp,
}

#[derive(Debug)]
struct Keeper {
    life: Arc<Life>,
    kept: Arc<Mutex<Kept>>,
}

impl Keeper {
    /// Notes something, if the process lives.
    fn note(&self, note: impl FnOnce(&mut Kept)) {
        if self.life.step().0 {
            note(&mut self.kept.lock().expect("no panic"));
        }
    }
}

impl KeptChanges for Keeper {
    fn begin(&self, file: &Arc<dyn SpoolBytes>, base_bytes: u64, size: u64) -> io::Result<bool> {
        self.note(|kept| *kept = Kept::Draft(Noted::begin(file, base_bytes, size)));
        Ok(true)
    }

    fn wrote(&self, start: u64, end: u64) {
        self.note(|kept| match kept {
            Kept::Draft(noted) => noted.wrote(start, end),
            Kept::Nothing => panic!("told before it has begun"),
            Kept::GivenUp => {}
        });
    }

    fn resized(&self, size: u64) {
        self.note(|kept| match kept {
            Kept::Draft(noted) => noted.resized(size),
            Kept::Nothing => panic!("told before it has begun"),
            Kept::GivenUp => {}
        });
    }

    fn given_up(&self) {
        self.note(|kept| *kept = Kept::GivenUp);
    }
}

/// What a process does until it dies. `None`: it is dead.
struct Mortal<F>(Pin<Box<F>>, Arc<Life>);

impl<F: Future> Future for Mortal<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.1.step();
        if self.1.is_over() {
            return Poll::Ready(None);
        }
        let polled = self.0.as_mut().poll(context);
        match polled {
            _ if self.1.is_over() => Poll::Ready(None),
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    /// A share of the file, in thousandths, and a length.
    Patch(u64, usize),
    Read(u64, usize),
    /// A share of twice the file.
    Truncate(u64),
    Grow(u64),
    Empty,
    /// Bytes of another object: a length, and a share of the file.
    Copy(usize, u64),
    Publish,
    Sync,
    /// This many milliseconds pass, in which uploads begin or end.
    Pass(u64),
    Faults(Vec<Fault>),
    /// The process ends without being killed, and the file is opened anew.
    Reopen,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        8 => Just(Fault::None),
        4 => (0_u64..3_000).prop_map(Fault::IsLate),
        2 => Just(Fault::IsLost),
        2 => Just(Fault::Fails(ErrorKind::Throttled)),
        1 => Just(Fault::Fails(ErrorKind::Forbidden)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1_usize..2_000, 100_000_usize..3 << 20];
    prop_oneof![
        8 => len.clone().prop_map(Step::Append),
        8 => (0_u64..1_000, len.clone()).prop_map(|(at, len)| Step::Patch(at, len)),
        4 => (0_u64..1_000, len).prop_map(|(at, len)| Step::Read(at, len)),
        3 => (0_u64..1_000).prop_map(Step::Truncate),
        1 => (0_u64..1_000).prop_map(Step::Grow),
        1 => Just(Step::Empty),
        1 => (1_usize..SOURCE, 0_u64..1_100).prop_map(|(len, at)| Step::Copy(len, at)),
        3 => Just(Step::Publish),
        1 => Just(Step::Sync),
        4 => (0_u64..60).prop_map(Step::Pass),
        1 => vec(fault(), 1..12).prop_map(Step::Faults),
        1 => Just(Step::Reopen),
    ]
}

/// What the file is for all processes.
struct Truth {
    client: Arc<FaultyClient>,
    /// The life of the process that lives now.
    life: Arc<Life>,
    source: ObjectId,
    kept: Arc<Mutex<Kept>>,
    /// The version that was published last, as far as its publication was acknowledged.
    base: Option<(ObjectId, u64)>,
    /// What was acknowledged.
    bytes: Vec<u8>,
    /// What the store has of it.
    published: Option<Vec<u8>>,
    /// What the file is if the call that was under way has been done.
    after: Vec<u8>,
    /// Whether bytes of another object were copied since then.
    is_copied: bool,
    /// Whether the store may have faults.
    has_faults: bool,
    writes: u64,
    memory: u64,
    spool: u64,
    failing: u64,
}

/// A process that has died.
struct Dead;

/// One process, and its draft.
struct Process<'a> {
    truth: &'a mut Truth,
    writer: Writer,
    draft: Arc<Draft>,
}

impl Truth {
    /// Whether there is a reason for which the draft may be given up.
    fn may_give_up(&self) -> bool {
        self.is_copied || self.has_faults || self.spool < 1 << 30 || self.failing > 0
    }

    fn heal(&mut self) {
        self.client.heal();
        self.has_faults = false;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic")
    }

    /// The version that the store has.
    async fn version(&self) -> Option<(ObjectId, u64)> {
        let meta = self.client.store.head_object("k").await.ok()?;
        Some((ObjectId::new("k", meta.etag), meta.size))
    }

    fn stored(&self) -> Option<Vec<u8>> {
        let is_there = self.client.store.keys().contains(&"k".to_owned());
        is_there.then(|| self.client.store.stored("k").0)
    }

    /// The file is what the store has.
    async fn fall_back(&mut self) {
        (self.base, self.published) = (self.version().await, self.stored());
        self.bytes = self.published.clone().unwrap_or_default();
        self.after = self.bytes.clone();
        self.is_copied = false;
        *self.kept() = Kept::Nothing;
    }

    /// The draft of a process that opens the file.
    fn open(&self, writer: &Writer) -> Arc<Draft> {
        match &self.base {
            None => writer.create("k", NewObject::default()),
            Some((version, size)) => writer.edit(version, *size, NewObject::default()),
        }
    }

    /// The draft of a process that goes on with what the one before has left.
    async fn go_on(&mut self, writer: &Writer) -> Arc<Draft> {
        let version = self.version().await;
        let kept = self.kept().clone();
        if version != self.base && self.stored().as_ref() == Some(&self.bytes) {
            // It was published, and nobody was told.
            self.fall_back().await;
            return self.open(writer);
        }
        assert_eq!(version, self.base, "nobody has published");
        match kept {
            Kept::Nothing => {
                assert!(self.published.as_ref().is_none_or(|published| *published == self.bytes));
                self.after = self.bytes.clone();
                self.open(writer)
            }
            Kept::GivenUp => {
                assert!(self.may_give_up(), "it was given up for nothing");
                self.fall_back().await;
                self.open(writer)
            }
            Kept::Draft(noted) => {
                let condition = self
                    .base
                    .as_ref()
                    .map_or(Condition::Absent, |(version, _)| Condition::Matches(version.etag().clone()));
                let kept = noted.kept(self.base.clone());
                let draft = writer.go_on("k", kept, Some(condition), NewObject::default());
                let got = draft.read(0, draft.size() as usize + 1).await.expect("it is readable");
                self.judge(&got);
                self.bytes = got.to_vec();
                self.after = self.bytes.clone();
                draft
            }
        }
    }

    /// Each byte is one that was acknowledged, or that the call has written that was under way.
    fn judge(&self, got: &[u8]) {
        let is_len = got.len() == self.bytes.len() || got.len() == self.after.len();
        assert!(is_len, "{} bytes of {} or {}", got.len(), self.bytes.len(), self.after.len());
        for (at, byte) in got.iter().enumerate() {
            let is_right = self.bytes.get(at) == Some(byte) || self.after.get(at) == Some(byte);
            assert!(is_right, "the byte at {at} of {} is {byte}", got.len());
        }
    }
}

impl Process<'_> {
    /// Makes a call, which makes `after` of the file. Returns whether it has succeeded.
    async fn call<T>(
        &mut self,
        after: Vec<u8>,
        call: impl AsyncFnOnce(&Draft) -> Result<T, WriteError>,
    ) -> Result<bool, Dead> {
        self.truth.after = after;
        let draft = self.draft.clone();
        let result = Mortal(Box::pin(call(&draft)), self.truth.life.clone()).await.ok_or(Dead)?;
        if result.is_ok() {
            self.truth.bytes = self.truth.after.clone();
            let is_given_up = matches!(*self.truth.kept(), Kept::GivenUp);
            assert!(!is_given_up || self.truth.may_give_up(), "it was given up for nothing");
            return Ok(true);
        }
        let is_kept = matches!(*self.truth.kept(), Kept::Draft(_));
        assert!(!is_kept || self.truth.life.is_over(), "a draft that has failed is not kept");
        self.reopen().await?;
        Ok(false)
    }

    /// Gives the draft up, and opens what the store has.
    async fn reopen(&mut self) -> Result<(), Dead> {
        self.draft.discard().await;
        self.truth.heal();
        tokio::time::sleep(LONG).await;
        self.truth.fall_back().await;
        self.draft = self.truth.open(&self.writer);
        self.keep();
        Ok(())
    }

    fn keep(&self) {
        self.draft.keep(Arc::new(Keeper { life: self.truth.life.clone(), kept: self.truth.kept.clone() }));
    }

    async fn write(&mut self, offset: usize, len: usize) -> Result<(), Dead> {
        self.truth.writes += 1;
        let data = pattern(self.truth.writes, len);
        for (index, piece) in data.chunks(128 << 10).enumerate() {
            let at = offset + index * (128 << 10);
            let mut after = self.truth.bytes.clone();
            after.resize(after.len().max(at + piece.len()), 0);
            after[at..at + piece.len()].copy_from_slice(piece);
            let piece = Bytes::copy_from_slice(piece);
            let write = async |draft: &Draft| write_piece(draft, at as u64, &piece).await;
            if !self.call(after, write).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn resize(&mut self, size: usize, is_cut: bool) -> Result<(), Dead> {
        let mut after = self.truth.bytes.clone();
        after.resize(if is_cut { size } else { size.max(after.len()) }, 0);
        self.call(after, async |draft| match is_cut {
            true => draft.truncate(size as u64).await,
            false => draft.grow(size as u64).await,
        })
        .await?;
        Ok(())
    }

    async fn copy(&mut self, len: usize, offset: usize) -> Result<(), Dead> {
        self.truth.is_copied = true;
        let mut after = self.truth.bytes.clone();
        after.resize(after.len().max(offset + len), 0);
        after[offset..offset + len].copy_from_slice(&pattern(99, SOURCE)[..len]);
        let (source, range) = (self.truth.source.clone(), ByteRange::new(0, len as u64));
        let copy = async |draft: &Draft| draft.copy_from(&source, SOURCE as u64, range, offset as u64).await;
        self.call(after, copy).await?;
        Ok(())
    }

    /// Publishes, by `sync` if the file is short enough for that.
    async fn publish(&mut self, is_sync: bool) -> Result<(), Dead> {
        let publish = async |draft: &Draft| match is_sync {
            true => draft.sync().await,
            false => draft.publish().await.map(drop),
        };
        if self.call(self.truth.bytes.clone(), publish).await? && !self.draft.is_dirty() {
            // What the caller of a publication notes.
            self.truth.base = self.draft.version();
            self.truth.published = Some(self.truth.bytes.clone());
            self.truth.is_copied = false;
            *self.truth.kept() = Kept::Nothing;
            assert_eq!(self.truth.stored(), self.truth.published);
        }
        Ok(())
    }

    async fn read(&mut self, offset: usize, len: usize) {
        let end = self.truth.bytes.len().min(offset + len);
        if let Ok(bytes) = self.draft.read(offset as u64, len).await {
            assert!(bytes == self.truth.bytes[offset.min(end)..end], "{len} bytes at {offset}");
        }
    }

    async fn step(&mut self, step: Step) -> Result<(), Dead> {
        let len = self.truth.bytes.len();
        let at = |share: u64, of: usize| (of as u64 * share / 1_000) as usize;
        match step {
            Step::Append(bytes) => self.write(len, bytes).await?,
            Step::Patch(share, bytes) => self.write(at(share, len), bytes).await?,
            Step::Read(share, bytes) => self.read(at(share, len), bytes).await,
            Step::Truncate(share) => self.resize(at(share, len * 2).min(40 << 20), true).await?,
            Step::Grow(share) => self.resize(at(share, len * 2).min(40 << 20), false).await?,
            Step::Empty => {
                self.call(Vec::new(), async |draft| draft.empty().await).await?;
            }
            Step::Copy(bytes, share) => self.copy(bytes, at(share, len)).await?,
            Step::Publish => self.publish(false).await?,
            Step::Sync => self.publish(true).await?,
            Step::Pass(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Step::Faults(faults) => {
                self.truth.has_faults = true;
                self.truth.client.add(faults);
            }
            Step::Reopen => self.reopen().await?,
        }
        Ok(())
    }
}

/// Runs one process until it is killed, or has nothing more to do. Returns whether it is dead.
async fn live(truth: &mut Truth, life: u64, steps: &mut impl Iterator<Item = Step>) -> bool {
    truth.life.0.store(life, Ordering::Relaxed);
    let disk = Arc::new(MortalDisk { life: truth.life.clone(), failing: truth.failing });
    let spool = SpoolConfig { disk, limit_bytes: truth.spool };
    let writer = writer_with(truth.client.clone(), truth.memory, Some(spool));
    truth.heal();
    let draft = truth.go_on(&writer).await;
    let mut process = Process { truth, writer, draft };
    process.keep();
    for step in steps {
        if process.step(step).await.is_err() {
            return true;
        }
    }
    process.truth.life.0.store(u64::MAX, Ordering::Relaxed);
    process.truth.heal();
    assert!(process.publish(false).await.is_ok(), "it lives");
    false
}

/// Lets a process live in a world of its own, which ends with it.
fn run_process(truth: &mut Truth, life: u64, steps: &mut impl Iterator<Item = Step>) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(live(truth, life, steps))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_next_process_has_all_that_was_acknowledged(
        steps in vec(step(), 1..60),
        lives in vec(prop_oneof![1_u64..60, 1_u64..600], 1..12),
        is_new in any::<bool>(),
        memory in 16 * MIB..64 * MIB,
        spool in prop_oneof![2 => Just(1 << 30), 1 => Just(20 * MIB)],
        failing in prop_oneof![3 => Just(0), 1 => 1_u64..60],
    ) {
        let client = FaultyClient::new(Arc::new(MemoryClient::new()));
        let source = client.store.put("source", pattern(99, SOURCE));
        let base = (!is_new).then(|| (client.store.put("k", pattern(98, SOURCE)), SOURCE as u64));
        client.store.set_latency(Duration::from_millis(20));
        let bytes = if is_new { Vec::new() } else { pattern(98, SOURCE).to_vec() };
        let mut truth = Truth {
            client,
            life: Arc::new(Life(AtomicU64::new(0))),
            source,
            kept: Arc::default(),
            base,
            published: (!is_new).then(|| bytes.clone()),
            after: bytes.clone(),
            bytes,
            is_copied: false,
            has_faults: false,
            writes: 0,
            memory,
            spool,
            failing,
        };
        let mut steps = steps.into_iter();
        for life in lives.into_iter().chain([u64::MAX]) {
            if !run_process(&mut truth, life, &mut steps) {
                break;
            }
        }
    }
}
