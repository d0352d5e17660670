//! A daemon among other people: who own what lies above its folder, connect to its socket, send it signals, or start it
//! with files open that it does not know.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{Fault, FaultKind, MountGuard, Operation, TestS3, run_with_timeout, watchdog};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{BUCKET, NOBODY, Unmount, World, mount_tmpfs, mounts, s3mount, said, wait_for};

const LIMIT: Duration = Duration::from_secs(60);

fn server() -> TestS3 {
    TestS3::builder().object(BUCKET, "d/f", "text").start().expect("a server")
}

/// The folder `x/mnt` to mount at, and the folder `victim`.
fn folders() -> (TempDir, PathBuf, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let (dir, victim) = (folder.path().join("x/mnt"), folder.path().join("victim"));
    fs::create_dir_all(&dir).expect("a mount point");
    fs::create_dir(&victim).expect("a folder");
    (folder, dir, victim)
}

/// What somebody does who owns `folder`: the path of the mount leads to the victim then. Returns where the mount is.
fn swap(folder: &Path) -> PathBuf {
    fs::rename(folder.join("x"), folder.join("y")).expect("a new name");
    fs::create_dir(folder.join("x")).expect("a folder");
    symlink(folder.join("victim"), folder.join("x/mnt")).expect("a link");
    folder.join("y/mnt")
}

fn signal(mount: &MountGuard, signal: Signal) {
    kill(Pid::from_raw(mount.pid() as i32), signal).expect("it lives");
}

#[test]
fn a_mount_is_taken_down_where_it_is_now_and_nothing_else_is() {
    let (server, (folder, dir, victim)) = (server(), folders());
    let mount = MountGuard::new(&mut s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]), &dir)
        .expect("a mount");
    let _victim = mount_tmpfs(&victim, "size=1m");
    let now = swap(folder.path());
    let _now = Unmount(&now);
    assert_eq!(fs::read(now.join("d/f")).expect("a file"), b"text");
    assert_eq!(mount.unmount().expect("an end").code(), Some(0));
    assert_eq!((mounts(&now), mounts(&victim)), (0, 1));
}

/// The kernel gives the number of a mount that is gone to the next one.
#[test]
fn a_daemon_whose_mount_was_taken_down_leaves_the_next_one_alone() {
    let (server, (_folder, dir, _)) = (server(), folders());
    let _watchdog = watchdog(3 * LIMIT);
    let _dir = Unmount(&dir);
    let mut command = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("s3mount");
    wait_for("it mounts", || fs::read(dir.join("d/f")).is_ok_and(|text| text == b"text"));
    let daemon = Pid::from_raw(child.id() as i32);
    kill(daemon, Signal::SIGSTOP).expect("a signal");
    umount2(&dir, MntFlags::MNT_DETACH).expect("it is taken down");
    let _next = mount_tmpfs(&dir, "size=1m");
    kill(daemon, Signal::SIGCONT).expect("a signal");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert_eq!(mounts(&dir), 1);
}

#[test]
fn the_folder_that_was_looked_at_gets_the_mount_and_no_other() {
    let (server, (folder, dir, victim)) = (server(), folders());
    let _watchdog = watchdog(3 * LIMIT);
    server.freeze(true);
    let mut command = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("s3mount");
    wait_for("it asks the store", || server.stats().requests() > 0);
    let now = swap(folder.path());
    let (_now, _victim) = (Unmount(&now), Unmount(&victim));
    server.freeze(false);
    wait_for("it mounts", || mounts(&now) + mounts(&victim) > 0);
    assert_eq!((mounts(&now), mounts(&victim)), (1, 0));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("a signal");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert_eq!(mounts(&now), 0);
}

