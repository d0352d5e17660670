//! Readers of a file while one program changes, publishes and renames it, under little memory and in virtual time: each
//! byte that they get is one that the file had there at some moment between the beginning and the end of the read.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use s3mount_object::{ByteRange, NewObject, ObjectId};
use s3mount_testkit::{MemoryClient, mix};
use s3mount_write::{Draft, WriteError, Writer};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::sleep;

use crate::draft::write_piece;
use crate::faulty::{Fault, FaultyClient};
use crate::{MIB, pattern, spooling_writer};

/// The length of the object that the file is to begin with, and of that which bytes are copied from.
const SOURCE: usize = 24 << 20;

/// A change of the file.
struct Change {
    at: usize,
    /// What was there before; shorter where the file ended.
    old: Vec<u8>,
    old_size: usize,
}

/// What the file is and was. A change counts from its beginning on.
#[derive(Default)]
struct Truth {
    bytes: Vec<u8>,
    changes: Vec<Change>,
    /// Whether the last change is not at its end.
    is_changing: bool,
}

impl Truth {
    fn change(&mut self, at: usize, data: &[u8], size: usize) {
        let (old_size, end) = (self.bytes.len(), self.bytes.len().max(size));
        // From the first byte that differs on: what lies between the end and `at` becomes zeros.
        let from = at.min(old_size).min(size);
        let until = if size < old_size { end } else { at + data.len() };
        let old = self.bytes[from..until.min(old_size).max(from)].to_vec();
        self.changes.push(Change { at: from, old, old_size });
        self.bytes.resize(size, 0);
        self.bytes[at..at + data.len()].copy_from_slice(data);
        self.is_changing = true;
    }

    /// The first change that a read can meet that begins now.
    fn begin_read(&self) -> usize {
        self.changes.len() - usize::from(self.is_changing)
    }

    /// Checks a read of up to `len` bytes at `at`, which began when `from` changes were done.
    fn judge(&self, from: usize, (at, len): (usize, usize), got: &[u8]) {
        let changes = &self.changes[from..];
        // Where the file is cut meanwhile, the read may end at any moment after that.
        let sizes = changes.iter().map(|change| change.old_size).chain([self.bytes.len()]);
        let lens: Vec<_> = sizes.map(|size| size.saturating_sub(at).min(len)).collect();
        let fits = lens.iter().min() <= Some(&got.len()) && Some(&got.len()) <= lens.iter().max();
        assert!(fits, "{} bytes of {len} at {at}", got.len());
        for (index, byte) in got.iter().enumerate() {
            let offset = at + index;
            let was = |change: &Change| {
                let old = offset.checked_sub(change.at).and_then(|inside| change.old.get(inside));
                old == Some(byte)
            };
            assert!(
                self.bytes.get(offset) == Some(byte) || changes.iter().any(was),
                "a byte at {offset} that was never there: {byte}, {} changes meanwhile",
                changes.len()
            );
        }
    }
}

/// Random numbers of one program.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 += 1;
        mix(self.0) % limit.max(1)
    }

    /// A length: mostly short.
    fn len(&mut self) -> usize {
        let len = match self.below(4) {
            0 => self.below(2_000),
            1 | 2 => self.below(200 << 10),
            _ => self.below(2 << 20),
        };
        len as usize + 1
    }
}

struct World {
    draft: Arc<Draft>,
    client: Arc<FaultyClient>,
    source: ObjectId,
    truth: RefCell<Truth>,
}

impl World {
    async fn write(&self, at: usize, data: &[u8]) {
        for (index, piece) in data.chunks(128 << 10).enumerate() {
            let at = at + index * (128 << 10);
            let size = self.truth.borrow().bytes.len().max(at + piece.len());
            self.truth.borrow_mut().change(at, piece, size);
            write_piece(&self.draft, at as u64, piece).await.expect("there is a spool");
            self.truth.borrow_mut().is_changing = false;
        }
    }

    async fn truncate(&self, size: usize) {
        let at = self.truth.borrow().bytes.len().min(size);
        self.truth.borrow_mut().change(at, &[], size);
        self.draft.truncate(size as u64).await.expect("it is cut");
        self.truth.borrow_mut().is_changing = false;
    }

    async fn copy(&self, from: usize, len: usize, at: usize) {
        let bytes = &pattern(99, SOURCE)[from..from + len];
        let size = self.truth.borrow().bytes.len().max(at + len);
        self.truth.borrow_mut().change(at, bytes, size);
        let range = ByteRange::new(from as u64, (from + len) as u64);
        let copied = self.draft.copy_from(&self.source, SOURCE as u64, range, at as u64).await;
        copied.expect("only noted");
        self.truth.borrow_mut().is_changing = false;
    }

    async fn publish(&self, key: &str) {
        self.draft.publish().await.expect("nobody else writes");
        assert!(self.client.store.stored(key).0 == self.truth.borrow().bytes, "what was published");
    }

