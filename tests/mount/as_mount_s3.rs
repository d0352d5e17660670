//! The program under the name of mount-s3: command lines that its pages have (`doc/CONFIGURATION.md` and `doc/LOGGING.md` of
//! version 1.24), and what programs may do in such a mount.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use s3mount_testkit::{TestS3, WatchdogGuard, run_with_timeout, watchdog};
use tempfile::TempDir;

use crate::world::{mounts, said};

const LIMIT: Duration = Duration::from_secs(100);

const BUCKET: &str = "amzn-s3-demo-bucket";

/// A bucket, a folder to mount it at, and a link to the program.
struct Place {
    folder: TempDir,
    server: TestS3,
    _watchdog: WatchdogGuard,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        fs::create_dir(folder.path().join("mnt")).expect("a mount point");
        for name in ["mount-s3", "mount.mount-s3"] {
            symlink(env!("CARGO_BIN_EXE_s3mount"), folder.path().join(name)).expect("a link");
        }
        let server = TestS3::builder().object(BUCKET, "f", "text").object(BUCKET, "my/prefix/here/f", "text");
        Self { folder, server: server.start().expect("a server"), _watchdog: watchdog(LIMIT) }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// Runs a command line. `DIR` in it is the folder to mount at, and `TEMP` another folder.
    fn run(&self, line: &str) -> Output {
        run_with_timeout(&mut self.command(line), LIMIT).expect("an end")
    }

    fn command(&self, line: &str) -> Command {
        let temp = self.folder.path().display().to_string();
        let mut words =
            line.split(' ').map(|word| word.replace("DIR", &format!("{temp}/mnt")).replace("TEMP", &temp));
        let mut command = Command::new(self.folder.path().join(words.next().expect("a program")));
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("XDG_STATE_HOME", temp);
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
        command.env("AWS_ENDPOINT_URL_S3", self.server.endpoint());
        command
    }

    /// Mounts by a command line, which says that `what` is mounted.
    fn mount(&self, line: &str, what: &str) {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(printed.trim_end(), format!("{what} is mounted at {}", self.dir().display()), "{line}");
        assert_eq!(fs::read(self.dir().join("f")).expect("a file"), b"text", "{line}");
    }

    fn unmount(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
        let output = run_with_timeout(command.arg("umount").arg(self.dir()), LIMIT).expect("an end");
        assert!(output.status.success(), "{}", said(&output));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if mounts(&self.dir()) > 0 {
            // A failed test leaves a mount.
            let _ = Command::new("umount").arg("-l").arg(self.dir()).status();
        }
    }
}

#[test]
fn command_lines_of_its_pages_mount() {
    let place = Place::new();
    let (all, part) = (format!("bucket {BUCKET}"), format!("prefix my/prefix/here/ of bucket {BUCKET}"));
    let lines = [
        ("mount-s3 amzn-s3-demo-bucket DIR", &all),
        ("mount-s3 s3://amzn-s3-demo-bucket/my/prefix/here/ DIR", &part),
        ("mount-s3 amzn-s3-demo-bucket DIR --prefix my/prefix/here/ --region us-east-1 --read-only", &part),
        ("mount-s3 amzn-s3-demo-bucket DIR --log-directory TEMP/log --debug --debug-crt", &all),
        (
            "mount-s3 amzn-s3-demo-bucket DIR --cache TEMP/cache --max-cache-size 100 --metadata-ttl indefinite",
            &all,
        ),
        (
            "mount-s3 --otlp-endpoint http://localhost:9 --otlp-export-interval 60 amzn-s3-demo-bucket DIR",
            &all,
        ),
        ("mount-s3 amzn-s3-demo-bucket DIR --memory-target 512 --max-threads 64 --part-size 8388608", &all),
        (
            "mount.mount-s3 s3://amzn-s3-demo-bucket DIR -o \
             _netdev,nosuid,nodev,nofail,rw,allow-delete,uid=7,region=us-east-1,allow-other",
            &all,
        ),
        ("mount.mount-s3 s3://amzn-s3-demo-bucket/ DIR -o rw,nofail,user-agent-prefix=foo\\,bar", &all),
        // The mountOptions of its CSI driver's examples, as that passes them on.
        (
            "mount-s3 amzn-s3-demo-bucket DIR --allow-delete --region=us-west-2 --sse=aws:kms --sse-kms-key-id=arn:aws:kms:\
             us-west-2:012345678900:key/00000000-0000-0000-0000-000000000000",
            &all,
        ),
        (
            "mount-s3 amzn-s3-demo-bucket DIR --allow-delete --region=us-west-2 --prefix=my/prefix/here/",
            &part,
        ),
        ("mount-s3 amzn-s3-demo-bucket DIR --uid=7 --gid=2000 --allow-other --metadata-ttl=3", &all),
        ("mount-s3 amzn-s3-demo-bucket DIR --allow-delete --cache-xz=s3-csi-driver--usw2-az1--x-s3", &all),
        (
            "mount-s3 amzn-s3-demo-bucket DIR --allow-root --read-only --user-agent-prefix=s3-csi-driver/2.0.0 \
             --otlp-endpoint=http://localhost:4318",
            &all,
        ),
    ];
    for (line, what) in lines {
        place.mount(line, what);
        let uid = fs::metadata(place.dir().join("f")).expect("a file").uid();
        assert_eq!(uid == 7, line.contains("uid=7"), "{line}: {uid}");
        place.unmount();
    }
}

