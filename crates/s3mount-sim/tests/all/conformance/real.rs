//! Scripts on a real kernel: a mount whose requests go through this process, which records them.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use s3mount_fs::Filesystem;
use s3mount_fuse::FuseConfig;
use s3mount_sim::kernel::Call;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Requests that the model does not have, or does not record.
const UNRECORDED: &[u32] = &[2, 17, 22, 23, 26, 34, 36, 38, 39, 40, 42, 46, COPY_FILE_RANGE_64];

/// The kernel sends this once, is told that it is not known, and sends COPY_FILE_RANGE.
const COPY_FILE_RANGE_64: u32 = 53;

/// How long a script may take. Then the mount is aborted, and every call on it fails.
const LIMIT: Duration = Duration::from_secs(60);

/// Longest message: a request with the kernel's largest buffer.
const MOST_BYTES: usize = (1 << 20) + (1 << 16);

/// A mount that goes when this is dropped.
struct Mounted {
    folder: TempDir,
    _runtime: Runtime,
    _child: Killed,
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(self.folder.path(), MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
    }
}

/// Runs a script on a mount of `filesystem`. Returns the answers of its lines, and the requests.
pub(super) fn run(filesystem: impl FnOnce() -> Arc<Filesystem>, script: &[&str]) -> (Vec<String>, Vec<Call>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let filesystem = {
        let _inside = runtime.enter();
        filesystem()
    };
    let folder = TempDir::new().expect("a folder");
    let calls = Arc::new(Mutex::new(Vec::new()));
    mount_recorded(filesystem, &folder, &runtime, &calls);
    let python = Command::new("python3")
        .args(["-c", include_str!("calls.py")])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python");
    let mut mounted = Mounted { folder, _runtime: runtime, _child: Killed(python) };
    let path = mounted.folder.path().to_owned();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if is_done.recv_timeout(LIMIT).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            let _ = umount2(&path, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        }
    });
    let answers_and_calls = run_lines(&mut mounted._child.0, script, &calls);
    drop(done);
    watch.join().expect("the watch");
    answers_and_calls
}

fn run_lines(python: &mut Child, script: &[&str], calls: &Mutex<Vec<Call>>) -> (Vec<String>, Vec<Call>) {
    let (mut input, output) = (python.stdin.take().expect("a pipe"), python.stdout.take().expect("a pipe"));
    let mut output = BufReader::new(output).lines();
    let mut ask = |line: &str| {
        writeln!(input, "{line}").expect("a line");
        output.next().expect("an answer").expect("an answer")
    };
    let mut answers = Vec::new();
    for process in 1..=3 {
        ask(&format!("0 {process} fork"));
    }
    // The first process has entered the folder.
    calls.lock().expect("the calls").clear();
    for line in script {
        answers.push(ask(line));
        // What follows a call by itself, such as RELEASE, comes before the next.
        std::thread::sleep(Duration::from_millis(30));
    }
    // The pipe is open still: when the processes end, they close what they have open.
    let calls = calls.lock().expect("the calls").clone();
    (answers, calls)
}

