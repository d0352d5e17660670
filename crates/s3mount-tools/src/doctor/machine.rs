//! Checks of the machine: the kernel, FUSE, limits and memory.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};
use s3mount_settings::flags::mount::MountArgs;
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::journal::log_directory;
use s3mount_settings::resolved::memory;
use s3mount_settings::resolved::store::{ca_bundle, check_bundle};
use s3mount_system::mountable::{check_allowed, check_device};
use s3mount_system::open_files;

use super::finding::Finding;

/// The kernel of RHEL 8, the oldest system that s3mount is made for.
const OLDEST: (u32, u32) = (4, 18);

/// The first kernel in which the kernel reads cached files by itself.
const PASSTHROUGH: (u32, u32) = (6, 9);

/// The first kernel that sends requests to another daemon again.
const RESEND: (u32, u32) = (6, 9);

/// The first kernel with FUSE over io_uring.
const IO_URING: (u32, u32) = (6, 14);

/// The pid namespace of the machine, whose number is the same on each Linux.
const PIDS_OF_MACHINE: &str = "pid:[4026531836]";

/// What a larger readahead brings (docs/PERFORMANCE.md).
const REMEDY_OF_READ_AHEAD: &str =
    "mount as root for 1 MiB: buffered reads are half as fast again, mapped ones four times as fast";

/// A machine: this one, or a folder of a test that looks like one.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) root: PathBuf,
    pub(crate) is_root: bool,
    /// The folders in which programs are looked for.
    pub(crate) path: OsString,
    /// The soft and the hard limit on open files.
    pub(crate) open_files: (u64, u64),
    /// The memory that the machine and its control groups allow, in bytes.
    pub(crate) memory_bytes: u64,
    /// The memory that is free or can be freed, in bytes.
    pub(crate) available_bytes: u64,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        Self {
            root: PathBuf::from("/"),
            is_root: nix::unistd::geteuid().is_root(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            open_files: getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX)),
            memory_bytes: memory::bound(),
            available_bytes: s3mount_memory::page_cache_bytes(std::process::id()),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> Option<String> {
        Some(std::fs::read_to_string(self.at(path)).ok()?.trim().to_owned())
    }
}

/// All checks of the machine.
pub(crate) fn check(machine: &Machine, args: &MountArgs) -> Vec<Finding> {
    let mut findings = vec![
        kernel(machine, !args.cache.is_empty()),
        keep_alive(machine, args.keep_alive),
        device(machine),
        fusermount(machine),
        allow_other(machine, args),
        files(machine, args.max_connections),
        room(machine, args),
        read_ahead(machine),
        log(machine, args),
    ];
    findings.extend(pid_namespace(machine, args));
    findings.extend(ca_bundle(&args.access).map(|(path, from)| bundle(&path, &from)));
    if !args.cache.is_empty() {
        findings.extend(io_limits(machine));
    }
    findings
}

/// The version of a kernel: `6.18.5-cloud` is 6.18.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(machine: &Machine, has_cache: bool) -> Finding {
    const NAME: &str = "kernel";
    let release = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let Some(version) = version(&release) else {
        return Finding::warn(NAME, "its version is not known", "");
    };
    if version < OLDEST {
        return Finding::warn(
            NAME,
            format!(
                "Linux {release} is older than {}.{}, so nobody has tried s3mount on it",
                OLDEST.0, OLDEST.1
            ),
            "run it on a newer one",
        );
    }
    let passthrough = match (version >= PASSTHROUGH, machine.is_root) {
        (true, true) => "passthrough: cached files are read without the daemon",
        (true, false) => "passthrough only where root mounts",
        (false, _) => "no passthrough, which takes 6.9",
    };
    let is_on = machine.read("/sys/module/fuse/parameters/enable_uring").is_some_and(|text| text == "Y");
    let io_uring = match (version >= IO_URING, is_on) {
        (true, true) => "FUSE over io_uring, which s3mount does not use",
        (true, false) => "FUSE over io_uring is off, and not used",
        (false, _) => "no FUSE over io_uring, which is not used",
    };
    let said = format!("Linux {release}: {passthrough}; {io_uring}");
    if has_cache && version < PASSTHROUGH {
        return Finding::warn(
            NAME,
            said,
            "with Linux 6.9, files in --cache are read at the disk's own speed",
        );
    }
    Finding::ok(NAME, said)
}

