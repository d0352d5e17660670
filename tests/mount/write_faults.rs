//! What goes wrong while files are written: what the writer is told, and what the bucket holds then. The table of
//! `docs/WRITING.md` says the same, row by row.

use std::fs::{self, File};
use std::io::{self, Write};
use std::thread;

use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, content};

use crate::world::{BUCKET, MIB, World, mount_tmpfs, wait_for};

const FLAGS: [&str; 6] =
    ["--allow=overwrite", "--allow=delete", "--write-part-size", "5MiB", "--read-timeout", "20"];

/// A file of one part, and one of three.
const LENGTHS: [usize; 2] = [100_000, 12 << 20];

/// What a writer is told by `close`.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// That the file is safe.
    Success,
    /// An error, for good.
    Errno(i32),
}

struct Row {
    /// What goes wrong, as the table has it.
    fault: &'static str,
    kind: FaultKind,
    /// Which requests it strikes.
    operations: &'static [Operation],
    /// How many.
    count: u32,
    told: Told,
}

fn status(status: u16, code: &str) -> FaultKind {
    FaultKind::Status(status, code.to_owned())
}

const ALL: &[Operation] = &[
    Operation::PutObject,
    Operation::CreateMultipartUpload,
    Operation::UploadPart,
    Operation::CompleteMultipartUpload,
];

/// Those that carry bytes.
const BODIES: &[Operation] = &[Operation::PutObject, Operation::UploadPart];

const COMPLETE: &[Operation] = &[Operation::CompleteMultipartUpload];

fn rows() -> Vec<Row> {
    let row = |fault, kind, operations, count, told| Row { fault, kind, operations, count, told };
    let forever = u32::MAX;
    vec![
        row("503 for a moment", status(503, "SlowDown"), ALL, 3, Told::Success),
        row("500 for a moment", status(500, "InternalError"), ALL, 2, Told::Success),
        row("the connection is reset", FaultKind::Reset, ALL, 2, Told::Success),
        row("the connection stalls", FaultKind::StallBody(120_000), &ALL[..3], 1, Told::Success),
        row("the answer is lost", FaultKind::LostAnswer, ALL, 2, Told::Success),
        row(
            "the request is carried out seconds later, without an answer",
            FaultKind::Late(1500),
            BODIES,
            1,
            Told::Success,
        ),
        row("a bit is flipped on the way", FaultKind::FlipBit, BODIES, 1, Told::Success),
        row(
            "status 200 with an error in the body",
            FaultKind::error_body("InternalError"),
            COMPLETE,
            2,
            Told::Success,
        ),
        row(
            "status 200 with an error in the body, each time",
            FaultKind::error_body("InternalError"),
            COMPLETE,
            forever,
            Told::Errno(libc::EIO),
        ),
        row("403", status(403, "AccessDenied"), ALL, forever, Told::Errno(libc::EACCES)),
        row(
            "503 for longer than `--read-timeout`",
            status(503, "SlowDown"),
            ALL,
            forever,
            Told::Errno(libc::EIO),
        ),
        row(
            "the upload is aborted by somebody else",
            status(404, "NoSuchUpload"),
            &ALL[2..],
            forever,
            Told::Errno(libc::EIO),
        ),
    ]
}

fn write(world: &World, key: &str, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(world.path(key))?;
    for piece in bytes.chunks(1 << 20) {
        file.write_all(piece)?;
    }
    nix::unistd::close(file).map_err(io::Error::from)
}

fn stored(world: &World, key: &str) -> Option<Vec<u8>> {
    world.server.stored(BUCKET, key).map(|stored| stored.bytes())
}

/// Writes a new file and replaces one, of each length, while each fault strikes. Each fault has a mount of its own:
/// a connection that one fault breaks would be a lost answer for whoever is given it next.
#[test]
fn no_writer_is_told_of_a_success_that_the_store_does_not_have() {
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/WRITING.md")).expect("the page");
    thread::scope(|scope| {
        for row in rows() {
            let told = match row.told {
                Told::Success => "nothing".to_owned(),
                Told::Errno(errno) => format!("`{:?}`", nix::errno::Errno::from_raw(errno)),
            };
            let holds = match row.told {
                Told::Success => "the file",
                Told::Errno(_) => "what was there before",
            };
            let line = format!("| {} | {told} | {holds} |", row.fault);
            assert!(docs.contains(&line), "docs/WRITING.md lacks {line}");
            scope.spawn(move || strike(&row));
        }
    });
}

