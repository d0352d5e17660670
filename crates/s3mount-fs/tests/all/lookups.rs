//! Look-ups of names that no listing has shown: how long they take at most, and what their answers say of
//! other names.

use std::time::Duration;

use s3mount_fs::{FileKind, FsError, MetadataTtl, ROOT};
use tokio::time::Instant;

use crate::common::{bucket, mount, names, walk};

#[tokio::test(start_paused = true)]
async fn no_lookup_outlives_the_timeout_however_many_wait() {
    let client = bucket(["d/000"]);
    let fs = mount(&client, |config| config.timeout = Duration::from_secs(5));
    let folder = walk(&fs, "d").await.expect("a folder");
    client.freeze(true);
    let start = Instant::now();
    let callers = (0..64).map(|index| {
        let fs = fs.clone();
        tokio::spawn(async move { fs.lookup(folder, &format!("{index:03}x")).await })
    });
    for caller in callers.collect::<Vec<_>>() {
        assert!(matches!(caller.await.expect("an answer"), Err(FsError::TimedOut(_))));
    }
    let took = start.elapsed();
    assert!(took < Duration::from_millis(5100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn no_listing_outlives_the_timeout() {
    let tree = (0..200).flat_map(|folder| [format!("t/{folder:03}/a"), format!("t/{folder:03}/b")]);
    let client = bucket(tree);
    let fs = mount(&client, |config| config.timeout = Duration::from_secs(5));
    names(&fs, walk(&fs, "t").await.expect("a folder")).await.expect("its names");
    // The third folder is in the middle of a walk, so many folders are listed ahead of it.
    for folder in ["000", "001"] {
        names(&fs, walk(&fs, &format!("t/{folder}")).await.expect("a folder")).await.expect("its names");
    }
    client.freeze(true);
    let start = Instant::now();
    let callers = (2..100).map(|folder| {
        let fs = fs.clone();
        tokio::spawn(async move { names(&fs, walk(&fs, &format!("t/{folder:03}")).await?).await })
    });
    let callers = callers.collect::<Vec<_>>();
    let mut failed = 0;
    for caller in callers {
        failed += u32::from(caller.await.expect("an answer").is_err());
    }
    let took = start.elapsed();
    assert!(failed > 0 && took < Duration::from_millis(5100), "{failed} failed, {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_believed_for_the_ttl_and_no_longer() {
    let client = bucket(["d/f", "d/g"]);
    let fs = mount(&client, |config| config.metadata_ttl = MetadataTtl::For(Duration::from_secs(60)));
    let folder = walk(&fs, "d").await.expect("a folder");
    let look = async |name: &str| {
        let entry = fs.lookup(folder, name).await.expect("a file");
        (entry.name_ttl.as_secs_f64().round(), client.take_requests().list)
    };
    client.take_requests();
    assert_eq!(look("f").await, (60.0, 1));
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(look("f").await, (1.0, 0), "the kernel may believe the name for the rest of the time");
    assert_eq!(look("g").await, (1.0, 0), "it was listed with its neighbour");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(look("f").await, (60.0, 1));
    client.delete("d/g");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(matches!(fs.lookup(folder, "g").await, Err(FsError::NotFound)));
}

#[tokio::test(start_paused = true)]
async fn what_is_believed_for_ever_is_never_asked_for_again() {
    let ten_years = Duration::from_secs(10 * 365 * 86_400);
    let client = bucket(["d/f"]);
    let fs = mount(&client, |config| {
        config.metadata_ttl = MetadataTtl::Indefinite;
        config.negative_metadata_ttl = MetadataTtl::Indefinite.duration();
    });
    let folder = walk(&fs, "d").await.expect("a folder");
    fs.lookup(folder, "f").await.expect("a file");
    assert!(matches!(fs.lookup(folder, "g").await, Err(FsError::NotFound)));
    client.take_requests();
    client.delete("d/f");
    client.put("d/g", "new");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(fs.lookup(folder, "f").await.expect("it is believed").name_ttl > ten_years);
    assert!(matches!(fs.lookup(folder, "g").await, Err(FsError::NotFound)));
    assert_eq!(client.take_requests().list, 0);
}

#[tokio::test]
async fn a_name_behind_a_folder_says_nothing_of_the_names_before() {
    for keeps_prefixes in [false, true] {
        let client = bucket(["d/0/x", "d/1/図", "d/10/x", "d/1a"]);
        if keeps_prefixes {
            client.keep_prefixes();
        }
        for first in ["10", "0", "1", "1a"] {
            let fs = mount(&client, |config| config.negative_metadata_ttl = Duration::from_secs(60));
            let folder = walk(&fs, "d").await.expect("a folder");
            let kind = |name: &str| if name == "1a" { FileKind::File } else { FileKind::Directory };
            for name in [first, "0", "1", "10", "1a"] {
                let found = fs.lookup(folder, name).await.map(|entry| entry.attr.kind);
                assert!(
                    matches!(found, Ok(found) if found == kind(name)),
                    "{name} after {first}, {keeps_prefixes}: {found:?}"
                );
            }
            assert!(matches!(fs.lookup(ROOT, "0").await, Err(FsError::NotFound)));
        }
    }
}

/// The kernel lets one process at a time look a name up. Those that come after a time-out do not wait for their own.
#[tokio::test(start_paused = true)]
async fn who_comes_right_after_a_time_out_does_not_wait_for_another() {
    let client = bucket(["d/a", "d/b"]);
    let limit = Duration::from_secs(5);
    let fs = mount(&client, |config| config.timeout = limit);
    let folder = walk(&fs, "d").await.expect("a folder");
    client.set_latency(Duration::from_secs(1000));
    let waited = async |name: &str| {
        let start = Instant::now();
        let error = fs.lookup(folder, name).await.expect_err("the store is silent");
        assert!(matches!(error, FsError::TimedOut(_)), "{error}");
        start.elapsed()
    };
    assert_eq!(
        [waited("a").await, waited("a").await, waited("a").await],
        [limit, Duration::ZERO, Duration::ZERO]
    );
    assert_eq!(waited("b").await, limit, "another name");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(waited("a").await, limit, "a later look-up");
    client.set_latency(Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(1)).await;
    fs.lookup(folder, "a").await.expect("the store answers");
}