/// Whether another daemon can take a mount over. It is no fault of a machine that it can't, unless it is asked to.
fn keep_alive(machine: &Machine, is_wanted: bool) -> Finding {
    const NAME: &str = "keep-alive";
    let release = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_new = version(&release).is_some_and(|version| version >= RESEND);
    if !machine.is_root {
        let said = "a mount outlives its daemon only where root mounts";
        return if is_wanted {
            Finding::fail(NAME, said, "leave out --keep-alive")
        } else {
            Finding::ok(NAME, said)
        };
    }
    if is_new {
        return Finding::ok(NAME, "with --keep-alive, a mount goes on when its daemon is killed");
    }
    let said = "the kernel is older than Linux 6.9: with --keep-alive, a mount goes on after `s3mount upgrade`, and not \
                when its daemon is killed";
    if is_wanted { Finding::warn(NAME, said, "run it on a newer one") } else { Finding::ok(NAME, said) }
}

fn device(machine: &Machine) -> Finding {
    match check_device(&machine.at("/dev/fuse")) {
        Ok(()) => Finding::ok("/dev/fuse", "it can be opened"),
        Err(error) => Finding::fail("/dev/fuse", format!("{error:#}"), ""),
    }
}

fn fusermount(machine: &Machine) -> Finding {
    const NAME: &str = "fusermount3";
    let found = std::env::split_paths(&machine.path).map(|dir| dir.join(NAME)).find(|path| path.is_file());
    let Some(path) = found else {
        return match machine.is_root {
            true => Finding::ok(NAME, "it is not installed, and root needs none"),
            false => Finding::fail(
                NAME,
                "it is not installed, and only root can mount without it",
                "apt-get install fuse3, dnf install fuse3, or mount as root",
            ),
        };
    };
    let is_set_uid = std::fs::metadata(&path)
        .is_ok_and(|metadata| metadata.permissions().mode() & 0o4000 != 0 && metadata.uid() == 0);
    let shown = path.display();
    if !machine.is_root && !is_set_uid {
        return Finding::fail(
            NAME,
            format!("{shown} does not run as root, so it can't mount"),
            format!("ask root for: chown root {shown} && chmod u+s {shown}"),
        );
    }
    Finding::ok(NAME, shown.to_string())
}

fn allow_other(machine: &Machine, args: &MountArgs) -> Finding {
    const NAME: &str = "user_allow_other";
    let conf = machine.read("/etc/fuse.conf").unwrap_or_default();
    if machine.is_root {
        return Finding::ok(NAME, "root needs none");
    }
    match check_allowed(args.allow_other, args.allow_root, &conf) {
        Err(error) => Finding::fail(NAME, format!("{error:#}"), ""),
        Ok(()) if check_allowed(true, false, &conf).is_ok() => Finding::ok(NAME, "/etc/fuse.conf has it"),
        Ok(()) => Finding::ok(
            NAME,
            "/etc/fuse.conf does not have it: only you can use your mounts, without --allow-other",
        ),
    }
}

fn files(machine: &Machine, connections: u32) -> Finding {
    let (soft, hard) = machine.open_files;
    let (_, fitting) = open_files::plan(soft, hard, connections);
    let said = format!("{hard} at most, for {fitting} of {connections} connections");
    if fitting < connections {
        return Finding::warn("open files", said, "raise it: ulimit -Hn 4096, or LimitNOFILE= of the unit");
    }
    Finding::ok("open files", said)
}

