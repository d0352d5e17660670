//! Many callers use a slow store at the same time, and some of them go away in the middle. Each of the others
//! gets an answer, and the right one. Time is virtual and the store's latencies are random, so the callers'
//! waits end in another order in each run. A run that fails is printed, and always fails again.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use s3mount_fs::{
    DirOffset, FileHandle, FileKind, Filesystem, FsConfig, FsError, InodeNo, MetadataTtl, ROOT,
};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::ErrorKind;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// Folders, and how many files each of them has. One folder has more than a page.
const FOLDERS: [(&str, usize); 6] =
    [("a", 3), ("a/b", 30), ("a/b/c", 1), ("a/d", 0), ("large", 1100), ("x/y", 5)];

/// A time that is longer than any run takes in virtual time.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
enum Act {
    /// Looks up a file of a folder, which may not be there.
    Look(usize, usize),
    /// Reads such a file.
    Read(usize, usize),
    List(usize),
    /// Does nothing for some milliseconds.
    Pause(u64),
}

/// The acts of a caller, and after how many milliseconds it gives each of them up.
type Caller = Vec<(Act, Option<u64>)>;

#[derive(Clone, Debug)]
struct Run {
    callers: Vec<Caller>,
    /// How many milliseconds the requests take, one after another.
    latencies: Vec<u64>,
    failures: usize,
    ttl: MetadataTtl,
}

fn run() -> impl Strategy<Value = Run> {
    let folder = 0..FOLDERS.len();
    let act = prop_oneof![
        4 => (folder.clone(), 0..40_usize).prop_map(|(folder, file)| Act::Look(folder, file)),
        2 => (folder.clone(), 0..40_usize).prop_map(|(folder, file)| Act::Read(folder, file)),
        2 => folder.prop_map(Act::List),
        1 => (0..3000_u64).prop_map(Act::Pause),
    ];
    let caller = proptest::collection::vec((act, proptest::option::weighted(0.3, 0..300_u64)), 1..12);
    let ttl = prop_oneof![
        Just(MetadataTtl::Minimal),
        Just(MetadataTtl::For(Duration::from_secs(1))),
        Just(MetadataTtl::Indefinite)
    ];
    (proptest::collection::vec(caller, 1..12), proptest::collection::vec(0..400_u64, 1..20), 0..20_usize, ttl)
        .prop_map(|(callers, latencies, failures, ttl)| Run { callers, latencies, failures, ttl })
}

fn name(file: usize) -> String {
    format!("f{file:04}")
}

async fn look_up(fs: &Filesystem, path: &str) -> Result<(InodeNo, FileKind), FsError> {
    let mut found = (ROOT, FileKind::Directory);
    for name in path.split('/') {
        let attr = fs.lookup(found.0, name).await?.attr;
        found = (attr.ino, attr.kind);
    }
    Ok(found)
}

/// Closes a folder or a file, also when its caller goes away.
struct Open(Arc<Filesystem>, FileHandle, FileKind);

impl Drop for Open {
    fn drop(&mut self) {
        match self.2 {
            FileKind::Directory => self.0.releasedir(self.1),
            FileKind::File | FileKind::Link => self.0.release(self.1),
        }
    }
}

async fn act(fs: &Arc<Filesystem>, act: &Act) {
    match *act {
        Act::Look(folder, file) | Act::Read(folder, file) => {
            let (folder, count) = FOLDERS[folder];
            let path = format!("{folder}/{}", name(file));
            let found = look_up(fs, &path).await;
            let is_absent = matches!(found, Err(FsError::NotFound));
            assert_eq!(is_absent, file >= count, "{path}: {found:?}");
            let (Ok((ino, kind)), Act::Read(..)) = (found, act) else { return };
            assert_eq!(kind, FileKind::File);
            let open = Open(fs.clone(), fs.open(ino).expect("a file").handle, kind);
            let (send, receive) = tokio::sync::oneshot::channel();
            fs.read(open.1, 0, 1000, move |result| {
                // The caller may have gone away.
                let _ = send.send(result.map(<[u8]>::to_vec));
            });
            assert_eq!(receive.await.expect("an answer").expect("bytes"), path.as_bytes());
        }
        Act::List(folder) => {
            let (folder, count) = FOLDERS[folder];
            let found = look_up(fs, folder).await;
            let Ok((ino, FileKind::Directory)) = found else { panic!("{folder}: {found:?}") };
            let open = Open(fs.clone(), fs.opendir(ino).expect("a folder"), FileKind::Directory);
            let (mut offset, mut files) = (DirOffset::AFTER_DOTS, Vec::new());
            while let page = fs.readdir(open.1, offset, 100).await.expect("a page")
                && let Some(last) = page.last()
            {
                offset = last.next;
                files.extend(
                    page.into_iter().filter(|entry| entry.kind == FileKind::File).map(|entry| entry.name),
                );
            }
            assert!(files.iter().eq(&(0..count).map(name).collect::<Vec<_>>()), "{folder}: {files:?}");
        }
        Act::Pause(milliseconds) => sleep(Duration::from_millis(milliseconds)).await,
    }
}

async fn play(run: Run) {
    let client = Arc::new(MemoryClient::new());
    for (folder, count) in FOLDERS {
        client.put(&format!("{folder}/"), "");
        for path in (0..count).map(|file| format!("{folder}/{}", name(file))) {
            client.put(&path, path.clone());
        }
    }
    let latencies = run.latencies.iter().cycle().take(10_000);
    client.stall_next(latencies.map(|milliseconds| Duration::from_millis(*milliseconds)));
    client.fail_next((0..run.failures).map(|_| ErrorKind::Throttled));
    let pool = BufferPool::new(MemoryBudget::new(8 << 20)).expect("a pool");
    let prefetch = PrefetchConfig { hedge_share: 0.0, read_timeout: FOR_EVER, ..PrefetchConfig::default() };
    let prefetcher = Prefetcher::new(client.clone(), pool, prefetch, &Handle::current());
    let config = FsConfig {
        metadata_ttl: run.ttl,
        negative_metadata_ttl: run.ttl.duration(),
        timeout: FOR_EVER,
        ..FsConfig::default()
    };
    let fs = Arc::new(Filesystem::new(client, prefetcher, config, &Handle::current()));
    let callers = run.callers.into_iter().map(|caller| {
        let fs = fs.clone();
        tokio::spawn(async move {
            for (one, patience) in caller {
                match patience.map(Duration::from_millis) {
                    None => act(&fs, &one).await,
                    // The caller goes away, like a process that is killed.
                    Some(patience) => drop(timeout(patience, act(&fs, &one)).await),
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("right answers");
    }
    assert_eq!((fs.metrics().open_files.get(), fs.metrics().open_folders.get()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_stays_has_the_right_answer(run in run()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let end = runtime.expect("a runtime").block_on(async { timeout(FOR_EVER, play(run)).await });
        prop_assert!(end.is_ok(), "somebody waits for ever");
    }
}
