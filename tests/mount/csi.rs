//! The CSI driver, called as Kubernetes calls it: `csi-sanity`, which is the interface's own test suite, and the life of
//! volumes on a node.

mod ending;
mod targets;
mod upgrading;
mod words;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use s3mount_testkit::{TestS3, WatchdogGuard, run_with_timeout, watchdog};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::metrics::{http, parse};
use crate::takeover::wait_for_end;
use crate::world::{BUCKET, wait_for};

/// The test suite of the Container Storage Interface, which `.ci/setup test` installs.
const CSI_SANITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/bin/csi-sanity");

/// How long a test may take.
const LIMIT: Duration = Duration::from_secs(200);

/// Where a driver looks for STS. Nobody listens there.
const NO_STS: &str = "http://127.0.0.1:1";

pub(crate) type Texts = BTreeMap<String, String>;

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Publish {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "4")]
    pub(crate) target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) capability: Option<Capability>,
    #[prost(bool, tag = "6")]
    pub(crate) readonly: bool,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(crate) secrets: Texts,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(crate) context: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Capability {
    #[prost(message, optional, tag = "2")]
    mount: Option<Mount>,
    #[prost(message, optional, tag = "3")]
    mode: Option<Mode>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mount {
    #[prost(string, repeated, tag = "2")]
    flags: Vec<String>,
    #[prost(string, tag = "3")]
    group: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mode {
    #[prost(int32, tag = "1")]
    mode: i32,
}

/// Many nodes write.
const WRITERS: i32 = 5;

#[derive(Clone, PartialEq, Message)]
struct Unpublish {
    #[prost(string, tag = "1")]
    volume_id: String,
    #[prost(string, tag = "2")]
    target_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stats {
    #[prost(message, repeated, tag = "1")]
    pub(crate) usage: Vec<Usage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) condition: Option<Condition>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Usage {
    #[prost(int64, tag = "2")]
    total: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Condition {
    #[prost(bool, tag = "1")]
    abnormal: bool,
    #[prost(string, tag = "2")]
    message: String,
}

pub(crate) fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A node of a cluster: its driver, and its folders.
pub(crate) struct Node {
    pub(crate) driver: Child,
    pub(crate) folder: TempDir,
    runtime: Runtime,
    server: TestS3,
    flags: Vec<&'static str>,
    _leash: mpsc::Sender<()>,
    _watchdog: WatchdogGuard,
}

impl Node {
    pub(crate) fn new(server: s3mount_testkit::Builder, flags: &[&'static str]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let server = server.start().expect("a server");
        let (leash, let_go) = mpsc::channel();
        let watched = folder.path().to_owned();
        std::thread::spawn(move || {
            // Before the process is ended.
            if let_go.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                take_all_down(&watched);
            }
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (runtime, flags) = (runtime.expect("threads"), flags.to_vec());
        let driver = start(env!("CARGO_BIN_EXE_s3mount"), folder.path(), &server, &flags);
        Self { driver, folder, runtime, server, flags, _leash: leash, _watchdog: watchdog(LIMIT * 2) }
    }

    pub(crate) fn target(&self, pod: &str) -> PathBuf {
        self.folder.path().join("pods").join(pod).join("mount")
    }

    /// Kills the driver, and starts another one.
    pub(crate) fn start_anew(&mut self, program: &str) {
        self.driver.kill().expect("it lives");
        self.driver.wait().expect("its end");
        self.driver = start(program, self.folder.path(), &self.server, &self.flags);
    }

    /// Calls the driver.
    fn call<Q, A>(&self, service: &str, name: &str, request: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let socket = self.folder.path().join("csi.sock");
        let no_driver = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let path: PathAndQuery = format!("/csi.v1.{service}/{name}").parse().expect("a path");
        self.runtime.block_on(async {
            let connect = service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            });
            let channel: Channel = Endpoint::from_static("http://localhost")
                .connect_with_connector(connect)
                .await
                .map_err(no_driver)?;
            let mut grpc = Grpc::new(channel);
            grpc.ready().await.map_err(no_driver)?;
            let answer = grpc.unary(tonic::Request::new(request), path, ProstCodec::<Q, A>::default()).await;
            answer.map(tonic::Response::into_inner)
        })
    }

    /// A call that shows the volume `id`, which is the whole bucket, to a pod.
    pub(crate) fn publishing(&self, id: &str, pod: &str) -> Publish {
        self.publishing_with(id, pod, &["memory-limit=128MiB"])
    }

    /// As [`publishing`](Self::publishing), with these options of the mount.
    pub(crate) fn publishing_with(&self, id: &str, pod: &str, options: &[&str]) -> Publish {
        let flags = options.iter().map(|option| (*option).to_owned()).collect();
        Publish {
            volume_id: id.to_owned(),
            target_path: self.target(pod).display().to_string(),
            capability: Some(Capability {
                mount: Some(Mount { flags, group: String::new() }),
                mode: Some(Mode { mode: WRITERS }),
            }),
            readonly: false,
            secrets: Texts::new(),
            context: texts(&[("bucket", BUCKET)]),
        }
    }

    pub(crate) fn publish(&self, call: Publish) -> Result<(), Status> {
        self.call("Node", "NodePublishVolume", call).map(|Empty {}| ())
    }

    pub(crate) fn unpublish(&self, id: &str, pod: &str) -> Result<(), Status> {
        let target_path = self.target(pod).display().to_string();
        let call = Unpublish { volume_id: id.to_owned(), target_path };
        self.call("Node", "NodeUnpublishVolume", call).map(|Empty {}| ())
    }

    pub(crate) fn stats(&self, id: &str, pod: &str) -> Result<Stats, Status> {
        let call =
            Unpublish { volume_id: id.to_owned(), target_path: self.target(pod).display().to_string() };
        self.call("Node", "NodeGetVolumeStats", call)
    }

    /// The folders of all mounts.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.folder.path().join("state/mounts")).expect("a folder");
        all.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// Checks that nothing of any volume is left, as soon as the daemons have ended.
    pub(crate) fn check_empty(&self) {
        wait_for("the end of all mounts", || self.mounts().is_empty() && self.holders().is_empty());
    }

    /// The holders of all mounts: they name the folder where it is mounted.
    fn holders(&self) -> Vec<Pid> {
        processes_below(self.folder.path())
            .into_iter()
            .filter(|(_, parent)| *parent == 1)
            .map(|(pid, _)| Pid::from_raw(pid))
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        take_all_down(self.folder.path());
    }
}

fn start(program: &str, folder: &Path, server: &TestS3, flags: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.arg("csi").arg("--endpoint").arg(folder.join("csi.sock")).args(["--node-id", "here"]);
    command.arg("--state-dir").arg(folder.join("state")).args(flags);
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("AWS_ENDPOINT_URL", server.endpoint())
        .env("AWS_ENDPOINT_URL_STS", NO_STS);
    command
        .env("AWS_ACCESS_KEY_ID", "driver")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("AWS_REGION", "us-east-1");
    // The first process of a machine may be closed to its tests.
    command.env("S3MOUNT_CSI_FIRST", std::process::id().to_string());
    let log = File::options().create(true).append(true).open(folder.join("driver.log")).expect("a log");
    let lines = fs::read_to_string(folder.join("driver.log")).expect("a log").matches("listens").count();
    let mut driver = command.stdin(Stdio::null()).stderr(log).spawn().expect("a driver");
    let log = || fs::read_to_string(folder.join("driver.log")).expect("a log");
    wait_for("the driver", || {
        assert!(driver.try_wait().expect("a child").is_none(), "{}", log());
        log().matches("listens").count() > lines
    });
    driver
}

/// The processes that name something below `folder` among their arguments, with the numbers of their parents.
pub(crate) fn processes_below(folder: &Path) -> Vec<(i32, i32)> {
    let folder = folder.join("state/mounts").display().to_string();
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        line.contains(&folder).then_some((pid, parent))
    })
    .collect()
}

/// Takes down what was mounted below `folder`, and ends who has mounted it.
fn take_all_down(folder: &Path) {
    let folder = folder.display().to_string();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dirs =
        table.lines().rev().filter_map(|line| line.split(' ').nth(4)).filter(|dir| dir.starts_with(&folder));
    for dir in dirs {
        let _ = umount2(dir, MntFlags::MNT_DETACH);
    }
    for (pid, _) in processes_below(Path::new(&folder)) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

pub(crate) fn bucket() -> s3mount_testkit::Builder {
    TestS3::builder().object(BUCKET, "there", b"bytes".to_vec())
}

#[test]
fn the_interfaces_own_suite_passes() {
    let node = Node::new(bucket(), &[]);
    let parameters = node.folder.path().join("parameters.yaml");
    fs::write(&parameters, format!("bucket: {BUCKET}\nprefix: claims/\n")).expect("written");
    let mut command = Command::new(CSI_SANITY);
    command.arg("--csi.endpoint").arg(format!("unix://{}", node.folder.path().join("csi.sock").display()));
    command.arg("--csi.mountdir").arg(node.folder.path().join("mounted"));
    command.arg("--csi.testvolumeparameters").arg(&parameters).arg("--ginkgo.no-color");
    let output =
        run_with_timeout(&mut command, LIMIT).expect("csi-sanity in target/tools; `make test` installs it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    // It skips what the driver does not say that it has.
    assert!(said.contains("Ran 32 of") && said.contains("32 Passed"), "{said}");
    assert_eq!(node.server.keys(BUCKET), ["there"], "deleted volumes leave nothing");
}

#[test]
fn pods_share_a_mount_that_outlives_the_driver() {
    // A port that is free, and nobody else is given soon.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let mut node = Node::new(bucket(), &[format!("--metrics-listen=127.0.0.1:{port}").leak()]);
    let program = env!("CARGO_BIN_EXE_s3mount");
    std::thread::scope(|scope| {
        for pod in ["a", "b", "a"] {
            let node = &node;
            scope.spawn(move || node.publish(node.publishing("v", pod)).expect("published"));
        }
    });
    assert_eq!((node.mounts().len(), node.holders().len()), (1, 1));
    node.start_anew(program);
    node.publish(node.publishing("v", "a")).expect("again");
    for pod in ["a", "b"] {
        assert_eq!(fs::read(node.target(pod).join("there")).expect("it is mounted"), b"bytes");
    }
    let stats = node.stats("v", "a").expect("stats");
    assert!(stats.usage.len() == 2 && stats.condition.is_some_and(|condition| !condition.abnormal));
    let (_, metrics) = http(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let mount = node.mounts()[0].file_name().expect("a name").display().to_string();
    let labels = format!(r#"{{mount="{mount}",source="s3://data/",volume="v"}}"#);
    let metrics = parse(&metrics);
    assert_eq!(metrics[&format!("s3mount_csi_mount_up{labels}")], 1.0);
    assert!(metrics[&format!("s3mount_reads_total{labels}")] > 0.0);
    let other =
        Publish { context: texts(&[("bucket", BUCKET), ("prefix", "d/")]), ..node.publishing("v", "a") };
    assert_eq!(node.publish(other).expect_err("other attributes").code(), Code::AlreadyExists);
    for _ in 0..2 {
        node.unpublish("v", "a").expect("gone");
        assert!(!node.target("a").exists());
        assert_eq!(node.stats("v", "a").expect_err("it is gone").code(), Code::NotFound);
    }
    let mut file = File::create(node.target("b").join("new")).expect("the right to write new files");
    file.write_all(b"bytes").expect("written");
    drop(file);
    let holder = node.holders()[0];
    node.unpublish("v", "b").expect("gone");
    wait_for_end(holder);
    node.check_empty();
    assert_eq!(node.server.stored(BUCKET, "new").map(|stored| stored.bytes()), Some(b"bytes".to_vec()));
}

#[test]
fn pods_with_other_credentials_share_nothing() {
    let node = Node::new(bucket().credentials("secret"), &[]);
    let with = |key: &str, pod: &str| Publish {
        secrets: texts(&[("key_id", key), ("access_key", "x")]),
        readonly: true,
        ..node.publishing("v", pod)
    };
    let refused = node.publish(node.publishing("v", "driver")).expect_err("the store takes one key alone");
    assert!(refused.message().contains("s3://data/"), "{refused}");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    node.publish(with("secret", "a")).expect("the key of the Secret");
    node.publish(with("other", "b")).expect_err("another key, and no mount of another pod");
    assert_eq!(node.mounts().len(), 1);
    let keys = node.mounts()[0].join("credentials");
    assert_eq!(fs::metadata(&keys).expect("the keys").permissions().mode() & 0o777, 0o600);
    File::create(node.target("a").join("new")).expect_err("the pod's mount is read-only");
    // Kubernetes calls again when the Secret has changed.
    node.server.set_access_key("other");
    node.publish(with("other", "a")).expect("the same volume");
    wait_for("the new key", || fs::read(node.target("a").join("there")).is_ok_and(|bytes| bytes == b"bytes"));
    node.unpublish("v", "a").expect("gone");
    node.check_empty();
}

#[test]
fn a_mount_whose_holder_was_killed_is_made_anew() {
    let node = Node::new(bucket(), &[]);
    node.publish(node.publishing("v", "a")).expect("published");
    let all = processes_below(node.folder.path());
    for (pid, _) in &all {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    all.iter().for_each(|(pid, _)| wait_for_end(Pid::from_raw(*pid)));
    let stats = node.stats("v", "a").expect("stats");
    assert!(
        stats.condition.is_some_and(|condition| condition.abnormal && condition.message.contains("ended"))
    );
    node.publish(node.publishing("v", "a")).expect("mounted anew");
    assert_eq!(fs::read(node.target("a").join("there")).expect("it is mounted"), b"bytes");
    // The containers of this pod have the mount that has ended; those of another one have not.
    node.publish(node.publishing("v", "b")).expect("published");
    for (pod, is_abnormal) in [("a", true), ("b", false)] {
        let condition = node.stats("v", pod).expect("stats").condition.expect("a condition");
        assert_eq!(condition.abnormal, is_abnormal, "{pod}: {}", condition.message);
    }
    node.unpublish("v", "a").expect("gone");
    node.publish(node.publishing("v", "a")).expect("a new pod");
    assert!(node.stats("v", "a").expect("stats").condition.is_some_and(|condition| !condition.abnormal));
    node.unpublish("v", "a").expect("gone");
    node.unpublish("v", "b").expect("gone");
}