fn room(machine: &Machine, args: &MountArgs) -> Finding {
    const NAME: &str = "memory";
    let Ok(limit) = memory::limit(args.memory_limit) else {
        return Finding::fail(NAME, "--memory-limit can't be used", "see settings");
    };
    let needed = memory::needed(limit, args.metadata_limit.map(|size| size.0));
    let shown = |bytes: u64| Size(bytes >> 20 << 20).to_string();
    let said =
        format!("{} for data, {} in all, of {}", shown(limit), shown(needed), shown(machine.memory_bytes));
    if needed > machine.memory_bytes {
        let fits = machine.memory_bytes.saturating_sub(needed - limit) >> 20 << 20;
        return Finding::fail(
            NAME,
            format!("{said}, which the machine or the cgroup allows: the kernel would kill the daemon"),
            format!("--memory-limit {} or less, or more memory for the container", shown(fits.max(64 << 20))),
        );
    }
    if needed > machine.available_bytes {
        return Finding::warn(
            NAME,
            format!("{said}, and only {} are free now", shown(machine.available_bytes)),
            "a lower --memory-limit leaves more to the loaders",
        );
    }
    Finding::ok(NAME, said)
}

fn read_ahead(machine: &Machine) -> Finding {
    const NAME: &str = "read-ahead";
    if !machine.is_root {
        return Finding::warn(
            NAME,
            "only root can raise it on a mount: it stays at 128 KiB",
            REMEDY_OF_READ_AHEAD,
        );
    }
    let is_writable = machine.at("/sys/class/bdi").is_dir() && !is_read_only(machine, "/sys");
    if !is_writable {
        return Finding::warn(
            NAME,
            "/sys can't be written to, so it stays at 128 KiB",
            "a container needs a writable /sys: --privileged, or mount on the host",
        );
    }
    Finding::ok(NAME, "it is raised on the mounts of s3mount")
}

/// Whether the mount at `dir` is read-only, as `/sys` mostly is in containers.
fn is_read_only(machine: &Machine, dir: &str) -> bool {
    let mounts = machine.read("/proc/self/mounts").unwrap_or_default();
    let options = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next() == Some(dir)).then(|| fields.nth(1).unwrap_or_default().to_owned())
    });
    options.is_some_and(|options| options.split(',').any(|option| option == "ro"))
}

fn log(machine: &Machine, args: &MountArgs) -> Finding {
    let has_one = args.foreground || args.log_directory.is_some();
    if has_one || machine.at("/dev/log").exists() {
        return Finding::ok("log", if has_one { "it goes where the flags say" } else { "it goes to syslog" });
    }
    match log_directory() {
        Ok(directory) => Finding::ok(
            "log",
            format!("there is no syslog here, so it goes to files in {}", directory.display()),
        ),
        Err(_) => Finding::warn(
            "log",
            "there is no syslog here and no home folder, so nothing is logged",
            "--log-directory DIR keeps a log",
        ),
    }
}

/// Whether the daemon will see the programs that use the mount.
fn pid_namespace(machine: &Machine, args: &MountArgs) -> Option<Finding> {
    const NAME: &str = "pid namespace";
    let own = std::fs::read_link(machine.at("/proc/self/ns/pid")).ok()?;
    if own == Path::new(PIDS_OF_MACHINE) {
        return Some(Finding::ok(NAME, "that of the machine"));
    }
    if !args.allow_other {
        return Some(Finding::ok(NAME, "its own, and without --allow-other nobody else uses the mount"));
    }
    Some(Finding::warn(
        NAME,
        "its own: programs of other containers that are killed while they wait end when the store answers",
        "start it in that of the machine (hostPID: true, --pid=host), or of the pod (shareProcessNamespace: true)",
    ))
}

fn bundle(path: &Path, from: &str) -> Finding {
    match check_bundle(path) {
        Ok(()) => Finding::ok("CA bundle", format!("{}, by {from}", path.display())),
        Err(error) => Finding::fail("CA bundle", format!("{error:#}"), ""),
    }
}

