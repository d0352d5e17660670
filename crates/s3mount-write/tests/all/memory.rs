//! Drafts when memory is short.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ByteRange, NewObject};
use s3mount_testkit::MemoryClient;
use s3mount_write::{Draft, WriteConfig, WriteError, Writer};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::draft::{write, write_by};
use crate::faulty::FaultyClient;
use crate::{MIB, all, pattern, spooling_writer, writer};

#[tokio::test(start_paused = true)]
async fn a_long_file_needs_no_more_memory_than_it_may_have() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(100));
    let writer = writer(client.clone(), 32 * MIB);
    let draft = writer.create("k", NewObject::default());
    let bytes = pattern(1, 100 * MIB as usize);
    write(&draft, 0, &bytes).await.expect("memory");
    let late = draft.read(99 * MIB, 10).await.expect("what was written last is there");
    assert_eq!(late, bytes.slice(99 * MIB as usize..)[..10]);
    assert!(
        matches!(draft.read(0, 10).await, Err(WriteError::NotReadable { .. })),
        "it is only in the store"
    );
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
}

/// What a write has written before it waits for memory is not written again: the file would not be written from front to
/// back any more.
#[tokio::test(start_paused = true)]
async fn streams_of_odd_writes_that_wait_for_memory_are_streams() {
    for len in [100_003, (1 << 20) + 100, 4 << 20] {
        let client = Arc::new(MemoryClient::new());
        client.set_latency(Duration::from_millis(700));
        let writer = writer(client.clone(), 32 * MIB);
        let bytes = pattern(1, 50 * MIB as usize + 1);
        let files = (0..4).map(|number| {
            let (draft, bytes) = (writer.create(&number.to_string(), NewObject::default()), &bytes);
            async move {
                write_by(&draft, 0, bytes, len).await.expect("its turn comes");
                draft.publish().await.expect("it is complete");
            }
        });
        futures::future::join_all(files).await;
        for number in 0..4 {
            assert!(client.stored(&number.to_string()).0 == bytes, "{number}, by {len} bytes");
        }
    }
}

/// A part in one buffer is uploaded where it lies. One in many has to be copied first.
#[tokio::test(start_paused = true)]
async fn a_long_file_waits_for_whole_parts() {
    let store = Arc::new(MemoryClient::new());
    store.set_latency(Duration::from_millis(100));
    let client = FaultyClient::new(store.clone());
    let draft = writer(client.clone(), 32 * MIB).create("k", NewObject::default());
    let bytes = pattern(1, 100 * MIB as usize);
    write(&draft, 0, &bytes).await.expect("memory");
    draft.publish().await.expect("it is complete");
    assert!(store.stored("k").0 == bytes);
    // The first part grows, because files are small mostly.
    let in_pieces = client.in_pieces.load(Ordering::Relaxed);
    assert!(in_pieces <= 1, "{in_pieces} of 20");
}

