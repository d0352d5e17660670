//! The processes that are measured: one that serves or fetches, and one that reads.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context;
use s3mount_testkit::{MountGuard, ServerProcess, cpu_seconds, switches};
use tempfile::TempDir;

use crate::cores::{self, Cores};
use crate::reader::Read;
use crate::report::Pass;
use crate::scenario::{Scenario, Store, Work};

/// The folder of the release programs. The bench lies in the folder `deps` below it.
pub(crate) fn programs() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.ancestors().nth(2).context("the bench's folder")?.to_owned())
}

/// A process of this program in another role. It takes work as one line, and answers with one line.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(args: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Self { child, stdin, stdout })
    }

    fn run(&mut self, work: &Work) -> anyhow::Result<Read> {
        writeln!(self.stdin, "{}", serde_json::to_string(work)?)?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        serde_json::from_str(&line).context("the reader failed")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mount, and the folder that it and its cache lie in.
type Mounted = (MountGuard, TempDir);

/// Mounts anew, with an empty cache if there is one.
type Mount = Box<dyn Fn() -> anyhow::Result<Mounted>>;

/// One of the things that are measured side by side.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Reads through the mount, or fetches.
    worker: Worker,
    mount: Option<Mounted>,
    /// How to mount anew before each pass, where that is wanted.
    fresh: Option<Mount>,
    /// Whether the mount has a holder, whose child the daemon is.
    is_kept: bool,
}

/// What a mount by our binary is to be.
pub(crate) struct Ours<'a> {
    pub(crate) name: &'static str,
    pub(crate) binary: &'a Path,
    pub(crate) flags: &'a str,
    /// Whether it has a disk cache, in the folder for temporary files.
    pub(crate) has_cache: bool,
    /// Whether it is mounted anew, with an empty cache, before each pass.
    pub(crate) is_fresh: bool,
    /// Whether a holder keeps it alive.
    pub(crate) is_kept: bool,
}

/// The cache of a bench holds what one pass reads, however full the disk is.
const CACHE_SIZE: &str = "6GiB";

/// Flags that mount-s3 and s3mount both have.
const FLAGS: [&str; 4] = ["--foreground", "--no-sign-request", "--region", "us-east-1"];

/// A folder to mount at.
fn mount_point() -> anyhow::Result<(TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("s3mount-bench-").tempdir()?;
    let dir = folder.path().join("mnt");
    std::fs::create_dir(&dir)?;
    Ok((folder, dir))
}

impl Target {
    pub(crate) fn raw(store: &Store, scenario: &Scenario, cores: &Cores) -> anyhow::Result<Self> {
        let limit = scenario.memory_limit.to_string();
        let ca_bundle = store.ca_bundle().map(|path| path.display().to_string());
        let args = ["role-raw", store.server.endpoint(), &limit];
        let args: Vec<&str> = args.into_iter().chain(ca_bundle.as_deref()).collect();
        let worker = cores::on(&cores.measured, || Worker::start(&args))?;
        Ok(Self { name: "raw", worker, mount: None, fresh: None, is_kept: false })
    }

    fn mounted(
        name: &'static str,
        command: &mut Command,
        at: (TempDir, PathBuf),
        cores: &Cores,
    ) -> anyhow::Result<Self> {
        let (folder, dir) = at;
        let mount = cores::on(&cores.measured, || MountGuard::new(command, &dir))?;
        let worker = cores::on(&cores.others, || Worker::start(&["role-reader"]))?;
        Ok(Self { name, worker, mount: Some((mount, folder)), fresh: None, is_kept: false })
    }

    pub(crate) fn null(scenario: &Scenario, cores: &Cores) -> anyhow::Result<Self> {
        let at = mount_point()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("role-null").arg(&at.1).arg(scenario.memory_limit.to_string());
        Self::mounted("null", &mut command, at, cores)
    }