/// Mounts, and passes messages between the kernel and the daemon.
fn mount_recorded(
    filesystem: Arc<Filesystem>,
    folder: &TempDir,
    runtime: &Runtime,
    calls: &Arc<Mutex<Vec<Call>>>,
) {
    let device = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOATIME;
    mount(Some("model"), folder.path(), Some("fuse.s3mount"), flags, Some(data.as_str())).expect("a mount");
    let (here, there) = UnixDatagram::pair().expect("sockets");
    let (from_device, to_daemon) =
        (device.try_clone().expect("a device"), here.try_clone().expect("a socket"));
    let calls = calls.clone();
    std::thread::spawn(move || {
        let (mut device, mut message) = (from_device, vec![0; MOST_BYTES]);
        // It ends with the mount.
        while let Ok(len) = device.read(&mut message) {
            if let Some(call) = call_of(&message[..len]) {
                calls.lock().expect("the calls").push(call);
            }
            if to_daemon.send(&message[..len]).is_err() {
                break;
            }
        }
        let _ = to_daemon.shutdown(std::net::Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut message = vec![0; MOST_BYTES];
        while let Ok(len) = here.recv(&mut message) {
            if len == 0 {
                break;
            }
            let message = message[..len].to_vec();
            let mut device = device.try_clone().expect("a device");
            // A notice waits in the kernel until its folder is free. Answers must not wait behind it.
            let is_notice = number(&message, 8) == 0;
            // The kernel takes no answer to a request that it has given up.
            let mut send = move || drop(device.write(&message));
            if is_notice {
                std::thread::spawn(send);
            } else {
                send();
            }
        }
    });
    let config = FuseConfig {
        fs_name: "model".to_owned(),
        read_only: false,
        no_exec: false,
        allow_other: true,
        allow_root: false,
        threads: 1,
        read_ahead_bytes: super::READAHEAD_BYTES,
        max_reads: 1024,
        passthrough_dirs: Vec::new(),
        audit: None,
        without_resend: false,
    };
    filesystem.set_readahead(super::READAHEAD_BYTES);
    let served = s3mount_fuse::serve_device(filesystem, there.into(), &config, runtime.handle());
    // Its session ends with the socket.
    std::mem::forget(served.expect("a session"));
}

fn number(message: &[u8], at: usize) -> u64 {
    message.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

fn half(message: &[u8], at: usize) -> u32 {
    message.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
}

/// The names at the end of a request.
fn texts(message: &[u8]) -> Vec<String> {
    let texts = message.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    texts.filter(|text| !text.is_empty()).collect()
}

/// A request as the model writes it down (`include/uapi/linux/fuse.h`).
fn call_of(message: &[u8]) -> Option<Call> {
    let (opcode, mut ino, pid) = (half(message, 4), number(message, 16), half(message, 32));
    if UNRECORDED.contains(&opcode) {
        return None;
    }
    let body = message.get(40..)?;
    let flags = |at| super::flags_text(half(body, at) as i32);
    let (name, what) = match opcode {
        1 => ("LOOKUP", texts(body).join("")),
        3 => ("GETATTR", String::new()),
        4 => {
            let valid = half(body, 0);
            let size = (valid & 1 << 3 != 0).then(|| number(body, 16));
            ("SETATTR", format!("{size:?}{}", if valid & 1 << 6 != 0 { " of a handle" } else { "" }))
        }
        9 => ("MKDIR", texts(&body[8..]).join("")),
        10 => ("UNLINK", texts(body).join("")),
        11 => ("RMDIR", texts(body).join("")),
        12 => ("RENAME", renamed(&body[8..], number(body, 0))),
        14 => ("OPEN", flags(0)),
        15 => ("READ", format!("{}+{}", number(body, 8), half(body, 16))),
        16 => {
            let how = if half(body, 20) & 1 != 0 { " of a map" } else { "" };
            ("WRITE", format!("{}+{} {}{how}", number(body, 8), half(body, 16), flags(32)))
        }
        18 => ("RELEASE", String::new()),
        20 => ("FSYNC", String::new()),
        25 => ("FLUSH", String::new()),
        27 => ("OPENDIR", String::new()),
        28 => ("READDIR", number(body, 8).to_string()),
        29 => ("RELEASEDIR", String::new()),
        35 => ("CREATE", format!("{} {}", texts(&body[16..]).join(""), flags(0))),
        43 => ("FALLOCATE", (number(body, 8) + number(body, 16)).to_string()),
        44 => ("READDIRPLUS", number(body, 8).to_string()),
        45 => ("RENAME2", renamed(&body[16..], number(body, 0))),
        47 => {
            ino = number(body, 16);
            let (from, to, len) = (number(body, 8), number(body, 32), number(body, 40));
            ("COPY_FILE_RANGE", format!("{from}+{len} to {to}"))
        }
        _ => ("OTHER", opcode.to_string()),
    };
    Some(Call { pid, name, ino, what, errno: None })
}

fn renamed(names: &[u8], to: u64) -> String {
    let names = texts(names);
    format!("{} to {to} {}", names[0], names[1])
}
