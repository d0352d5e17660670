//! A file that this mount writes keeps its inode, and who has it open follows it: over a client in memory.

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{
    AttrChange, DirOffset, FileHandle, Filesystem, FsConfig, FsError, InodeNo, MetadataTtl, OpenMode, Place,
    ROOT, WriteOpen,
};
use s3mount_testkit::MemoryClient;
use tokio::sync::oneshot;

use crate::common::writes::{
    APPEND, EMPTY, WRITE, another_keeping, append, look_up, mount, mount_keeping, mount_keeping_as, write,
    write_at,
};

async fn read(fs: &Arc<Filesystem>, handle: FileHandle) -> Result<Vec<u8>, FsError> {
    let (sender, answer) = oneshot::channel();
    fs.read(handle, 0, 1 << 20, move |result| drop(sender.send(result.map(<[u8]>::to_vec))));
    answer.await.expect("an answer")
}

async fn close(fs: &Arc<Filesystem>, handle: FileHandle) {
    fs.clone().flush(handle, |_| true).await.expect("an object");
    fs.release(handle);
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_keeps_its_inode_while_this_mount_writes_it() {
    let (client, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let reader = fs.open(ino).expect("a handle").handle;
    assert_eq!(read(&fs, reader).await.expect("bytes"), b"old text");
    for round in 0..3 {
        let writer = fs.open_to_write(ino, APPEND).await.expect("no ESTALE");
        assert_eq!((writer.mode, writer.keep_cache), (OpenMode::Cached, true), "somebody has its pages");
        assert_eq!(look_up(&fs, "old").await, ino);
        append(&fs, writer.handle, b"+").await;
        assert_eq!(
            read(&fs, reader).await.expect("bytes").len(),
            9 + round,
            "who has it open sees it at once"
        );
        close(&fs, writer.handle).await;
        assert!(!fs.is_draft(ino));
        assert_eq!(look_up(&fs, "old").await, ino);
        assert_eq!(read(&fs, reader).await.expect("bytes").len(), 9 + round, "it is a version again");
    }
    assert_eq!(client.stored("old").0, b"old text+++");
    // A new file keeps its own, too, and so does one that is cut.
    let (entry, new) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    assert_eq!(new.mode, OpenMode::Direct);
    write(&fs, new.handle, b"new").await;
    close(&fs, new.handle).await;
    assert_eq!(look_up(&fs, "new").await, entry.attr.ino);
    assert!(!fs.open(entry.attr.ino).expect("a handle").keep_cache, "a map may have brought pages in");
    assert!(fs.open(entry.attr.ino).expect("a handle").keep_cache);
    fs.clone().set_size(ino, None, 3, 1).await.expect("it is cut");
    assert_eq!((look_up(&fs, "old").await, read(&fs, reader).await.expect("bytes")), (ino, b"old".to_vec()));
    assert_eq!(client.stored("old").0, b"old");
}

#[tokio::test(start_paused = true)]
async fn who_opens_a_file_that_is_being_written_drops_no_page() {
    let (_, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let reader = fs.open(ino).expect("a handle").handle;
    let writer = fs.open_to_write(ino, APPEND).await.expect("a handle");
    assert_eq!(writer.mode, OpenMode::Cached, "a WRITE may be under way whose bytes are in the pages");
    let other = fs.open(ino).expect("a handle");
    assert_eq!((other.mode, other.keep_cache), (OpenMode::Direct, true));
    append(&fs, writer.handle, b"+").await;
    assert_eq!(read(&fs, other.handle).await.expect("bytes"), b"old text+");
    for handle in [reader, writer.handle, other.handle] {
        close(&fs, handle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_empties_a_file_leaves_its_readers_the_version() {
    let (client, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let reader = fs.open(ino).expect("a handle").handle;
    assert!(matches!(fs.open_to_write(ino, EMPTY).await, Err(FsError::Outdated)));
    assert!(!fs.is_draft(look_up(&fs, "old").await), "nothing was made in advance");
    let other = look_up(&fs, "old").await;
    assert_ne!(other, ino);
    // Somebody slips in. The kernel tries only once.
    let second = fs.open_by(other, 7).expect("a handle").handle;
    let writer = fs.open_to_write(other, EMPTY).await.expect("no second ESTALE");
    write(&fs, writer.handle, b"new").await;
    assert_eq!(read(&fs, reader).await.expect("bytes"), b"old text");
    assert_eq!(read(&fs, second).await.expect("bytes"), b"new");
    close(&fs, writer.handle).await;
    assert_eq!(look_up(&fs, "old").await, other);
    assert_eq!(client.stored("old").0, b"new");
    assert!(matches!(fs.open(ino), Err(FsError::Outdated)), "its name stands for another file");
    // Where nobody has it open, it keeps its inode.
    fs.release(second);
    let writer = fs.open_to_write(other, EMPTY).await.expect("a handle");
    close(&fs, writer.handle).await;
    assert_eq!(look_up(&fs, "old").await, other);
}

#[tokio::test(start_paused = true)]
async fn what_a_stranger_has_written_is_another_inode() {
    let (client, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let writer = fs.open_to_write(ino, WRITE).await.expect("a handle");
    write(&fs, writer.handle, b"OLD").await;
    client.put("old", "theirs");
    assert_eq!(
        fs.clone().flush(writer.handle, |_| true).await.expect_err("a conflict").errno(),
        libc::ESTALE
    );
    // The next reader gets theirs, also while the handle is open.
    let now = look_up(&fs, "old").await;
    assert_ne!(now, ino);
    let reader = fs.open(now).expect("a handle").handle;
    assert_eq!(read(&fs, reader).await.expect("bytes"), b"theirs");
    assert!(matches!(fs.open_to_write(ino, WRITE).await, Err(FsError::Outdated)));
    assert!(fs.clone().flush(writer.handle, |_| true).await.is_err(), "it is told each time");
    fs.release(writer.handle);
    let writer = fs.open_to_write(now, APPEND).await.expect("a handle");
    append(&fs, writer.handle, b", mine").await;
    close(&fs, writer.handle).await;
    assert_eq!(client.stored("old").0, b"theirs, mine");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_of_use_again_after_a_close_that_failed() {
    let (client, fs) = mount();
    let (_, first) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    write(&fs, first.handle, b"refused").await;
    // Another program is about to write it anew.
    let (_, second) = fs.create(ROOT, "new", EMPTY).await.expect("a file");
    write(&fs, second.handle, b"refused, too").await;
    client.fail_all(Some(s3mount_object::ErrorKind::Forbidden));
    assert!(fs.clone().flush(second.handle, |_| true).await.is_ok(), "the first has not closed it");
    assert_eq!(fs.clone().flush(first.handle, |_| true).await.expect_err("refused").errno(), libc::EACCES);
    client.fail_all(None);
    assert!(matches!(fs.lookup(ROOT, "new").await, Err(FsError::NotFound)), "nobody sees what was refused");
    // The second was told of success, so somebody has to be told.
    assert!(matches!(fs.create(ROOT, "new", EMPTY).await, Err(FsError::Lost(_))));
    let (_, third) = fs.create(ROOT, "new", EMPTY).await.expect("the store is well again");
    fs.release(first.handle);
    fs.release(second.handle);
    write(&fs, third.handle, b"good").await;
    close(&fs, third.handle).await;
    assert_eq!(client.stored("new").0, b"good");
}

/// `--keep-attributes`: a file that is closed is a draft for a second more. An evaluator opens it, and the trainer
/// replaces it.
#[tokio::test(start_paused = true)]
async fn who_has_a_draft_open_keeps_its_bytes_when_its_name_goes() {
    for replaces in [true, false] {
        let (_, fs) = mount_keeping();
        for (name, text) in [("last", b"first"), ("tmp", b"other")] {
            let (_, writer) = fs.create(ROOT, name, WRITE).await.expect("a file");
            write(&fs, writer.handle, text).await;
            fs.clone().flush(writer.handle, |_| true).await.expect("an object");
            fs.release(writer.handle);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let ino = look_up(&fs, "last").await;
        assert!(fs.is_draft(ino));
        let reader = fs.open(ino).expect("a handle").handle;
        if replaces {
            let place = |name| Place { parent: ROOT, name };
            fs.rename(place("tmp"), place("last"), false).await.expect("another name");
        } else {
            fs.unlink(ROOT, "last").await.expect("gone");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(read(&fs, reader).await.expect("bytes"), b"first");
        fs.release(reader);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_follow_a_draft_through_a_rename() {
    let (client, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let writer = fs.open_to_write(ino, APPEND).await.expect("a handle").handle;
    append(&fs, writer, b", more").await;
    let reader = fs.open(ino).expect("a handle").handle;
    client.set_latency(Duration::from_millis(100));
    let renaming = {
        let fs = fs.clone();
        tokio::spawn(async move {
            let place = |name| Place { parent: ROOT, name };
            fs.rename(place("old"), place("moved"), false).await
        })
    };
    while !renaming.is_finished() {
        assert_eq!(read(&fs, reader).await.expect("no ESTALE"), b"old text, more");
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    renaming.await.expect("its end").expect("another name");
    assert_eq!(look_up(&fs, "moved").await, ino);
    fs.release(reader);
    close(&fs, writer).await;
    assert_eq!(client.stored("moved").0, b"old text, more");
}

#[tokio::test(start_paused = true)]
async fn fsync_of_a_reader_makes_the_bytes_of_the_writers_safe() {
    let (client, fs) = mount();
    let (entry, writer) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    write(&fs, writer.handle, b"text").await;
    let reader = fs.open_to_write(entry.attr.ino, WriteOpen::default()).await.expect("a handle");
    fs.clone().fsync(reader.handle).await.expect("it is safe");
    assert_eq!(client.stored("new").0, b"text");
}

/// Two threads of a downloader have a file open, each with a descriptor of its own.
#[tokio::test(start_paused = true)]
async fn nobody_sees_half_a_file() {
    let (client, fs) = mount();
    let (entry, first) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    let second = fs.open_to_write(entry.attr.ino, WRITE).await.expect("a handle");
    write_at(&fs, first.handle, 4, b"half").await;
    write_at(&fs, second.handle, 0, b"x").await;
    fs.clone().flush(first.handle, |_| true).await.expect("it is kept");
    fs.release(first.handle);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(client.keys(), ["old"], "the other is in the midst of it");
    write_at(&fs, second.handle, 0, b"This").await;
    close(&fs, second.handle).await;
    assert_eq!(client.stored("new").0, b"Thishalf");
}

/// One process writes after another, and closes after it.
#[tokio::test(start_paused = true)]
async fn who_has_closed_what_he_wrote_is_not_given_up_at_the_end() {
    let (client, fs) = mount();
    let (entry, first) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    let second = fs.open_to_write(entry.attr.ino, WRITE).await.expect("a handle");
    assert!(fs.write(first.handle, 0, b"first", 1).expect("memory").is_none());
    assert!(fs.write(second.handle, 5, b", second", 2).expect("memory").is_none());
    fs.clone().flush(first.handle, |thread| thread == 2).await.expect("it has only inherited it");
    assert_eq!(fs.end_writes().await, 1, "nobody has closed it");
    let (entry, first) = fs.create(ROOT, "more", WRITE).await.expect("a file");
    let second = fs.open_to_write(entry.attr.ino, WRITE).await.expect("a handle");
    assert!(fs.write(first.handle, 0, b"first", 1).expect("memory").is_none());
    assert!(fs.write(second.handle, 5, b", second", 2).expect("memory").is_none());
    fs.clone().flush(first.handle, |thread| thread == 1).await.expect("it is kept");
    // What only appenders have open is complete.
    let (_, log) = fs.create(ROOT, "log", APPEND).await.expect("a file");
    append(&fs, log.handle, b"line").await;
    let (_, open) = fs.create(ROOT, "open", WRITE).await.expect("a file");
    write(&fs, open.handle, b"half").await;
    assert_eq!(fs.end_writes().await, 1, "only what nobody has closed is lost");
    assert_eq!(client.stored("more").0, b"first, second");
    assert_eq!(client.stored("log").0, b"line");
    assert_eq!(client.keys(), ["log", "more", "old"]);
}

/// A process that knows its descriptors: `touch`, and a shell that redirects the output of a program.
struct Process(Option<bool>);

impl s3mount_fs::Closer for Process {
    fn is_of(&self, _: u32) -> bool {
        true
    }

    fn has_another(&self, _: InodeNo) -> Option<bool> {
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_file_is_an_object_once_its_last_descriptor_is_closed() {
    let (client, fs) = mount();
    let (_, opened) = fs.create(ROOT, "_SUCCESS", WRITE).await.expect("a file");
    for has_another in [Some(true), None] {
        fs.clone().flush(opened.handle, Process(has_another)).await.expect("nothing to do");
        assert_eq!(client.keys(), ["old"]);
    }
    fs.clone().flush(opened.handle, Process(Some(false))).await.expect("an object");
    assert_eq!(client.keys(), ["_SUCCESS", "old"]);
    fs.release(opened.handle);
    // Where nobody knows, the failure is told to who opens the name next.
    let (_, opened) = fs.create(ROOT, "other", WRITE).await.expect("a file");
    client.fail_all(Some(s3mount_object::ErrorKind::Forbidden));
    fs.clone().flush(opened.handle, Process(None)).await.expect("nothing to do");
    fs.release(opened.handle);
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.fail_all(None);
    assert!(matches!(fs.create(ROOT, "other", WRITE).await, Err(FsError::Lost(_))));
    let (_, opened) = fs.create(ROOT, "other", WRITE).await.expect("it is told once");
    close_empty(&client, &fs, opened.handle).await;
}

async fn close_empty(client: &MemoryClient, fs: &Arc<Filesystem>, handle: FileHandle) {
    fs.clone().flush(handle, Process(Some(false))).await.expect("an object");
    fs.release(handle);
    assert_eq!(client.keys(), ["_SUCCESS", "old", "other"]);
}

/// The kernel asks for a page of a map while a WRITE around its cache is under way.
#[tokio::test(start_paused = true)]
async fn who_reads_sees_the_write_that_came_before() {
    let (_, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let writer = fs.open_to_write(ino, WRITE).await.expect("a handle").handle;
    let reader = fs.open(ino).expect("a handle").handle;
    let waits = fs.write(writer, 2, b"D", 1).expect("memory").expect("the bytes around it are not there");
    let (sender, mut answer) = oneshot::channel();
    fs.read(reader, 0, 1 << 20, move |result| drop(sender.send(result.map(<[u8]>::to_vec))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(answer.try_recv().is_err(), "it waits");
    fs.clone().finish_write(waits).await.expect("memory");
    assert_eq!(answer.await.expect("an answer").expect("bytes"), b"olD text");
}

/// A program cuts the file while the kernel writes pages of a map back.
#[tokio::test(start_paused = true)]
async fn pages_of_a_map_make_no_file_longer() {
    let (client, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let writer = fs.open_to_write(ino, WRITE).await.expect("a handle").handle;
    let waits = fs.write(writer, 2, b"D", 1).expect("memory").expect("the bytes around it are not there");
    let pages = fs.write_back(writer, 0, b"OLD TEXT", 1).expect("memory").expect("another one writes");
    let cut = tokio::spawn(fs.clone().set_size(ino, Some(writer), 3, 1));
    tokio::task::yield_now().await;
    fs.clone().finish_write(waits).await.expect("memory");
    assert_eq!(cut.await.expect("an end").expect("it is cut").size, 3);
    fs.clone().finish_write(pages).await.expect("memory");
    fs.clone().flush(writer, |_| true).await.expect("an object");
    assert_eq!(client.stored("old").0, b"OLD");
    fs.clone().set_size(ino, Some(writer), 0, 1).await.expect("it is cut");
    assert!(fs.write_back(writer, 0, b"OLD TEXT", 1).expect("no byte").is_none());
    fs.clone().flush(writer, |_| true).await.expect("an object");
    assert_eq!(client.stored("old").0, b"");
}

/// `stat` of a name that is just getting another file may still ask for the inode of the one before.
#[tokio::test(start_paused = true)]
async fn a_file_keeps_its_length_once_its_name_stands_for_another() {
    for is_removed in [false, true] {
        let (_, fs) = mount_keeping();
        let mut inodes = Vec::new();
        for (name, text) in [("file", "text"), ("next", "other text")] {
            let (entry, opened) = fs.create(ROOT, name, WRITE).await.expect("a file");
            write(&fs, opened.handle, text.as_bytes()).await;
            close(&fs, opened.handle).await;
            inodes.push(entry.attr.ino);
        }
        let place = |name| Place { parent: ROOT, name };
        if is_removed {
            fs.unlink(ROOT, "file").await.expect("it is gone");
        } else {
            fs.rename(place("next"), place("file"), false).await.expect("a save");
        }
        assert_eq!(fs.getattr(inodes[0]).map(|attr| attr.size).ok(), Some(4), "removed: {is_removed}");
    }
}

/// The kernel believes the old size until it has taken the answer to SETATTR. A READ that ends before it would show zeros.
#[tokio::test(start_paused = true)]
async fn who_fills_a_page_of_a_file_that_is_cut_waits_until_the_kernel_knows_its_size() {
    let (_, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let reader = fs.open(ino).expect("a version").handle;
    let writer = fs.open_to_write(ino, WRITE).await.expect("a draft").handle;
    let fill = |is_direct: bool| {
        let (tell, told) = tokio::sync::oneshot::channel();
        let reply = move |result: Result<&[u8], FsError>| drop(tell.send(result.expect("bytes").to_vec()));
        if is_direct {
            fs.read(reader, 0, 4096, reply);
        } else {
            fs.fill(reader, 0, 4096, reply);
        }
        told
    };
    assert_eq!(fill(false).await.expect("an answer"), b"old text");
    assert!(fs.cutting(ino, 8).is_none(), "it is as long as it was");
    let cutting = fs.cutting(ino, 3).expect("it gets shorter");
    let mut before = fill(false);
    fs.clone().set_size(ino, Some(writer), 3, 1).await.expect("a size");
    let (mut during, direct) = (fill(false), fill(true));
    assert_eq!(direct.await.expect("an answer"), b"old", "the kernel takes it as it is");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(during.try_recv().is_err(), "the kernel has no answer yet");
    drop(cutting);
    let (mut behind, ended) = (fill(false), tokio::time::Instant::now());
    tokio::task::yield_now().await;
    assert!(during.try_recv().is_err() && behind.try_recv().is_err());
    for told in [&mut before, &mut during, &mut behind] {
        assert_eq!(told.await.expect("an answer"), b"old");
    }
    let waited = ended.elapsed();
    assert!(waited > Duration::ZERO && waited < Duration::from_millis(100), "{waited:?} of the test's clock");
    assert_eq!(fill(false).await.expect("an answer"), b"old");
    fs.release(reader);
    fs.clone().flush(writer, |_| true).await.expect("an object");
    fs.release(writer);
}

/// A file whose attributes may be set stays a draft for a moment after its close. What others make of it meanwhile is
/// shown all the same: by a listing, and by a look-up where names are not believed for long.
#[tokio::test]
async fn what_others_do_right_after_a_close_is_shown() {
    for metadata_ttl in [MetadataTtl::For(Duration::from_secs(60)), MetadataTtl::Minimal] {
        let negative_metadata_ttl = metadata_ttl.duration();
        let config = FsConfig { metadata_ttl, negative_metadata_ttl, ..FsConfig::default() };
        let (client, fs) = mount_keeping_as(config);
        for name in ["deleted", "replaced"] {
            let (_, made) = fs.create(ROOT, name, WRITE).await.expect("a file");
            write(&fs, made.handle, b"here").await;
            close(&fs, made.handle).await;
        }
        client.delete("deleted");
        client.put("replaced", "by another");
        if metadata_ttl == MetadataTtl::Minimal {
            assert!(matches!(fs.lookup(ROOT, "deleted").await, Err(FsError::NotFound)));
        } else {
            let folder = fs.opendir(ROOT).expect("a folder");
            let names = fs.readdir(folder, DirOffset::START, 100).await.expect("names");
            let names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, [".", "..", "old", "replaced"]);
        }
        assert_eq!(fs.lookup(ROOT, "replaced").await.expect("a file").attr.size, 10);
    }
}

/// Who appends to a file again goes on with what is in memory. What the object has beside its bytes may have changed
/// since, by this mount or by another, and stays.
#[tokio::test(start_paused = true)]
async fn what_is_set_between_two_appends_stays() {
    for (keeps, is_other) in [(true, false), (true, true), (false, true)] {
        let (client, fs) = if keeps { mount_keeping() } else { mount() };
        let other = another_keeping(&client);
        let append_to_it = async || {
            let writer = fs.open_to_write(look_up(&fs, "log").await, APPEND).await.expect("a handle").handle;
            append(&fs, writer, b"line").await;
            close(&fs, writer).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        };
        let (_, made) = fs.create(ROOT, "log", APPEND).await.expect("a file");
        close(&fs, made.handle).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        append_to_it().await;
        let by = if is_other { &other } else { &fs };
        let change = AttrChange { mode: Some(0o751), ..AttrChange::default() };
        by.clone().set_attributes(look_up(by, "log").await, change).await.expect("it is set");
        tokio::time::sleep(Duration::from_secs(2)).await;
        append_to_it().await;
        let (bytes, beside) = client.stored("log");
        assert_eq!(bytes, b"lineline");
        assert_eq!(
            beside.metadata["mode"],
            (0o100_751).to_string(),
            "attributes {keeps}, another {is_other}"
        );
    }
}