/// Writes while the fault of one row strikes.
fn strike(row: &Row) {
    let world = World::counting(TestS3::builder(), &FLAGS);
    thread::scope(|scope| {
        for (operation, len, is_new) in row
            .operations
            .iter()
            .flat_map(|operation| LENGTHS.map(|len| (*operation, len)))
            .filter(|(operation, len)| (*operation == Operation::PutObject) == (*len == LENGTHS[0]))
            .flat_map(|(operation, len)| [true, false].map(|is_new| (operation, len, is_new)))
        {
            let key = format!("{operation:?}-{is_new}");
            if !is_new {
                world.server.put(BUCKET, &key, "before");
            }
            let fault = Fault { key_contains: key.clone(), ..Fault::new(row.kind.clone()) };
            world.server.fault(fault.on(operation).times(row.count));
            let (world, told, what) = (&world, row.told, row.fault);
            scope.spawn(move || {
                let bytes = content(&key, 0, len);
                let result = write(world, &key, &bytes).map_err(|error| error.raw_os_error());
                let before = (!is_new).then(|| b"before".to_vec());
                match told {
                    Told::Success => assert_eq!(result, Ok(()), "{what}: {key}"),
                    Told::Errno(errno) => assert_eq!(result, Err(Some(errno)), "{what}: {key}"),
                }
                let expected = if result.is_ok() { Some(bytes) } else { before };
                assert!(stored(world, &key) == expected, "{what}: {key}");
                // The mount shows what the bucket holds.
                wait_for("the mount shows it", || fs::read(world.path(&key)).ok() == expected);
            });
        }
    });
    world.server.clear_faults();
    wait_for("no upload is left", || {
        let left = world.server.open_uploads(BUCKET);
        // Of an upload whose beginning had its answer lost, nobody knows the name.
        left.iter().all(|upload| upload.parts.is_empty() && upload.key.contains("CreateMultipart"))
    });
}

/// A spool whose disk is full costs memory, not bytes. What can't be kept is an error.
#[test]
fn a_full_spool_is_an_error_and_no_torn_object() {
    let tmpfs = tempfile::TempDir::new().expect("a folder");
    let _unmount = mount_tmpfs(tmpfs.path(), "size=8m");
    let spool = tmpfs.path().to_str().expect("a plain path");
    let world = World::new(
        TestS3::builder(),
        &["--allow=overwrite", "--memory-limit", "64MiB", "--write-spool", spool, "--read-timeout", "10"],
    );
    // From front to back, a file needs no spool.
    let bytes = content("large", 0, 100 << 20);
    write(&world, "large", &bytes).expect("a file");
    assert!(stored(&world, "large") == Some(bytes.clone()));
    // A file that is written from back to front can't be uploaded, and does not fit.
    let file = File::create(world.path("back")).expect("a file");
    let mut result = Ok(());
    for piece in (0..100_u64).rev() {
        let at = piece << 20;
        result = std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at as usize..][..1 << 20], at + 1);
        if result.is_err() {
            break;
        }
    }
    let closed = nix::unistd::close(file).map_err(io::Error::from);
    match (&result, &closed) {
        (Ok(()), Ok(())) => assert!(stored(&world, "back").expect("an object")[1..] == bytes),
        (Err(error), Err(closed)) => {
            let errors = [error, closed].map(|error| error.raw_os_error());
            assert!(errors.iter().all(|errno| [Some(libc::ENOSPC), Some(libc::ENOMEM), Some(libc::EINVAL)].contains(errno)), "{errors:?}");
            assert_eq!(stored(&world, "back"), None);
        }
        other => panic!("{other:?}"),
    }
    world.check_memory(64 * MIB);
    wait_for("no upload is left", || world.server.open_uploads(BUCKET).is_empty());
}
