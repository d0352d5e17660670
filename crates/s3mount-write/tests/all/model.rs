//! A draft beside a model, under random operations and faults: what it shows is what was written, and what the
//! store has is what was promised.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use s3mount_object::{ByteRange, ErrorKind, NewObject, ObjectId};
use s3mount_testkit::MemoryClient;
use s3mount_write::{Draft, WriteError, Writer};

use crate::draft::write_piece;
use crate::faulty::{Fault, FaultyClient};
use crate::{MIB, pattern, spooling_writer};

/// The length of the object that bytes are copied from.
const SOURCE: usize = 12 << 20;

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    /// A share of the file, in thousandths, and a length.
    Patch(u64, usize),
    Read(u64, usize),
    /// A share of twice the file.
    Truncate(u64),
    /// Bytes of another object: an offset there, a length, and a share of the file.
    Copy(usize, usize, u64),
    Sync,
    Publish,
    /// This many milliseconds pass, in which uploads begin or end.
    Pass(u64),
    /// The file is opened anew.
    Reopen,
    Faults(Vec<Fault>),
    Heal,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::None),
        2 => (0_u64..3_000).prop_map(Fault::IsLate),
        2 => Just(Fault::IsLost),
        2 => Just(Fault::Fails(ErrorKind::Throttled)),
        1 => Just(Fault::Fails(ErrorKind::Server)),
        1 => Just(Fault::Fails(ErrorKind::Network)),
        1 => Just(Fault::Fails(ErrorKind::Conflict)),
        1 => Just(Fault::Fails(ErrorKind::Forbidden)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1_usize..2_000, 100_000_usize..3 << 20];
    prop_oneof![
        8 => len.clone().prop_map(Step::Append),
        6 => (0_u64..1_000, len.clone()).prop_map(|(at, len)| Step::Patch(at, len)),
        6 => (0_u64..1_000, len).prop_map(|(at, len)| Step::Read(at, len)),
        1 => (0_u64..1_000).prop_map(Step::Truncate),
        3 => (0_usize..SOURCE, 1_usize..SOURCE, 0_u64..1_100)
            .prop_map(|(from, len, at)| Step::Copy(from, len, at)),
        1 => Just(Step::Copy(0, SOURCE, 0)),
        1 => Just(Step::Sync),
        4 => (0_u64..60).prop_map(Step::Pass),
        2 => Just(Step::Publish),
        1 => Just(Step::Reopen),
        1 => vec(fault(), 1..12).prop_map(Step::Faults),
        1 => Just(Step::Heal),
    ]
}

/// A draft, and what it is to be.
struct Run {
    source: ObjectId,
    writer: Writer,
    client: Arc<FaultyClient>,
    draft: Arc<Draft>,
    bytes: Vec<u8>,
    /// What was promised to be in the store.
    promised: Option<Vec<u8>>,
    /// What may be there because it was tried.
    tried: Vec<Vec<u8>>,
    has_failed: bool,
    writes: u64,
}

impl Run {
    async fn write(&mut self, offset: usize, len: usize) {
        self.writes += 1;
        let data = pattern(self.writes, len);
        for (index, piece) in data.chunks(128 << 10).enumerate() {
            let at = (offset + index * (128 << 10)) as u64;
            let result = write_piece(&self.draft, at, piece).await;
            if !self.succeeds(&result) {
                return;
            }
            let end = at as usize + piece.len();
            if self.bytes.len() < end {
                self.bytes.resize(end, 0);
            }
            self.bytes[at as usize..end].copy_from_slice(piece);
        }
    }

    /// Whether a change has succeeded. After a failure there is no success any more.
    fn succeeds<T>(&mut self, result: &Result<T, WriteError>) -> bool {
        assert!(!self.has_failed || result.is_err(), "a success after a failure");
        self.has_failed |= result.is_err();
        result.is_ok()
    }