/// The log names flags of s3mount, which this command line refuses.
#[test]
fn the_log_says_how_to_give_the_flags_that_it_names() {
    let place = Place::new();
    let line = "mount-s3 amzn-s3-demo-bucket DIR --log-directory TEMP/log";
    place.mount(line, &format!("bucket {BUCKET}"));
    symlink("f", place.dir().join("link")).expect_err("links need a flag");
    place.unmount();
    let log = fs::read_dir(place.folder.path().join("log")).expect("a folder").next().expect("a log");
    let log = fs::read_to_string(log.expect("a file").path()).expect("text");
    let told = log.find("S3MOUNT_KEEP_ATTRIBUTES=true for --keep-attributes");
    let named = log.find("links need --keep-attributes");
    assert!(told.is_some() && named.is_some() && told < named, "{log}");
    // That way works.
    let mount = run_with_timeout(place.command(line).env("S3MOUNT_KEEP_ATTRIBUTES", "true"), LIMIT);
    assert!(mount.expect("an end").status.success());
    symlink("f", place.dir().join("link")).expect("a link");
    place.unmount();
}

#[test]
fn command_lines_that_cannot_be_honoured_say_why() {
    let place = Place::new();
    let lines = [
        (
            "mount.mount-s3 s3://amzn-s3-demo-bucket/ DIR -o _netdev,nofail,invalid-argument",
            2,
            "invalid-argument",
        ),
        ("mount-s3 amzn-s3-demo-bucket DIR --bind no-such0", 2, "no network interface"),
        ("mount-s3 amzn-s3-demo-bucket DIR --ca-bundle /no/such.pem", 1, "/no/such.pem"),
        ("mount-s3 amzn-s3-demo-bucket /no/such", 1, "/no/such"),
        ("mount-s3 amzn-s3-demo-bucket", 2, "DIRECTORY"),
    ];
    for (line, code, why) in lines {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", said(&output));
        assert!(said(&output).contains(why), "{line}: {}", said(&output));
    }
    let output = place.run("mount-s3 --version");
    assert!(output.stdout.starts_with(b"mount-s3 "), "{output:?}");
    // Its message names a flag.
    let output = place.run("mount-s3 amzn-s3-demo-bucket DIR --ca-bundle /no/such.pem");
    assert!(said(&output).contains("messages name the flags of s3mount"), "{}", said(&output));
}

#[test]
fn programs_may_do_what_mount_s3_lets_them() {
    let place = Place::new();
    let all = format!("bucket {BUCKET}");
    let file = |name: &str| place.dir().join(name);
    let refused = |result: std::io::Result<()>| result.expect_err("it is not allowed").kind();
    place.mount("mount-s3 amzn-s3-demo-bucket DIR --maximum-throughput-gbps 10", &all);
    fs::write(file("new"), "written").expect("new files may be written");
    assert_eq!(refused(fs::write(file("f"), "other")), ErrorKind::PermissionDenied);
    assert_eq!(refused(fs::remove_file(file("f"))), ErrorKind::PermissionDenied);
    fs::create_dir(file("d")).and_then(|()| fs::write(file("d/x"), "x")).expect("a folder");
    assert_eq!(refused(fs::rename(file("d"), file("e"))), ErrorKind::PermissionDenied);
    place.unmount();
    assert_eq!(place.server.stored(BUCKET, "new").expect("an object").bytes(), b"written");
    place.mount("mount-s3 amzn-s3-demo-bucket DIR --allow-delete --allow-overwrite", &all);
    fs::write(file("new"), "again").expect("it may be replaced");
    fs::remove_file(file("new")).expect("it may be deleted");
    place.unmount();
    place.mount("mount-s3 amzn-s3-demo-bucket DIR --read-only --allow-delete", &all);
    assert_eq!(refused(fs::remove_file(file("f"))), ErrorKind::ReadOnlyFilesystem);
    place.unmount();
}

#[test]
fn folders_are_taken_as_mount_s3_takes_them() {
    let place = Place::new();
    let all = format!("bucket {BUCKET}");
    // The top of a disk has a folder of its file system's, and may be read by everyone.
    let disk = place.dir().with_file_name("disk");
    fs::create_dir_all(disk.join("lost+found")).expect("a folder");
    fs::write(place.dir().join("hidden"), "").expect("a file below the mount");
    place.mount(&format!("mount-s3 amzn-s3-demo-bucket DIR --cache {}", disk.display()), &all);
    assert!(!place.dir().join("hidden").exists());
    assert!(disk.join("s3mount-cache").is_dir());
    place.unmount();
    assert!(place.dir().join("hidden").exists());
}