    pub(crate) fn mount(
        ours: &Ours<'_>,
        store: &Store,
        scenario: &Scenario,
        cores: &Cores,
    ) -> anyhow::Result<Self> {
        let mut common = vec!["--endpoint-url".to_owned(), store.server.endpoint().to_owned()];
        common.extend(store.ca_bundle().map(|path| format!("--ca-bundle={}", path.display())));
        common.extend(["--memory-limit".to_owned(), scenario.memory_limit.to_string()]);
        common.extend(ours.flags.split_whitespace().map(str::to_owned));
        common.extend(ours.is_kept.then(|| "--keep-alive".to_owned()));
        let (binary, has_cache, measured) = (ours.binary.to_owned(), ours.has_cache, cores.measured);
        let mount: Mount = Box::new(move || {
            let (folder, dir) = mount_point()?;
            let mut command = Command::new(&binary);
            command.args(["mount", "bench"]).arg(&dir).args(FLAGS).args(&common);
            if has_cache {
                let cache = folder.path().join("cache");
                DirBuilder::new().mode(0o700).create(&cache)?;
                command.arg("--cache").arg(cache).args(["--max-cache-size", CACHE_SIZE]);
            }
            Ok((cores::on(&measured, || MountGuard::new(&mut command, &dir))?, folder))
        });
        let worker = cores::on(&cores.others, || Worker::start(&["role-reader"]))?;
        let fresh = ours.is_fresh;
        let (mounted, fresh) = (Some(mount()?), fresh.then_some(mount));
        Ok(Self { name: ours.name, worker, mount: mounted, fresh, is_kept: ours.is_kept })
    }

    pub(crate) fn peer(
        binary: &Path,
        store: &Store,
        scenario: &Scenario,
        cores: &Cores,
    ) -> anyhow::Result<Self> {
        let at = mount_point()?;
        let mut command = Command::new(binary);
        command.arg("bench").arg(&at.1).args(FLAGS);
        command.args(["--endpoint-url", store.server.endpoint(), "--force-path-style", "--read-only"]);
        // Its TLS has no flag for that. It looks where OpenSSL does.
        command.envs(store.ca_bundle().map(|path| ("SSL_CERT_FILE", path)));
        // mount-s3 takes no less.
        let memory = (scenario.memory_limit >> 20).max(512);
        command.args(["--memory-target", &memory.to_string()]);
        Self::mounted("peer", &mut command, at, cores)
    }

    /// The process that serves the mount, or fetches.
    fn daemon(&self) -> u32 {
        let served = |(mount, _): &Mounted| if self.is_kept { mount.held() } else { Some(mount.pid()) };
        self.mount.as_ref().and_then(served).unwrap_or_else(|| self.worker.child.id())
    }

    /// Lets the readers do their work once, and returns what it cost.
    pub(crate) fn pass(
        &mut self,
        server: &ServerProcess,
        scenario: &Scenario,
        number: u64,
    ) -> anyhow::Result<Pass> {
        if let Some(mount) = &self.fresh {
            self.mount = None;
            self.mount = Some(mount()?);
        }
        let mut work = scenario.work(number);
        if let Some((mount, _)) = &self.mount {
            work.dir = mount.path().display().to_string();
        }
        if !scenario.keep_pages {
            std::fs::write("/proc/sys/vm/drop_caches", "1")
                .context("dropping the page cache; run it as root")?;
        }
        let (daemon, reader) = (self.daemon(), self.worker.child.id());
        // This resets the peak of the resident size.
        std::fs::write(format!("/proc/{daemon}/clear_refs"), "5")?;
        server.reset_stats()?;
        let before = (cpu_seconds(daemon), cpu_seconds(reader), server.cpu_seconds());
        let switched = switches(daemon);
        let read = self.worker.run(&work)?;
        let after = (cpu_seconds(daemon), cpu_seconds(reader), server.cpu_seconds());
        let stats = server.stats()?;
        Ok(Pass {
            daemon_cpu: after.0 - before.0,
            reader_cpu: if self.mount.is_some() { after.1 - before.1 } else { 0.0 },
            server_cpu: after.2 - before.2,
            switches: switches(daemon).saturating_sub(switched),
            peak_rss: s3mount_testkit::peak_rss_bytes(daemon),
            requests: stats.requests(),
            fetched: stats.get_object.bytes,
            read,
        })
    }
}