    async fn read(&self, offset: usize, len: usize) {
        let end = self.bytes.len().min(offset + len);
        match self.draft.read(offset as u64, len).await {
            Ok(bytes) if !self.has_failed => {
                assert!(bytes == self.bytes[offset.min(end)..end], "{len} bytes at {offset}");
            }
            Ok(_)
            | Err(
                WriteError::NotReadable { .. }
                | WriteError::Object(_)
                | WriteError::SourceGone(_)
                | WriteError::NeedsSpool
                | WriteError::Failed(_),
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn check_store(&self) {
        let stored =
            self.client.store.keys().contains(&"k".to_owned()).then(|| self.client.store.stored("k").0);
        let is_promised = stored == self.promised;
        assert!(
            is_promised || self.has_failed && stored.is_some_and(|stored| self.tried.contains(&stored)),
            "the store has neither what was promised nor what was tried"
        );
    }

    async fn publish(&mut self) {
        let result = self.draft.publish().await;
        match &result {
            Ok(published) => {
                assert_eq!(published.size, self.bytes.len() as u64);
                self.promised = Some(self.bytes.clone());
            }
            Err(_) => self.tried.push(self.bytes.clone()),
        }
        self.succeeds(&result);
        self.check_store();
    }

    async fn copy(&mut self, from: usize, len: usize, offset: usize) {
        let until = SOURCE.min(from + len);
        let range = ByteRange::new(from as u64, until as u64);
        let result = self.draft.copy_from(&self.source, SOURCE as u64, range, offset as u64).await;
        if self.succeeds(&result) {
            let end = offset + until - from;
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[offset..end].copy_from_slice(&pattern(99, SOURCE)[from..until]);
        }
    }

    async fn reopen(&mut self) {
        self.draft.discard().await;
        self.client.heal();
        tokio::time::sleep(Duration::from_secs(600)).await;
        self.check_store();
        let orphans = self.client.orphans.load(std::sync::atomic::Ordering::Relaxed);
        assert!(self.client.store.open_uploads().len() <= orphans, "an upload stays behind");
        let store = &self.client.store;
        let is_there = store.keys().contains(&"k".to_owned());
        self.draft = if !is_there {
            self.writer.create("k", NewObject::default())
        } else {
            use s3mount_object::ObjectClient as _;
            let meta = store.head_object("k").await.expect("it is there");
            let version = ObjectId::new("k", meta.etag);
            self.writer.edit(&version, meta.size, NewObject::default())
        };
        self.promised = is_there.then(|| store.stored("k").0);
        self.bytes = self.promised.clone().unwrap_or_default();
        self.has_failed = false;
        self.tried.clear();
    }

    async fn step(&mut self, step: Step) {
        let at = |share: u64, of: usize| (of as u64 * share / 1_000) as usize;
        match step {
            Step::Append(len) => self.write(self.bytes.len(), len).await,
            Step::Patch(share, len) => self.write(at(share, self.bytes.len()), len).await,
            Step::Read(share, len) => self.read(at(share, self.bytes.len()), len).await,
            Step::Truncate(share) => {
                let size = at(share, self.bytes.len() * 2).min(40 << 20);
                let result = self.draft.truncate(size as u64).await;
                if self.succeeds(&result) {
                    self.bytes.resize(size, 0);
                }
            }
            Step::Copy(from, len, share) => self.copy(from, len, at(share, self.bytes.len())).await,
            Step::Sync => {
                let before = self.client.store.take_writes();
                let result = self.draft.sync().await;
                drop(before);
                let is_published = result.is_ok() && !self.draft.is_dirty();
                if is_published {
                    self.promised = Some(self.bytes.clone());
                } else {
                    self.tried.push(self.bytes.clone());
                }
                self.succeeds(&result);
                self.check_store();
            }
            Step::Publish => self.publish().await,
            Step::Pass(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Step::Reopen => self.reopen().await,
            Step::Faults(faults) => self.client.add(faults),
            Step::Heal => self.client.heal(),
        }
    }
}

async fn run(steps: Vec<Step>, memory: u64, spool: u64) {
    let client = FaultyClient::new(Arc::new(MemoryClient::new()));
    let source = client.store.put("source", pattern(99, SOURCE));
    client.store.set_latency(Duration::from_millis(20));
    let writer = spooling_writer(client.clone(), memory, spool);
    let draft = writer.create("k", NewObject::default());
    let (bytes, promised, tried) = (Vec::new(), None, Vec::new());
    let mut run = Run { source, writer, client, draft, bytes, promised, tried, has_failed: false, writes: 0 };
    for step in steps {
        run.step(step).await;
    }
    run.publish().await;
    run.reopen().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_store_has_what_was_promised(
        steps in vec(step(), 1..60),
        memory in 24 * MIB..96 * MIB,
        spool in prop_oneof![Just(0), Just(20 * MIB), Just(1 << 30)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run(steps, memory, spool));
    }
}
