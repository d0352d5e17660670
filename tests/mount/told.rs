//! Changes of others, of which the store tells by a queue (`--events-from`). The store and the queue are moto's.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{MountGuard, OtherServer, WatchdogGuard, run_with_timeout, watchdog};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{BUCKET, s3mount, wait_for};

const VENV: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/venv");

/// Names are believed for so long that no test sees the end of it.
const LONG: [&str; 4] = ["--metadata-ttl", "3600", "--negative-metadata-ttl", "3600"];

/// A bucket of moto that tells of its changes in the queue `changes`.
struct Teller {
    moto: OtherServer,
    folder: TempDir,
    _watchdog: WatchdogGuard,
}

impl Teller {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let moto = OtherServer::moto(Path::new(VENV), u32::MAX, &folder.path().join("log"));
        let moto = moto.expect("moto in target/venv; `make test` installs it");
        let teller = Self { moto, folder, _watchdog: watchdog(Duration::from_secs(180)) };
        teller.ask("PUT", &format!("/{BUCKET}"), "");
        teller.sqs("CreateQueue&QueueName=changes");
        let events = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"];
        let events = events.map(|event| format!("<Event>{event}</Event>")).concat();
        teller.ask(
            "PUT",
            &format!("/{BUCKET}?notification"),
            &format!(
                "<NotificationConfiguration><QueueConfiguration><Queue>arn:aws:sqs:us-east-1:123456789012:changes</Queue>\
                 {events}</QueueConfiguration></NotificationConfiguration>"
            ),
        );
        teller
    }

    /// Sends a request, which must succeed, and returns its answer.
    fn ask(&self, method: &str, target: &str, body: &str) -> String {
        let mut stream =
            TcpStream::connect(self.moto.endpoint().trim_start_matches("http://")).expect("a connection");
        let form = if target == "/" { "Content-Type: application/x-www-form-urlencoded\r\n" } else { "" };
        // moto takes requests without a signature for those of a stranger, and the service from this header.
        let service = if target == "/" { "sqs" } else { "s3" };
        let signed = format!(
            "Authorization: AWS4-HMAC-SHA256 Credential=key/20261128/us-east-1/{service}/aws4_request\r\n"
        );
        let len = body.len();
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: moto\r\n{form}{signed}Content-Length: {len}\r\nConnection: close\r\n\r\n{body}"
        )
        .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 20"), "{method} {target}: {answer}");
        answer
    }

    fn sqs(&self, action: &str) -> String {
        self.ask("POST", "/", &format!("Version=2012-11-05&Action={action}"))
    }

    fn put(&self, key: &str, body: &str) {
        self.ask("PUT", &format!("/{BUCKET}/{key}"), body);
    }

    fn delete(&self, key: &str) {
        self.ask("DELETE", &format!("/{BUCKET}/{key}"), "");
    }

    fn queue_url(&self) -> String {
        format!("{}/123456789012/changes", self.moto.endpoint())
    }

    /// How many messages the queue has, with those that somebody has got and not deleted.
    fn messages(&self) -> u64 {
        let answer =
            self.sqs(&format!("GetQueueAttributes&AttributeName.1=All&QueueUrl={}", self.queue_url()));
        let count = |name: &str| {
            let (_, rest) = answer.split_once(&format!("<Name>{name}</Name>")).expect("a count");
            let (_, rest) = rest.split_once("<Value>").expect("a value");
            rest.split('<').next().and_then(|text| text.parse::<u64>().ok()).expect("a number")
        };
        count("ApproximateNumberOfMessages") + count("ApproximateNumberOfMessagesNotVisible")
    }

    fn command(&self, dir: &Path, flags: &[&str]) -> Command {
        let flags = [&["--foreground", "--region", "us-east-1"], flags].concat();
        let mut command = s3mount(self.moto.endpoint(), BUCKET, dir, &flags);
        command.env("AWS_ENDPOINT_URL_SQS", self.moto.endpoint());
        command
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.folder.path().join(name);
        fs::create_dir(&dir).expect("a mount point");
        dir
    }

    fn mount(&self, name: &str, flags: &[&str]) -> MountGuard {
        let dir = self.dir(name);
        MountGuard::new(&mut self.command(&dir, &[&LONG, flags].concat()), &dir).expect("a mount")
    }
}

fn names(dir: &Path) -> BTreeSet<String> {
    let name =
        |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    fs::read_dir(dir).map(|entries| entries.map(name).collect()).unwrap_or_default()
}