#[tokio::test(start_paused = true)]
async fn what_was_uploaded_and_dropped_can_not_be_patched() {
    let client = Arc::new(MemoryClient::new());
    let draft = writer(client.clone(), 32 * MIB).create("k", NewObject::default());
    write(&draft, 0, &pattern(1, 100 * MIB as usize)).await.expect("memory");
    let patched = draft.write(5, Bytes::from_static(b"x")).await;
    assert!(matches!(patched, Err(WriteError::Failed(_))), "{patched:?}");
    let published = draft.publish().await;
    assert!(matches!(published, Err(WriteError::Failed(_))), "{published:?}");
    draft.discard().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(client.open_uploads().is_empty() && client.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_files_at_once_all_get_on() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(30));
    let writer = writer(client.clone(), 96 * MIB);
    let bytes = pattern(5, 11 * MIB as usize);
    let tasks: Vec<_> = (0..16)
        .map(|index| {
            let (draft, bytes) =
                (writer.create(&format!("k{index:02}"), NewObject::default()), bytes.clone());
            tokio::spawn(async move {
                for at in (0..bytes.len()).step_by(MIB as usize) {
                    let piece = bytes.slice(at..at + MIB as usize);
                    write(&draft, at as u64, &piece).await.expect("memory");
                    tokio::task::yield_now().await;
                }
                draft.publish().await.expect("it is complete");
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(client.keys().len(), 16);
    assert!(client.keys().iter().all(|key| client.stored(key).0 == bytes));
}

#[tokio::test(start_paused = true)]
async fn random_writes_beyond_memory_are_uploaded_as_they_stand() {
    let client = Arc::new(MemoryClient::new());
    let draft = writer(client.clone(), 32 * MIB).create("k", NewObject::default());
    let bytes = pattern(9, 60 * MIB as usize);
    // Backwards within each 10 MiB: never a stream.
    for part in bytes.chunks(10 * MIB as usize).enumerate() {
        for (index, piece) in part.1.chunks(MIB as usize).enumerate().collect::<Vec<_>>().into_iter().rev() {
            let at = part.0 as u64 * 10 * MIB + index as u64 * MIB;
            write(&draft, at, &Bytes::copy_from_slice(piece)).await.expect("memory");
        }
    }
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
}

/// Pieces of parts can't be uploaded before the rest of the parts is there.
#[tokio::test(start_paused = true)]
async fn random_edits_beyond_memory_need_a_spool() {
    for spool in [0, 500 * MIB] {
        let client = Arc::new(MemoryClient::new());
        let mut bytes = pattern(1, 100 * MIB as usize).to_vec();
        let version = client.put("k", bytes.clone());
        let draft =
            spooling_writer(client.clone(), 32 * MIB, spool).edit(&version, 100 * MIB, NewObject::default());
        let began = Instant::now();
        let mut failed = None;
        for at in (0..1_600).rev().map(|page| page * (64 << 10)) {
            bytes[at as usize + 7] ^= 1;
            let patch = Bytes::copy_from_slice(&[bytes[at as usize + 7]]);
            if let Err(error) = write(&draft, at + 7, &patch).await {
                failed = Some(error);
                break;
            }
        }
        if spool == 0 {
            let Some(WriteError::Failed(error)) = failed else { panic!("{failed:?}") };
            assert!(matches!(*error, WriteError::NeedsSpool), "{error:?}");
            assert!(error.to_string().ends_with("it needs --write-spool"));
            assert!(began.elapsed() < Duration::from_secs(5), "there is nothing to wait for");
        } else {
            assert!(failed.is_none(), "{failed:?}");
            draft.publish().await.expect("it is complete");
            assert!(client.stored("k").0 == bytes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_spool_keeps_what_memory_can_not() {
    let client = Arc::new(MemoryClient::new());
    let writer = spooling_writer(client.clone(), 32 * MIB, 200 * MIB);
    let draft = writer.create("k", NewObject::default());
    let mut bytes = pattern(1, 100 * MIB as usize).to_vec();
    write(&draft, 0, &Bytes::from(bytes.clone())).await.expect("memory");
    for at in [5, 50 * MIB, 99 * MIB] {
        draft.write(at, Bytes::from_static(b"patched")).await.expect("its bytes are in the spool");
        bytes[at as usize..][..7].copy_from_slice(b"patched");
    }
    assert!(all(&draft).await == bytes);
    draft.truncate(60 * MIB + 7).await.expect("it shrinks");
    bytes.truncate(60 * MIB as usize + 7);
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
    write(&draft, 60 * MIB + 7, &Bytes::from_static(b"more")).await.expect("memory");
    draft.publish().await.expect("it is complete");
    assert_eq!(client.stored("k").0[bytes.len()..], *b"more");
}

/// A page of the file comes back from the spool in pieces, while others are all that memory can drop.
#[tokio::test(start_paused = true)]
async fn small_pieces_anywhere_go_through_the_spool() {
    let client = Arc::new(MemoryClient::new());
    let draft = spooling_writer(client.clone(), 16 * MIB, 200 * MIB).create("k", NewObject::default());
    let bytes = pattern(1, 16 * MIB as usize);
    for piece in 0..4096_u64 {
        let at = (piece * 1_237 % 4096) << 12;
        write(&draft, at, &bytes.slice(at as usize..at as usize + 4096)).await.expect("memory");
    }
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
}

/// A part that waits for memory to be uploaded again is no memory that comes: other parts have to go to the spool.
#[tokio::test(start_paused = true)]
async fn a_part_that_comes_back_from_the_spool_makes_room_for_itself() {
    let client = Arc::new(MemoryClient::new());
    let draft = spooling_writer(client.clone(), 32 * MIB, 200 * MIB).create("k", NewObject::default());
    let mut bytes = pattern(1, 100 * MIB as usize).to_vec();
    write(&draft, 0, &Bytes::from(bytes.clone())).await.expect("memory");
    draft.write(0, Bytes::from_static(b"head")).await.expect("its bytes are in the spool");
    bytes[..4].copy_from_slice(b"head");
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
}

#[tokio::test(start_paused = true)]
async fn a_spool_that_is_full_is_as_none() {
    let client = Arc::new(MemoryClient::new());
    let writer = spooling_writer(client.clone(), 32 * MIB, 10 * MIB);
    let draft = writer.create("k", NewObject::default());
    let bytes = pattern(1, 100 * MIB as usize);
    write(&draft, 0, &bytes).await.expect("what does not fit is uploaded");
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_has_failed_holds_no_memory_that_others_want() {
    let client = Arc::new(MemoryClient::new());
    let writer = writer(client.clone(), 32 * MIB);
    let failed = writer.create("failed", NewObject::default());
    client.refuse_uploads(true);
    write(&failed, 0, &pattern(1, 15 * MIB as usize)).await.expect("nothing is uploaded before it waits");
    failed.publish().await.expect_err("it is refused");
    client.refuse_uploads(false);
    let draft = writer.create("k", NewObject::default());
    let bytes = pattern(2, 30 * MIB as usize);
    write(&draft, 0, &bytes).await.expect("memory");
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
    assert!(failed.write(0, Bytes::from_static(b"a")).await.is_err());
}

/// Writes 48 files of 12 MiB at the same time, MiB by MiB in the order that `order` gives for each, the first two bytes of
/// each MiB alone.
async fn write_at_once(writer: &Writer, order: impl Fn(u64) -> Vec<u64>) {
    let bytes = pattern(5, 12 * MIB as usize);
    let tasks: Vec<_> = (0..48)
        .map(|file| {
            let draft = writer.create(&format!("k{file:02}"), NewObject::default());
            let (bytes, order) = (bytes.clone(), order(file));
            tokio::spawn(async move {
                for at in order {
                    let piece = bytes.slice((at * MIB) as usize..((at + 1) * MIB) as usize);
                    write_by(&draft, at * MIB, &piece.slice(..2), 2).await.expect("memory");
                    write_by(&draft, at * MIB + 2, &piece.slice(2..), MIB as usize).await.expect("memory");
                    tokio::time::sleep(Duration::from_millis((at * 7 + file * 13) % 31)).await;
                }
                draft.publish().await.expect("it is complete");
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

fn check_all(client: &MemoryClient) {
    let bytes = pattern(5, 12 * MIB as usize);
    assert_eq!(client.keys().len(), 48);
    assert!(client.keys().iter().all(|key| client.stored(key).0 == bytes));
}

/// Memory has room for a piece of each file, and could be full of pieces of parts none of which is whole.
#[tokio::test(start_paused = true)]
async fn more_files_than_parts_fit_memory_take_turns() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(30));
    let writer = writer(client.clone(), 32 * MIB);
    // Files that somebody has open, and does not write to for now.
    let idle: Vec<_> = (0..8).map(|log| writer.create(&format!("log{log}"), NewObject::default())).collect();
    let began = Instant::now();
    let busy = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for draft in &idle {
            write(draft, 0, &pattern(1, 1000)).await.expect("memory");
        }
    };
    tokio::join!(busy, write_at_once(&writer, |_| (0..12).collect()));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    check_all(&client);
    for draft in idle {
        draft.publish().await.expect("it is complete");
    }
}

/// The bytes before a write may leave memory for the spool while the write waits for the buffer of a whole part.
#[tokio::test(start_paused = true)]
async fn more_files_than_parts_fit_memory_take_turns_with_a_spool() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(30));
    let writer = spooling_writer(client.clone(), 32 * MIB, 2000 * MIB);
    write_at_once(&writer, |_| (0..12).collect()).await;
    check_all(&client);
}

#[tokio::test(start_paused = true)]
async fn more_patched_files_than_memory_has_blocks_take_turns() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(30));
    let writer = spooling_writer(client.clone(), 32 * MIB, 2000 * MIB);
    write_at_once(&writer, |file| (0..12).map(|at| (at * 5 + file) % 12).collect()).await;
    check_all(&client);
}

/// Of two parts that could be dropped, a late change needs one.
#[tokio::test(start_paused = true)]
async fn a_change_that_waits_for_memory_does_not_lose_the_part_that_it_changes() {
    let client = Arc::new(MemoryClient::new());
    let writer = writer(client.clone(), 32 * MIB);
    let other = writer.create("other", NewObject::default());
    write(&other, 0, &pattern(1, MIB as usize)).await.expect("memory");
    let draft = writer.create("k", NewObject::default());
    let mut bytes = pattern(2, 11 * MIB as usize).to_vec();
    write(&draft, 0, &Bytes::from(bytes.clone())).await.expect("memory");
    tokio::time::sleep(Duration::from_secs(1)).await;
    write(&draft, 10, &Bytes::from_static(b"late")).await.expect("the first part is there");
    bytes[10..14].copy_from_slice(b"late");
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
}

/// A file that is written from front to back after something else was done to it.
async fn write_after(draft: &Draft, bytes: &Bytes, from: usize) {
    for at in (from..bytes.len()).step_by(256 << 10) {
        let piece = bytes.slice(at..bytes.len().min(at + (256 << 10)));
        write(draft, at as u64, &piece).await.expect("its turn comes");
        tokio::task::yield_now().await;
    }
}

/// Writes 24 files of 12 MiB at the same time by `fill`, which gets the number of a file, its draft and its bytes. Then the
/// store has them.
async fn write_together(client: &MemoryClient, writer: &Writer, fill: impl AsyncFn(u64, &Draft, &Bytes)) {
    let bytes = pattern(5, 12 * MIB as usize);
    let files = (0..24).map(async |file| {
        let draft = writer.create(&file.to_string(), NewObject::default());
        fill(file, &draft, &bytes).await;
        draft.publish().await.expect("it is complete");
    });
    futures::future::join_all(files).await;
    assert!(client.keys().len() == 24 && client.keys().iter().all(|key| client.stored(key).0 == bytes));
}

/// What is synced is not whole: its last part stays in memory, and the file goes on.
#[tokio::test(start_paused = true)]
async fn files_that_are_synced_in_the_middle_take_turns() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(30));
    let writer = writer(client.clone(), 32 * MIB);
    write_together(&client, &writer, async |file, draft, bytes| {
        // One of four is synced when it is a part, and no more.
        let middle = if file % 4 == 0 { 5 * MIB } else { file * 7 % 47 * (256 << 10) } as usize;
        write_after(draft, &bytes.slice(..middle), 0).await;
        draft.sync().await.expect("the store takes it");
        write_after(draft, bytes, middle).await;
    })
    .await;
}

/// What comes before a copy is a part of a part, and stays so.
#[tokio::test(start_paused = true)]
async fn files_with_copies_between_take_turns() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(30));
    let (source, copied) = (pattern(3, 30 * MIB as usize), 11 * MIB as usize);
    let version = client.put("source", source.to_vec());
    let writer = writer(client.clone(), 32 * MIB);
    let bytes = pattern(5, 9 * MIB as usize);
    let files = (0..24_usize).map(|file| {
        let draft = writer.create(&file.to_string(), NewObject::default());
        let (bytes, version, mut wanted) = (bytes.clone(), version.clone(), Vec::new());
        let head = bytes.slice(..MIB as usize / 4 * (1 + file * 7 % 19));
        wanted.extend_from_slice(&head);
        wanted.extend_from_slice(&source[file..][..copied]);
        wanted.extend_from_slice(&bytes);
        let wanted = Bytes::from(wanted);
        tokio::spawn(async move {
            write_after(&draft, &head, 0).await;
            let range = ByteRange::new(file as u64, (file + copied) as u64);
            let at = head.len() as u64;
            draft.copy_from(&version, 30 * MIB, range, at).await.expect("it is noted");
            write_after(&draft, &wanted, head.len() + copied).await;
            draft.publish().await.expect("it is complete");
            wanted
        })
    });
    for (file, wanted) in futures::future::join_all(files).await.into_iter().enumerate() {
        assert!(client.stored(&file.to_string()).0 == wanted.expect("no panic"), "{file}");
    }
}

/// The zeros that a file begins with are nobody's bytes.
#[tokio::test(start_paused = true)]
async fn files_that_have_their_size_before_their_bytes_are_streams() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(30));
    let writer = writer(client.clone(), 32 * MIB);
    write_together(&client, &writer, async |_, draft, bytes| {
        draft.truncate(12 * MIB).await.expect("zeros take no memory");
        write_after(draft, bytes, 0).await;
    })
    .await;
}

/// The later parts of a long file are longer than its first ones.
#[tokio::test(start_paused = true)]
async fn the_long_parts_of_many_long_files_are_promised_whole() {
    let client = Arc::new(MemoryClient::new());
    let pool = BufferPool::new(MemoryBudget::new(48 * MIB)).expect("a pool");
    let config = WriteConfig {
        part_bytes: MIB,
        least_part_bytes: MIB,
        memory_bytes: 32 * MIB,
        ..WriteConfig::default()
    };
    let writer = Writer::new(client.clone(), pool, config, &Handle::current());
    // Nobody reads what these have: thousand parts of one MiB, thousand of two, and then parts of four.
    let (version, size) = (client.put("k", vec![0]), 3_000 * MIB);
    let tails = (0..16).map(|_| {
        let draft = writer.edit(&version, size, NewObject::default());
        tokio::spawn(async move {
            for at in 0..8 {
                write(&draft, size + at * MIB, &pattern(at, MIB as usize)).await.expect("its turn comes");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    });
    for tail in futures::future::join_all(tails).await {
        tail.expect("no panic");
    }
}

/// Files that are patched at random, without a spool, can hold all memory and fill no part. They fail, and those that
/// can be written go on.
#[tokio::test(start_paused = true)]
async fn files_that_need_a_spool_fail_before_those_that_need_none() {
    let client = Arc::new(MemoryClient::new());
    let writer = writer(client.clone(), 32 * MIB);
    let version = client.put("big", pattern(1, 100 * MIB as usize).to_vec());
    let patched: Vec<_> = (0..4).map(|_| writer.edit(&version, 100 * MIB, NewObject::default())).collect();
    let tasks: Vec<_> = patched
        .into_iter()
        .map(|draft| {
            tokio::spawn(async move {
                for at in (0..1_600).rev().map(|page| page * (64 << 10)) {
                    write(&draft, at + 7, &Bytes::from_static(b"x")).await?;
                }
                Ok(())
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let draft = writer.create("k", NewObject::default());
    let bytes = pattern(2, 30 * MIB as usize);
    write(&draft, 0, &bytes).await.expect("memory");
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
    for task in tasks {
        let failed: Result<(), WriteError> = task.await.expect("no panic");
        let Err(WriteError::Failed(error)) = failed else { panic!("{failed:?}") };
        assert!(matches!(*error, WriteError::NeedsSpool), "{error:?}");
    }
}
