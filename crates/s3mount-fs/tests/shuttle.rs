//! The names of a mount under a model checker. It tries thousands of interleavings of a few callers, of the
//! listings that they start, and of changes of the bucket. The tests run by
//! `cargo test -p s3mount-fs --features shuttle --test shuttle`.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_fs::{DirOffset, Filesystem, FsConfig, FsError, InodeNo, MetadataTtl, ROOT};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{GetAnswer, GetObject, ListObjects, ListPage, ObjectClient, ObjectError, PartBuffer};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use shuttle::future::{block_on, yield_now};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

const RUNS: usize = 1_000;

/// The stack of a caller. It holds all of a listing: the usual 60 KiB are too few.
const STACK_BYTES: usize = 128 << 10;

/// The most names on a page. They are few, so that a small folder has several pages.
const NAMES_A_PAGE: u32 = 2;

/// A store whose answers to LISTs come at any later point.
#[derive(Debug)]
struct Store(MemoryClient);

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for Store {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        self.0.get_object(request, into)
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        async move {
            yield_now().await;
            let max_keys = Some(request.max_keys.unwrap_or(NAMES_A_PAGE));
            let page = self.0.list_objects(ListObjects { max_keys, ..request }).await;
            yield_now().await;
            page
        }
        .boxed()
    }

    s3mount_testkit::delegate_metadata!(0, but no listings);
}

/// A bucket of these keys.
fn bucket(keys: &[&str]) -> Arc<Store> {
    let client = MemoryClient::new();
    keys.iter().for_each(|key| drop(client.put(key, "1")));
    Arc::new(Store(client))
}

fn mount(store: &Arc<Store>) -> Arc<Filesystem> {
    let pool = BufferPool::new(MemoryBudget::new(1 << 20)).expect("a pool");
    let runtime = tokio::runtime::Handle::current();
    let prefetcher = Prefetcher::new(store.clone(), pool, PrefetchConfig::default(), &runtime);
    let config = FsConfig { metadata_ttl: MetadataTtl::Indefinite, ..FsConfig::default() };
    Arc::new(Filesystem::new(store.clone(), prefetcher, config, &runtime))
}

/// Looks up names of the folder `d`. Returns the inode of each name that is there.
fn look_up(fs: &Filesystem, folder: InodeNo, names: &[&str]) -> Vec<Option<InodeNo>> {
    let look_up = |name: &&str| match block_on(fs.lookup(folder, name)) {
        Ok(entry) => Some(entry.attr.ino),
        Err(FsError::NotFound) => None,
        Err(error) => panic!("{name}: {error}"),
    };
    names.iter().map(look_up).collect()
}

/// The names of a folder without the dots.
fn list(fs: &Filesystem, folder: InodeNo) -> Vec<String> {
    let handle = fs.opendir(folder).expect("a folder");
    // The names are read from the very beginning, because only such a reader starts a listing.
    let (mut names, mut offset) = (Vec::new(), DirOffset::START);
    while let page = block_on(fs.readdir(handle, offset, 100)).expect("a page")
        && let Some(last) = page.last()
    {
        offset = last.next;
        names.extend(page.into_iter().map(|entry| entry.name).filter(|name| !name.starts_with('.')));
    }
    fs.releasedir(handle);
    names
}

/// Runs `test` in many orders. Time stands still, so no time-out comes.
fn check(test: impl Fn() + Send + Sync + Clone + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(RUNS), config.clone()).run(test.clone());
    Runner::new(PctScheduler::new(3, RUNS), config).run(test);
}

fn folder(fs: &Filesystem) -> InodeNo {
    block_on(fs.lookup(ROOT, "d")).expect("a folder").attr.ino
}

#[test]
fn all_callers_are_given_one_inode_and_give_it_back() {
    check(|| {
        let fs = mount(&bucket(&["d/a"]));
        let callers = [(); 3].map(|()| {
            let fs = fs.clone();
            thread::spawn(move || {
                let folder = folder(&fs);
                let found = look_up(&fs, folder, &["a"])[0].expect("it is there");
                (folder, found)
            })
        });
        let found = callers.map(|caller| caller.join().expect("no panic"));
        assert!(found.iter().all(|inodes| *inodes == found[0]), "{found:?}");
        fs.forget(found[0].1, 3);
        fs.forget(found[0].0, 3);
        assert_eq!(fs.metrics().inodes.get(), 1, "the root alone");
    });
}

#[test]
fn each_look_up_is_answered_while_its_folder_is_listed_whole() {
    // There are more names than look-ups may send LISTs of their own for. So some look-ups wait for pages of
    // the whole listing.
    const CALLERS: usize = 4;
    const NAMES: usize = 24;
    check(|| {
        // Each second name is there.
        let name = |index: usize| format!("{index:02}");
        let keys: Vec<_> = (0..NAMES).step_by(2).map(|index| format!("d/{}", name(index))).collect();
        let fs = mount(&bucket(&keys.iter().map(String::as_str).collect::<Vec<_>>()));
        let folder = folder(&fs);
        let callers = (0..CALLERS).map(|caller| {
            let fs = fs.clone();
            thread::spawn(move || {
                // The look-ups start at the end, and the pages of the listing at the beginning.
                for index in (0..NAMES).rev().filter(|index| index % CALLERS == caller) {
                    let found = look_up(&fs, folder, &[&name(index)])[0];
                    assert_eq!(found.is_some(), index % 2 == 0, "{index}");
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().for_each(|caller| caller.join().expect("no panic"));
    });
}

#[test]
fn listings_and_look_ups_agree() {
    check(|| {
        let fs = mount(&bucket(&["d/a", "d/b/x", "d/c", "d/d"]));
        let folder = folder(&fs);
        let listings = [(); 2].map(|()| {
            let fs = fs.clone();
            thread::spawn(move || list(&fs, folder))
        });
        let found = look_up(&fs, folder, &["b", "c", "x"]);
        for names in listings {
            assert_eq!(names.join().expect("no panic"), ["a", "b", "c", "d"]);
        }
        assert_eq!(look_up(&fs, folder, &["b", "c", "x"]), found, "what was given stays");
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    });
}

#[test]
fn the_kernel_is_told_once_of_a_version_that_is_gone() {
    check(|| {
        let store = bucket(&["d/a", "d/b", "d/c"]);
        let fs = mount(&store);
        let folder = folder(&fs);
        let old = look_up(&fs, folder, &["b"])[0].expect("it is there");
        drop(store.0.put("d/b", "another"));
        let listings = [(); 2].map(|()| {
            let fs = fs.clone();
            thread::spawn(move || {
                list(&fs, folder);
                let mut told = Vec::new();
                while let Some((_, names)) = fs.take_outdated(|_| true) {
                    told.extend(names.into_iter().filter_map(|known| known.ino));
                }
                told
            })
        });
        let told = listings.map(|listing| listing.join().expect("no panic")).concat();
        assert_eq!(told, [old]);
        assert!(matches!(fs.open(old), Err(FsError::Outdated)));
        let new = look_up(&fs, folder, &["b"])[0].expect("it is there");
        assert_ne!(new, old);
    });
}