#[test]
fn of_two_daemons_that_mount_at_once_one_is_refused() {
    let (server, (_folder, dir, _)) = (server(), folders());
    let _watchdog = watchdog(3 * LIMIT);
    let _dir = Unmount(&dir);
    server.freeze(true);
    let start = || {
        let mut command = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("s3mount")
    };
    let mut daemons = vec![start(), start()];
    wait_for("both ask the store", || server.stats().requests() > 1);
    server.freeze(false);
    wait_for("one gives up", || {
        daemons.iter_mut().any(|daemon| daemon.try_wait().expect("its state").is_some())
    });
    let at = daemons.iter_mut().position(|daemon| daemon.try_wait().expect("its state").is_some());
    let output = daemons.remove(at.expect("one")).wait_with_output().expect("its words");
    assert_eq!(output.status.code(), Some(1));
    // One that begins late finds the mount when it looks at the folder.
    let texts = ["another process has mounted there meanwhile", " is mounted at "];
    assert!(texts.iter().any(|text| said(&output).contains(text)), "{}", said(&output));
    wait_for("the other one mounts", || mounts(&dir) == 1);
    kill(Pid::from_raw(daemons[0].id() as i32), Signal::SIGTERM).expect("a signal");
    assert_eq!(daemons[0].wait().expect("an end").code(), Some(0));
    assert_eq!(mounts(&dir), 0);
}

#[test]
fn a_mount_over_a_daemon_that_is_stopped_is_refused() {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &[]);
    signal(&world.mount, Signal::SIGSTOP);
    let mut command = s3mount(&world.server.endpoint(), BUCKET, world.mount.path(), &["--foreground"]);
    let output = run_with_timeout(&mut command, LIMIT);
    signal(&world.mount, Signal::SIGCONT);
    let output = output.expect("an end");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("and its daemon does not answer: it is stopped"), "{}", said(&output));
}

#[test]
fn signals_that_mean_nothing_do_nothing() {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &[]);
    for one in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGPROF, Signal::SIGXFSZ] {
        signal(&world.mount, one);
    }
    assert_eq!(world.read("d/f"), b"text");
    signal(&world.mount, Signal::SIGQUIT);
    wait_for("it is taken down", || mounts(world.mount.path()) == 0);
}

#[test]
fn a_daemon_keeps_no_file_of_its_starter_open_and_may_open_many_of_its_own() {
    let (server, (folder, dir, _)) = (server(), folders());
    let _dir = Unmount(&dir);
    let log = folder.path().join("log").display().to_string();
    let plain = s3mount(&server.endpoint(), BUCKET, &dir, &["--log-directory", &log]);
    // Who reads the pipe waits until nobody has it open.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 1024; exec 9> \"$0\"; flock 9; exec \"$@\" 8>&1"]);
    command.arg(folder.path().join("lock")).arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = run_with_timeout(&mut command, LIMIT).expect("the pipe's end");
    assert!(output.status.success(), "{}", said(&output));
    File::open(folder.path().join("lock")).expect("a file").try_lock().expect("nobody has it locked");
    let daemon = fs::read_dir("/proc").expect("processes").flatten().find(|process| {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == dir.as_os_str().as_encoded_bytes())
    });
    let limits = fs::read_to_string(daemon.expect("a daemon").path().join("limits")).expect("its limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let [soft, hard] = [3, 4].map(|at| files.split_whitespace().nth(at).expect("a number").to_owned());
    assert!(soft == hard || soft == (1 << 20).to_string(), "{files}");
    let mut umount = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    let output = run_with_timeout(umount.arg("umount").arg(&dir), LIMIT).expect("an end");
    assert!(output.status.success(), "{}", said(&output));
}