/// The limits on I/O of the control groups that this process is in.
fn io_limits(machine: &Machine) -> Option<Finding> {
    let groups = machine.read("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    let limits: Vec<_> = Path::new(&own)
        .ancestors()
        .filter_map(|group| machine.read(&format!("/sys/fs/cgroup/{}/io.max", group.display())))
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    Some(match limits.is_empty() {
        true => Finding::ok("I/O limits", "none in the cgroup"),
        false => Finding::warn(
            "I/O limits",
            format!("the cgroup has {}", limits.join(", ")),
            "the disk cache is no faster than that; raise io.max of the cgroup",
        ),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::DoctorArgs;
    use super::super::finding::CheckStatus;
    use super::{Finding, Machine, check, version};

    const GIB: u64 = 1 << 30;

    /// A machine on which all is well, with these files besides.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().expect("a folder");
        let well = [
            ("proc/sys/kernel/osrelease", "6.18.5-cloud\n"),
            ("dev/fuse", ""),
            ("dev/log", ""),
            ("sys/class/bdi/x", ""),
        ];
        for (path, text) in well.iter().chain(files) {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let root = folder.path().to_owned();
        let machine = Machine {
            path: root.join("bin").into(),
            root,
            is_root: true,
            open_files: (1024, 1 << 20),
            memory_bytes: 16 * GIB,
            available_bytes: 12 * GIB,
        };
        (folder, machine)
    }

    fn found(machine: &Machine, flags: &[&str]) -> Vec<Finding> {
        let args = DoctorArgs::try_parse_from(["doctor", "b", "/d"].iter().chain(flags)).expect("flags");
        check(machine, &args.mount)
    }

    fn check_one(machine: &Machine, flags: &[&str], name: &str, state: CheckStatus, said: &str) {
        let findings = found(machine, flags);
        let finding = findings.iter().find(|finding| finding.name == name).expect("a finding");
        assert!(finding.state == state && finding.line().contains(said), "{finding:?}");
        let others = findings.iter().filter(|finding| finding.name != name);
        let bad: Vec<_> = others.filter(|finding| finding.state == CheckStatus::Fail).collect();
        assert!(bad.is_empty(), "{bad:?}");
    }

    #[test]
    fn a_machine_where_all_is_well() {
        let (_folder, machine) = machine(&[("proc/self/cgroup", "0::/job\n")]);
        let findings = found(&machine, &["--cache", "/c"]);
        assert!(findings.iter().all(|finding| finding.state == CheckStatus::Ok), "{findings:?}");
        assert_eq!(version("5.15.0-1051-aws"), Some((5, 15)));
        assert_eq!(version("banana"), None);
    }

    #[test]
    fn a_container_with_processes_of_its_own() {
        let (folder, machine) = machine(&[]);
        let link = folder.path().join("proc/self/ns/pid");
        std::fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        std::os::unix::fs::symlink("pid:[4026532701]", &link).expect("a link");
        check_one(&machine, &["--allow-other"], "pid namespace", CheckStatus::Warn, "hostPID: true");
        check_one(&machine, &[], "pid namespace", CheckStatus::Ok, "without --allow-other");
        std::fs::remove_file(&link).expect("a link");
        std::os::unix::fs::symlink(super::PIDS_OF_MACHINE, &link).expect("a link");
        check_one(&machine, &["--allow-other"], "pid namespace", CheckStatus::Ok, "that of the machine");
    }

    #[test]
    fn an_old_kernel() {
        let old = |release| [("proc/sys/kernel/osrelease", release)];
        let (_folder, ancient) = machine(&old("3.10.0-1160.el7"));
        check_one(&ancient, &[], "kernel", CheckStatus::Warn, "is older than 4.18");
        let (_folder, older) = machine(&old("5.15.0"));
        check_one(&older, &[], "kernel", CheckStatus::Ok, "no passthrough");
        check_one(&older, &["--cache", "/c"], "kernel", CheckStatus::Warn, "with Linux 6.9");
        check_one(&older, &[], "keep-alive", CheckStatus::Ok, "goes on after `s3mount upgrade`");
        check_one(
            &older,
            &["--keep-alive"],
            "keep-alive",
            CheckStatus::Warn,
            "not when its daemon is killed",
        );
    }

    #[test]
    fn a_container_without_a_fuse_device() {
        let (folder, machine) = machine(&[]);
        std::fs::remove_file(folder.path().join("dev/fuse")).expect("a file");
        check_one(&machine, &[], "/dev/fuse", CheckStatus::Fail, "--device /dev/fuse --cap-add SYS_ADMIN");
    }

    #[test]
    fn a_user_without_fusermount() {
        let (_folder, mut user) = machine(&[]);
        user.is_root = false;
        check_one(&user, &[], "fusermount3", CheckStatus::Fail, "apt-get install fuse3");
        let (_folder, mut user) = machine(&[("bin/fusermount3", "")]);
        user.is_root = false;
        check_one(&user, &[], "fusermount3", CheckStatus::Fail, "chmod u+s");
    }

    #[test]
    fn others_who_are_not_let_in() {
        let (folder, mut user) = machine(&[("etc/fuse.conf", "# user_allow_other\n")]);
        user.is_root = false;
        let findings = found(&user, &["--allow-other"]);
        let finding = findings.iter().find(|finding| finding.name == "user_allow_other").expect("a finding");
        assert!(finding.state == CheckStatus::Fail && finding.said.contains("/etc/fuse.conf"), "{finding:?}");
        std::fs::write(folder.path().join("etc/fuse.conf"), "user_allow_other\n").expect("a file");
        let findings = found(&user, &["--allow-other"]);
        assert!(findings.iter().any(|finding| finding.said == "/etc/fuse.conf has it"), "{findings:?}");
    }

    #[test]
    fn limits_that_are_too_low() {
        let (_folder, mut tight) =
            machine(&[("proc/self/cgroup", "0::/a/b\n"), ("sys/fs/cgroup/a/io.max", "8:0 rbps=1000\n")]);
        tight.open_files = (256, 600);
        check_one(&tight, &[], "open files", CheckStatus::Warn, "for 344 of 512 connections");
        check_one(&tight, &["--cache", "/c"], "I/O limits", CheckStatus::Warn, "8:0 rbps=1000");
        tight.memory_bytes = GIB;
        check_one(
            &tight,
            &["--memory-limit", "2GiB"],
            "memory",
            CheckStatus::Fail,
            "--memory-limit 800MiB or less",
        );
        tight.memory_bytes = 16 * GIB;
        tight.available_bytes = GIB;
        check_one(&tight, &["--memory-limit", "2GiB"], "memory", CheckStatus::Warn, "only 1GiB are free now");
    }

    #[test]
    fn read_ahead_that_cannot_be_raised_and_logs_that_go_nowhere() {
        let (folder, mut machine) = machine(&[("proc/self/mounts", "sysfs /sys sysfs ro,nosuid 0 0\n")]);
        check_one(&machine, &[], "read-ahead", CheckStatus::Warn, "a writable /sys");
        machine.is_root = false;
        let findings = found(&machine, &[]);
        assert!(
            findings.iter().any(|finding| finding.said.starts_with("only root can raise it")),
            "{findings:?}"
        );
        machine.is_root = true;
        std::fs::remove_file(folder.path().join("dev/log")).expect("a file");
        check_one(&machine, &[], "log", CheckStatus::Ok, "it goes to files in ");
        check_one(&machine, &["--foreground"], "log", CheckStatus::Ok, "");
        check_one(
            &machine,
            &["--ca-bundle", "/no/such.pem"],
            "CA bundle",
            CheckStatus::Fail,
            "give a readable PEM file",
        );
    }
}