#[test]
fn changes_of_others_show_when_the_store_tells_of_them() {
    let teller = Teller::new();
    for key in ["a/1", "a/2", "a%20b/%C3%A9", "gone/deep/last", "x"] {
        teller.put(key, "one");
    }
    let told = teller.mount("told", &["--events-from", "sqs://changes"]);
    // Without the flag, nothing of all this shows.
    let deaf = teller.mount("deaf", &[]);
    let both = [told.path(), deaf.path()];
    let look = |dir: &Path| {
        let read = |name: &str| fs::read_to_string(dir.join(name)).map_err(|error| error.kind());
        let files = ["a/1", "a/2", "a b/é", "a/new", "new/deep/file", "gone/deep/last", "x", "x/y"].map(read);
        let folders = ["gone", "gone/deep", "new"].map(|name| dir.join(name).is_dir());
        (files, folders)
    };
    let before = both.map(look);
    assert_eq!(before[0], before[1]);
    wait_for("the objects that were there before are told of", || teller.messages() == 0);
    let feed = File::open(told.path().join(".s3mount/changes")).expect("the feed");
    assert!(File::open(deaf.path().join(".s3mount/changes")).is_err());

    let absent = || Err(io::ErrorKind::NotFound);
    let text = |text: &str| Ok(text.to_owned());
    teller.put("a/1", "two two");
    teller.delete("a/2");
    teller.put("a%20b/%C3%A9", "three");
    teller.put("a/new", "new");
    teller.put("new/deep/file", "deep");
    teller.delete("gone/deep/last");
    teller.put("x/y", "below");
    let after = [
        text("two two"),
        absent(),
        text("three"),
        text("new"),
        text("deep"),
        absent(),
        Err(io::ErrorKind::IsADirectory),
        text("below"),
    ];
    wait_for("the mount shows all of it", || look(told.path()) == (after.clone(), [false, false, true]));
    assert_eq!(look(deaf.path()), before[1], "it believes what it knows");
    let expected = ["a", "a b", "new", "x"].map(str::to_owned);
    assert_eq!(names(told.path()), expected.into());
    assert_eq!(names(&told.path().join("a")), ["1", "new"].map(str::to_owned).into());

    let mut lines = String::new();
    let mut keys = || {
        let mut piece = [0; 1 << 16];
        let len = std::os::unix::fs::FileExt::read_at(&feed, &mut piece, 0).expect("a read");
        lines.push_str(std::str::from_utf8(&piece[..len]).expect("text"));
        let line = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
        let lines: Vec<_> = lines.lines().map(line).collect();
        let of = |change: &str| -> BTreeSet<String> {
            let lines = lines.iter().filter(|line| line["change"] == change);
            lines.map(|line| line["key"].as_str().expect("a key").to_owned()).collect()
        };
        (of("written"), of("gone"))
    };
    let written: BTreeSet<String> =
        ["a/1", "a b/é", "a/new", "new/deep/file", "x/y"].map(str::to_owned).into();
    let gone: BTreeSet<String> = ["a/2", "gone/deep/last"].map(str::to_owned).into();
    wait_for("programs hear of it", || keys() == (written.clone(), gone.clone()));
    wait_for("the queue is empty", || teller.messages() == 0);
}

#[test]
fn what_is_no_change_of_the_bucket_stays_in_the_queue() {
    let teller = Teller::new();
    let send = |body: &str| {
        teller.sqs(&format!("SendMessage&QueueUrl={}&MessageBody={body}", teller.queue_url()));
    };
    send("hello");
    // An object of another bucket.
    let record = r#"{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"other"},"object":{"key":"k"}}}]}"#;
    send(&record.replace('"', "%22").replace(':', "%3A"));
    teller.put("k", "one");
    // A queue that is named by its URL needs no other endpoint.
    let mount = teller.mount("mnt", &["--events-from", &teller.queue_url()]);
    assert_eq!(fs::read_to_string(mount.path().join("k")).expect("a file"), "one");
    teller.put("k", "two two");
    wait_for("the change", || fs::read_to_string(mount.path().join("k")).is_ok_and(|text| text == "two two"));
    wait_for("only these stay", || teller.messages() == 2);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(teller.messages(), 2);
}

#[test]
fn a_daemon_that_goes_on_hears_what_the_one_before_has_not() {
    let teller = Teller::new();
    teller.put("f", "one");
    let mount = teller.mount("mnt", &["--events-from", "sqs://changes", "--keep-alive"]);
    let path = mount.path().join("f");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "one");
    let stats = || {
        let text = fs::read_to_string(mount.path().join(".s3mount/stats")).expect("the metrics");
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let daemon = mount.held().and_then(|pid| i32::try_from(pid).ok()).expect("a daemon");
    kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("it lives");
    teller.put("f", "two two");
    // Only the daemon that was killed has given the kernel this name.
    wait_for("its length", || fs::metadata(&path).is_ok_and(|metadata| metadata.len() == 7));
    assert_eq!(fs::read_to_string(&path).expect("a file"), "two two");
    wait_for("its message", || stats()["queue_messages"].as_u64().is_some_and(|messages| messages > 0));
}

#[test]
fn a_queue_that_cannot_be_read_is_told_before_the_mount() {
    let teller = Teller::new();
    let dir = teller.dir("mnt");
    let error = MountGuard::new(&mut teller.command(&dir, &["--events-from", "sqs://missing"]), &dir);
    let error = error.expect_err("no queue").to_string();
    assert!(error.contains("sqs://missing") && error.contains("NonExistentQueue"), "{error}");
}

#[test]
fn the_doctor_looks_at_the_queue() {
    let teller = Teller::new();
    let found = |queue: &str| {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_s3mount"));
        doctor.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        doctor.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
        doctor.env("AWS_ENDPOINT_URL_SQS", teller.moto.endpoint()).args([
            "doctor",
            BUCKET,
            "--region",
            "us-east-1",
        ]);
        doctor.args(["--endpoint-url", teller.moto.endpoint(), "--events-from", queue]);
        let output = run_with_timeout(&mut doctor, Duration::from_secs(60)).expect("an end");
        let said = String::from_utf8(output.stdout).expect("text");
        let line = said.lines().find(|line| line.contains("  queue  ")).expect("a line").to_owned();
        (output.status.success(), line)
    };
    let (_, line) = found("sqs://changes");
    assert!(line.starts_with("ok ") && line.ends_with("sqs://changes can be read"), "{line}");
    let (is_ok, line) = found("sqs://missing");
    assert!(!is_ok && line.starts_with("fail") && line.contains("NonExistentQueue"), "{line}");
}