/// Whether the daemon has closed a connection.
fn is_closed(mut connection: &UnixStream) -> bool {
    connection.set_nonblocking(true).expect("a mode");
    !connection.read(&mut [0; 1]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn clients_that_stay_keep_no_probe_and_no_owner_waiting() {
    let folder = TempDir::new().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let socket = folder.path().join("control");
    let flags = ["--allow-other", "--control-socket", socket.to_str().expect("UTF-8")];
    let _world = World::counting(TestS3::builder().object(BUCKET, "d/f", "text"), &flags);
    // 200 clients of another user begin to send hints. They go on for as long as this child lives.
    let clients = "import os, socket, sys, time
clients = [socket.socket(socket.AF_UNIX) for _ in range(200)]
for client in clients:
    client.connect(sys.argv[1])
    client.sendall(b'prefetch\\n')
print('ready', flush=True)
while True:
    time.sleep(1)
    for client in clients:
        try:
            client.sendall(b'\\n')
        except OSError:
            pass
";
    let mut python = Command::new("python3");
    python.args(["-c", clients]).arg(&socket).uid(NOBODY).gid(NOBODY).stdout(Stdio::piped());
    let mut strangers = python.spawn().expect("python");
    let mut ready = String::new();
    BufReader::new(strangers.stdout.take().expect("a pipe")).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    let ask = |text: &str| {
        let mut connection = UnixStream::connect(&socket).expect("it listens");
        connection.set_read_timeout(Some(LIMIT)).expect("a limit");
        connection.write_all(text.as_bytes()).expect("to be heard");
        connection
    };
    // So do as many as the owner may have himself.
    let own: Vec<_> = (0..64).map(|_| ask("prefetch\n")).collect();
    for name in ["stats\n", "metrics\n", "streams\n"] {
        let answer = io::read_to_string(ask(name)).expect("an answer");
        assert!(!answer.is_empty() && !answer.starts_with("s3mount: "), "{name}: {answer}");
    }
    assert!(!own.iter().any(is_closed), "nobody had to leave for that");
    drop(own);
    let mut hints = ask("prefetch\n");
    hints.write_all(b"d/f\n").expect("to be heard");
    wait_for("the owner's hint is heard", || {
        let stats = io::read_to_string(ask("stats\n")).expect("an answer");
        serde_json::from_str::<Value>(&stats).expect("JSON")["get_requests"] == 1
    });
    strangers.kill().expect("it lives");
    strangers.wait().expect("an end");
}

#[test]
fn a_socket_that_has_taken_the_place_of_one_s_own_stays() {
    let folder = TempDir::new().expect("a folder");
    let (path, moved) = (folder.path().join("x/control"), folder.path().join("y/control"));
    fs::create_dir(folder.path().join("x")).expect("a folder");
    let flags = ["--control-socket", path.to_str().expect("UTF-8")];
    let server = || TestS3::builder().object(BUCKET, "d/f", "text");
    let world = World::new(server(), &flags);
    // Who owns the folder has the path lead to a file of the same name elsewhere.
    fs::rename(folder.path().join("x"), folder.path().join("y")).expect("a new name");
    fs::create_dir(folder.path().join("victim")).expect("a folder");
    fs::write(folder.path().join("victim/control"), "").expect("a file");
    symlink("victim", folder.path().join("x")).expect("a link");
    assert_eq!(world.mount.unmount().expect("an end").code(), Some(0));
    assert!(path.exists() && !moved.exists());
    // Somebody has deleted the socket, and listens there.
    let path = folder.path().join("control");
    let world = World::new(server(), &["--control-socket", path.to_str().expect("UTF-8")]);
    fs::remove_file(&path).expect("a socket");
    let _next = UnixListener::bind(&path).expect("a socket");
    assert_eq!(world.mount.unmount().expect("an end").code(), Some(0));
    assert!(path.exists());
}

#[test]
fn connections_that_say_nothing_keep_no_scrape_waiting() {
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let world = World::counting(
        TestS3::builder().object(BUCKET, "d/f", "text"),
        &["--metrics-listen", &address.to_string()],
    );
    let idle: Vec<_> = (0..63).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let mut scrape = TcpStream::connect(address).expect("it listens");
    scrape.set_read_timeout(Some(LIMIT)).expect("a limit");
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("to be heard");
    assert!(io::read_to_string(scrape).expect("an answer").contains("s3mount_get_requests"));
    let is_open = |mut connection: &TcpStream| {
        connection.set_nonblocking(true).expect("a mode");
        connection.read(&mut [0; 1]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    assert!(idle.iter().all(is_open), "the answer came before these were given up");
    drop(world);
}

#[test]
fn what_each_user_does_is_shown_to_who_mounted_and_hints_are_for_the_owner_of_the_files() {
    let user = NOBODY.to_string();
    let server = TestS3::builder().object(BUCKET, "d/f", "text");
    let world = World::new(server, &["--allow-other", "--uid", &user]);
    fs::set_permissions(world.folder(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let owner = |name: &str| world.path(name).metadata().expect("a file").uid();
    let names = ["", "/streams", "/events", "/stats", "/prefetch"];
    let owners = names.map(|name| owner(&format!(".s3mount{name}")));
    assert_eq!(owners, [NOBODY, 0, 0, NOBODY, NOBODY]);
    let reads = |uid: u32, name: &str| {
        let mut cat = Command::new("cat");
        cat.arg(world.path(name)).uid(uid).gid(uid);
        run_with_timeout(&mut cat, LIMIT).expect("an end").status.success()
    };
    assert!(reads(NOBODY, ".s3mount/stats") && !reads(NOBODY, ".s3mount/streams"));
    assert!(reads(0, ".s3mount/streams"));
    assert!(!reads(NOBODY - 1, ".s3mount/stats"));
}

#[test]
fn the_first_answer_of_a_store_may_be_an_error() {
    let (server, (_folder, dir, _)) = (server(), folders());
    server.fault(
        Fault::new(FaultKind::Status(500, "InternalError".to_owned())).on(Operation::ListObjects).times(1),
    );
    let mount = MountGuard::new(&mut s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]), &dir)
        .expect("a mount");
    assert_eq!(fs::read(dir.join("d/f")).expect("a file"), b"text");
    assert_eq!(server.stats().list_objects.errors, 1);
    drop(mount);
}

#[test]
fn an_error_that_comes_again_and_again_does_not_fill_the_log() {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &[]);
    world.path("d/f").metadata().expect("a file");
    let denied = FaultKind::Status(403, "AccessDenied".to_owned());
    world.server.fault(Fault::new(denied).on(Operation::GetObject));
    for _ in 0..150 {
        fs::read(world.path("d/f")).expect_err("it is refused");
    }
    let log = world.mount.stderr();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("read failed")).collect();
    assert!((2..=6).contains(&lines.len()), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with(" (100 times so far)")), "{lines:#?}");
}

/// The same command, started by another program that then becomes it.
fn started_by(program: &str, args: &[&str], command: &Command) -> Command {
    let mut started = Command::new(program);
    started.args(args).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            started.env(name, value);
        }
    }
    started
}

#[test]
fn a_daemon_without_room_for_its_threads_says_so_and_mounts_nothing() {
    let (server, (_folder, dir, _)) = (server(), folders());
    let command = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]);
    // The stacks of a dozen threads.
    let mut limited = started_by("prlimit", &["--data=25165824"], &command);
    let output = run_with_timeout(&mut limited, LIMIT).expect("an end");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("(ulimit -d) of 24576 KiB leaves no room"), "{}", said(&output));
    assert_eq!(mounts(&dir), 0);
}

#[test]
fn a_daemon_hears_signals_that_its_starter_had_blocked() {
    const BLOCKED: &str = "import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
os.execvp(sys.argv[1], sys.argv[1:])";
    let (server, (_folder, dir, _)) = (server(), folders());
    let command = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]);
    let mount =
        MountGuard::new(&mut started_by("python3", &["-c", BLOCKED], &command), &dir).expect("a mount");
    signal(&mount, Signal::SIGTERM);
    wait_for("it unmounts", || mounts(&dir) == 0);
}