    /// The program that changes the file.
    async fn change(&self, mut dice: Dice, steps: u64) {
        let mut key = "k".to_owned();
        for step in 0..steps {
            let size = self.truth.borrow().bytes.len();
            let at = dice.below(size as u64) as usize;
            match dice.below(20) {
                0..9 => self.write(at, &pattern(step, dice.len())).await,
                9..12 => self.write(size, &pattern(step, dice.len())).await,
                12 => self.truncate(size * (dice.below(120) as usize) / 100).await,
                13 => {
                    let from = dice.below(SOURCE as u64 - 1) as usize;
                    self.copy(from, (6 << 20).min(SOURCE - from), at).await;
                }
                14 => self.draft.sync().await.expect("nobody else writes"),
                15 => {
                    key = format!("k{step}");
                    self.draft.rename(&key, None).await;
                }
                16 | 17 => self.publish(&key).await,
                _ => sleep(Duration::from_millis(dice.below(300))).await,
            }
        }
        self.publish(&key).await;
    }

    /// A program that reads until it is stopped.
    async fn read(&self, mut dice: Dice) {
        loop {
            let size = self.draft.size();
            let (at, len) = (dice.below(size + 100) as usize, dice.len().min(1 << 20));
            let from = self.truth.borrow().begin_read();
            match self.draft.read(at as u64, len).await {
                Ok(got) => self.truth.borrow().judge(from, (at, len), &got),
                Err(error) => panic!("{len} bytes at {at}: {error:?}"),
            }
            sleep(Duration::from_millis(dice.below(20))).await;
        }
    }
}

async fn run(seed: u64, readers: u64, memory: u64) {
    let client = FaultyClient::new(Arc::new(MemoryClient::new()));
    let source = client.store.put("source", pattern(99, SOURCE));
    let before = pattern(98, SOURCE);
    let version = client.store.put("k", before.clone());
    client.store.set_latency(Duration::from_millis(5));
    let mut dice = Dice(mix(seed));
    client.add((0..20_000).map(|_| Fault::IsLate(dice.below(60))));
    let writer: Writer = spooling_writer(client.clone(), memory, 1 << 30);
    let draft = writer.edit(&version, SOURCE as u64, NewObject::default());
    let truth = RefCell::new(Truth { bytes: before.to_vec(), ..Truth::default() });
    let world = Rc::new(World { draft, client, source, truth });
    let tasks: Vec<JoinHandle<()>> = (1..=readers)
        .map(|reader| {
            let (world, dice) = (world.clone(), Dice(mix(seed ^ reader << 40)));
            tokio::task::spawn_local(async move { world.read(dice).await })
        })
        .collect();
    world.change(Dice(mix(seed ^ 1 << 63)), 40).await;
    for task in tasks {
        task.abort();
        if let Err(error) = task.await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
    world.draft.discard().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn no_reader_gets_a_byte_that_was_never_there(
        seed in any::<u64>(),
        readers in 1_u64..8,
        memory in 16 * MIB..48 * MIB,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), run(seed, readers, memory));
    }
}

/// Readers of a file in the spool take no memory that its publication waits for.
#[tokio::test(start_paused = true)]
async fn a_spooled_file_is_published_while_it_is_read() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(50));
    let draft = spooling_writer(client.clone(), 32 * MIB, 200 * MIB).create("k", NewObject::default());
    let bytes = pattern(1, 64 << 20);
    crate::draft::write(&draft, 0, &bytes).await.expect("memory");
    for at in (0..64).map(|at| at * MIB) {
        crate::draft::write(&draft, at + 7, &bytes.slice(at as usize + 7..at as usize + 9))
            .await
            .expect("memory");
    }
    let readers: Vec<_> = (0..6_u64)
        .map(|reader| {
            let (draft, bytes) = (draft.clone(), bytes.clone());
            tokio::spawn(async move {
                for step in 0_u64.. {
                    let at = (mix(reader << 32 | step) % 64) << 20;
                    let got = draft.read(at, 1 << 20).await.expect("it is in the spool");
                    assert!(got == bytes.slice(at as usize..at as usize + (1 << 20)));
                    sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    draft.publish().await.expect("there is memory enough");
    for reader in readers {
        assert!(!reader.is_finished(), "a reader has failed");
        reader.abort();
    }
    assert!(client.stored("k").0 == bytes);
}

/// A reader whose request comes to the store when the version is gone that it looked for.
#[tokio::test(start_paused = true)]
async fn who_reads_a_version_that_is_replaced_meanwhile_reads_on() {
    for key in ["k", "moved"] {
        let client = FaultyClient::new(Arc::new(MemoryClient::new()));
        let version = client.store.put("k", pattern(1, 100));
        let draft = spooling_writer(client.clone(), 32 * MIB, 0).edit(&version, 100, NewObject::default());
        client.add([Fault::IsLate(1_000)]);
        let reading = tokio::spawn({
            let draft = draft.clone();
            async move { draft.read(0, 200).await }
        });
        sleep(Duration::from_millis(10)).await;
        draft.truncate(0).await.expect("it is cut");
        draft.write(0, Bytes::from_static(b"new")).await.expect("nothing has to be fetched");
        if key != "k" {
            draft.rename(key, None).await;
        }
        draft.publish().await.expect("nobody else writes");
        let read = reading.await.expect("no panic").expect("the file is there");
        assert_eq!(read, b"new".as_slice());
    }
}

/// Who reads a file that was given up is not told that it is empty.
#[tokio::test(start_paused = true)]
async fn a_file_that_was_given_up_is_not_read_as_empty() {
    let draft = spooling_writer(Arc::new(MemoryClient::new()), 32 * MIB, 0).create("k", NewObject::default());
    draft.write(0, Bytes::from_static(b"bytes")).await.expect("memory");
    draft.discard().await;
    assert!(matches!(draft.read(0, 5).await, Err(WriteError::Failed(_))));
}
