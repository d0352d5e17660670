//! The commands that look at a mount: what they say while readers wait, and when they can't look.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{TestS3, run_with_timeout};
use serde_json::Value;

use crate::world::{BUCKET, MIB, Unmount, World, wait_for};

/// A command that looks takes no longer than its interval and the patience with a daemon that hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn command(args: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.args(args).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

fn run(name: &str, mount: &Path, flags: &[&str]) -> Output {
    let mut args = vec![OsStr::new(name), mount.as_os_str()];
    args.extend(flags.iter().map(OsStr::new));
    run_with_timeout(&mut command(&args), LIMIT).expect("a command that ends")
}

/// What the command says when it fails.
fn refusal(name: &str, mount: &Path, flags: &[&str]) -> String {
    let output = run(name, mount, flags);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), b"".as_slice()), "{said}");
    said
}

fn stats(mount: &Path) -> Value {
    let output = run("stats", mount, &["--json", "--interval", "0.2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A mount that has everything shows all metrics. A tool that asks for another one would take it for 0.
#[test]
fn tools_read_the_metrics_that_a_mount_shows() {
    let server = TestS3::builder().bucket("near").object(BUCKET, "a", "a");
    let world = World::with(server, &["--allow=write"], |command| {
        let cache = command.get_args().nth(1).map(|dir| Path::new(dir).with_file_name("cache"));
        command.arg("--cache").arg(cache.expect("a folder")).args(["--max-cache-size", "1GiB"]);
        command.args(["--shared-cache", "s3://near/fleet"]);
    });
    let shown = fs::read_to_string(world.path(".s3mount/stats")).expect("the counters");
    let missing = |shown: &str| s3mount_tools::watch::metrics::missing(shown).expect("JSON");
    assert_eq!(missing(&shown), [""; 0]);
    assert!(missing("{}").len() > 100, "what is asked for is noted");
}

#[test]
fn stats_tell_whether_a_reader_waits_for_storage() {
    let server = TestS3::builder().synthetic(BUCKET, "data/shard.tar", 64 * MIB);
    let world = World::counting(server, &["--memory-limit", "128MiB"]);
    let dir = world.mount.path();
    let idle = stats(dir);
    assert_eq!(idle["waiting"]["verdict"], "idle", "{idle}");
    let file = world.open("data/shard.tar");
    let mut bytes = vec![0; MIB as usize];
    file.read_exact_at(&mut bytes, 0).expect("its beginning");
    // Now nothing comes: whoever reads waits all the time.
    world.server.freeze(true);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut vec![0; 4096], 60 * MIB).expect("a page"));
        wait_for("a call waits", || {
            let streams = fs::read_to_string(world.path(".s3mount/streams")).expect("the streams");
            let streams: Value = serde_json::from_str(&streams).expect("JSON");
            streams["callers"].as_array().is_some_and(|callers| {
                callers.iter().any(|caller| caller["waits"].as_f64() > Some(0.3) && caller["pid"] != 0)
            })
        });
        let stuck = stats(dir);
        let waiting = &stuck["waiting"];
        assert_eq!(waiting["verdict"], "yes", "{stuck}");
        let me = |process: &&Value| process["pid"] == std::process::id();
        let me = waiting["processes"].as_array().and_then(|all| all.iter().find(me));
        assert!(me.is_some_and(|me| me["share"].as_f64() > Some(0.9)), "{stuck}");
        assert!(waiting["calls"].as_u64() >= Some(1) && waiting["longest_seconds"].as_f64() > Some(0.3));
        assert!(waiting["reasons"].to_string().contains("in flight"), "{stuck}");
        let memory = &stuck["memory"];
        assert!(memory["in_flight_bytes"].as_u64() > Some(0), "{stuck}");
        assert!(memory["used_bytes"].as_u64() <= Some(128 * MIB), "{stuck}");
        assert_eq!(stuck["files"][0]["key"], "data/shard.tar");
        world.server.freeze(false);
        assert_eq!(reader.join().expect("a reader"), 4096);
    });
    let text = run("stats", dir, &["--interval", "0.1"]).stdout;
    let text = String::from_utf8(text).expect("text");
    for line in ["waiting for storage?", "read ", "fetched ", "in flight", "windows", "memory", "cost so far"]
    {
        assert!(text.lines().any(|shown| shown.starts_with(line)), "{line}: {text}");
    }
    let gets = world.server.stats().get_object.requests as f64;
    let dear = run("stats", dir, &["--json", "--interval", "0.1", "--price-get", "1000", "--price-put", "0"]);
    let dear: Value = serde_json::from_slice(&dear.stdout).expect("JSON");
    // Mounting itself asks for the bucket, which the test does not count.
    assert!(dear["so_far"]["dollars"].as_f64() >= Some(gets), "{dear}");
}

#[test]
fn a_listener_hears_each_call_and_each_request_while_it_listens() {
    let server =
        TestS3::builder().synthetic(BUCKET, "a \"b\"\u{7}.bin", 20 * MIB).object(BUCKET, "f", "text");
    let world = World::counting(server, &[]);
    let mut events = File::open(world.path(".s3mount/events")).expect("the events");
    fs::read(world.path("a \"b\"\u{7}.bin")).expect("its bytes");
    assert!(fs::metadata(world.path("none")).is_err());
    let (mut text, gets) = (String::new(), world.server.stats().get_object.requests);
    let mut heard: Vec<Value> = Vec::new();
    let bytes =
        |events: &[&Value]| events.iter().map(|event| event["len"].as_u64().expect("bytes")).sum::<u64>();
    // A read is told of after its reader has the bytes.
    wait_for("all GETs and reads are heard", || {
        events.read_to_string(&mut text).expect("lines");
        heard = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of = |name: &str| heard.iter().filter(|event| event["operation"] == name).collect::<Vec<_>>();
        of("get").len() as u64 == gets && bytes(&of("read")) >= 20 * MIB
    });
    let of = |name: &str| heard.iter().filter(|event| event["operation"] == name).collect::<Vec<_>>();
    for get in of("get") {
        assert_eq!((get["key"].as_str(), get["status"].as_str()), (Some("a \"b\"\u{7}.bin"), Some("ok")));
        let (first, took) = (get["first"].as_i64().expect("a time"), get["took"].as_i64().expect("a time"));
        assert!(0 < first && first <= took, "{get}");
    }
    assert_eq!(bytes(&of("get")), 20 * MIB);
    assert!(of("read").iter().all(|read| read["key"] == "a \"b\"\u{7}.bin" && read["failed"] == false));
    assert!(of("lookup").iter().any(|call| call["pid"] != 0 && call["failed"] == true), "{heard:?}");
    // There is room for seven more. Closing one makes room for another.
    let more: Vec<_> = (0..7).map(|_| File::open(world.path(".s3mount/events")).expect("room")).collect();
    let error = File::open(world.path(".s3mount/events")).expect_err("no room");
    assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EBUSY as i32));
    let said = run("stats", world.mount.path(), &["--interval", "0.1"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("not known"), "stats goes on without");
    drop((more, events));
    wait_for("they are closed", || File::open(world.path(".s3mount/events")).is_ok());
}

#[test]
fn a_control_socket_does_as_well_as_the_folder() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let socket = folder.path().join("control");
    let server = TestS3::builder().object(BUCKET, "f", "text");
    let world = World::new(server, &["--control-socket", socket.to_str().expect("UTF-8")]);
    let watched = std::thread::scope(|scope| {
        let stats = scope.spawn(|| stats(&socket));
        // Calls that come while it looks.
        let names = (0..).map(|number| format!("none-{number}"));
        names.take_while(|_| !stats.is_finished()).for_each(|name| {
            assert!(fs::metadata(world.path(&name)).is_err());
        });
        stats.join().expect("stats")
    });
    assert_ne!(watched["waiting"]["verdict"], "unknown", "{watched}");
    assert!(!watched["waiting"]["processes"].as_array().expect("processes").is_empty(), "{watched}");
    drop(world);
    let said = refusal("stats", &socket, &[]);
    assert!(said.contains("does not exist"), "{said}");
}

#[test]
fn mounts_that_cannot_be_looked_at_are_refused() {
    let server = TestS3::builder().object(BUCKET, "d/f", "text");
    let world = World::new(server, &["--allow-other"]);
    let dir = world.mount.path().display().to_string();
    for name in ["stats", "trace"] {
        let said = refusal(name, &world.path("d"), &[]);
        assert_eq!(said, format!("s3mount: {dir}/d lies in the mount at {dir}; name the mount: {dir}\n"));
        // Another user.
        fs::set_permissions(world.folder(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let mut other = command(&[OsStr::new(name), world.mount.path().as_os_str()]);
        let output = run_with_timeout(other.uid(65534).gid(65534), LIMIT).expect("an end");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.starts_with(&format!("s3mount: you may not look at {dir}: only the user")), "{said}");
    }
    // A daemon that was killed leaves its mount behind.
    let pid = Pid::from_raw(i32::try_from(world.mount.pid()).expect("a pid"));
    let _unmount = Unmount(world.mount.path());
    kill(pid, Signal::SIGKILL).expect("it is there");
    let is_dead = || fs::metadata(world.path("none")).is_err_and(|error| error.raw_os_error() == Some(107));
    wait_for("it is gone", is_dead);
    for name in ["stats", "trace"] {
        let said = refusal(name, world.mount.path(), &[]);
        let gone =
            format!("s3mount: the daemon of {dir} is gone; take the mount down with: s3mount umount {dir}\n");
        assert_eq!(said, gone);
    }
}

#[test]
fn a_path_that_is_not_utf8_is_followed_and_shown_harmlessly() {
    let world = World::new(TestS3::builder().object(BUCKET, "f", "text"), &[]);
    let link = world.folder().join(OsStr::from_bytes(b"m\xff \x1b[2J"));
    symlink(world.mount.path(), &link).expect("a link");
    assert_eq!(stats(&link)["source"], "s3://data/");
    let said = refusal("stats", &link.join("none"), &[]);
    assert!(said.contains("does not exist") && !said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn watching_ends_with_its_pipe() {
    let world = World::new(TestS3::builder().object(BUCKET, "f", "text"), &[]);
    let args = ["stats", "--json", "--watch", "--interval", "0.1"].map(OsStr::new);
    let mut watch = command(&args).arg(world.mount.path()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str::<Value>(&line).expect("JSON");
    }
    drop(lines);
    wait_for("it ends", || watch.try_wait().expect("its state").is_some());
    assert!(watch.wait().expect("its end").success());
}

/// A daemon of another version, which knows only `stats`.
fn old_daemon(path: &Path) {
    let listener = UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let mut line = String::new();
            BufReader::new(&client).read_line(&mut line).expect("a line");
            let answer = match line.as_str() {
                "stats\n" => "{\"read_bytes\": 5, \"new_thing\": [1]}".to_owned(),
                line => format!("s3mount: {line:?}: no such file or directory; write stats or metrics\n"),
            };
            client.write_all(answer.as_bytes()).expect("to be heard");
        }
    });
}

#[test]
fn a_daemon_of_another_version_is_shown_as_far_as_it_is_known() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let socket = folder.path().join("control");
    old_daemon(&socket);
    let shown = stats(&socket);
    assert_eq!(shown["so_far"]["read_bytes"], 5);
    assert_eq!(shown["waiting"]["verdict"], "unknown");
    let said = refusal("trace", &socket, &["--output", &folder.path().join("page").display().to_string()]);
    let other = "it is of another version; unmount, and mount again";
    assert!(said.contains(other), "{said}");
}

/// Runs `top` in a terminal until `wanted` is drawn, presses `keys`, and returns what was drawn.
fn top(mount: &Path, columns: u32, wanted: &str, keys: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/top.py");
    let mut python = Command::new("/usr/bin/python3");
    python.args([script, &columns.to_string(), "24", keys, wanted, env!("CARGO_BIN_EXE_s3mount"), "top"]);
    python.arg(mount).args(["--interval", "0.2"]);
    let output = run_with_timeout(&mut python, LIMIT).expect("a terminal");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(shown.starts_with("0 True\n"), "it ends well, and the terminal is as before: {shown:?} {said}");
    assert!(shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"), "{shown:?}");
    shown
}

#[test]
fn top_draws_on_a_terminal_and_leaves_it_as_it_was() {
    let server = TestS3::builder().synthetic(BUCKET, "shard-1.tar", 32 * MIB);
    let world = World::new(server, &[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(fs::metadata(world.path("none")).is_err());
                fs::read(world.path("shard-1.tar")).expect("its bytes");
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let wide = std::panic::catch_unwind(|| top(world.mount.path(), 100, "PROCESS", "q"));
        let narrow = std::panic::catch_unwind(|| top(world.mount.path(), 40, "PROCESS", "\\x03"));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let (wide, narrow) = (wide.expect("a wide terminal"), narrow.expect("a narrow one"));
        assert!(wide.contains("s3://data/") && wide.contains("storage?"), "{wide:?}");
        assert!(narrow.contains("waits?"), "{narrow:?}");
    });
    let said = refusal("top", world.mount.path(), &[]);
    assert!(said.contains("top needs a terminal; `s3mount stats --watch"), "{said}");
}

#[test]
fn top_ends_with_its_terminal() {
    const SCRIPT: &str = "
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('4H', 24, 80, 0, 0))
shown = b''
while b's3://' not in shown:
    shown += os.read(terminal, 4096)
os.close(terminal)
sys.exit(not os.WIFEXITED(os.waitpid(pid, 0)[1]))
";
    let world = World::new(TestS3::builder().object(BUCKET, "f", "text"), &[]);
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", SCRIPT, env!("CARGO_BIN_EXE_s3mount"), "top"]).arg(world.mount.path());
    assert!(run_with_timeout(&mut python, LIMIT).expect("it ends").status.success());
}

/// What the page of a trace draws.
fn drawn(page: &Path) -> Value {
    let page = fs::read_to_string(page).expect("the page");
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(data.expect("the data")).expect("JSON")
}

#[test]
fn a_trace_shows_each_request_and_who_waited() {
    let server = TestS3::builder().synthetic(BUCKET, "a/shard.tar", 40 * MIB).synthetic(BUCKET, "b.bin", MIB);
    let world = World::counting(server, &["--allow=write", "--write-part-size", "5MiB"]);
    let page = world.folder().join("trace.html");
    let mut trace = command(&["trace", "--for", "60", "-o"].map(OsStr::new));
    trace.arg(&page).arg(world.mount.path()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut trace = trace.spawn().expect("it starts");
    let mut said = BufReader::new(trace.stderr.take().expect("a pipe")).lines();
    let said = said.next().expect("a line").expect("text");
    assert_eq!(said, "s3mount: recording for 60 s; Ctrl-C ends it early");
    // It listens soon after it has said so.
    wait_for("it listens", || {
        let fds = fs::read_dir(format!("/proc/{}/fd", trace.id())).expect("its files").flatten();
        fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path.ends_with(".s3mount/events"))
    });
    world.server.reset_stats();
    fs::read(world.path("a/shard.tar")).expect("its bytes");
    world.write("c.bin", vec![1; 12 * MIB as usize]);
    world.server.freeze(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            world.server.freeze(false);
        });
        // This thread is still there when it is looked up.
        assert_eq!(fs::read(world.path("b.bin")).expect("its bytes").len(), MIB as usize);
    });
    kill(Pid::from_raw(i32::try_from(trace.id()).expect("a pid")), Signal::SIGINT).expect("it is there");
    let output = trace.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("waiting for storage?"), "{said}");
    let drawn = drawn(&page);
    let parts = drawn["parts"].as_array().expect("parts");
    let gets: Vec<_> = parts.iter().filter(|part| part["operation"] == "get").collect();
    assert_eq!(gets.len() as u64, world.server.stats().get_object.requests);
    let lists = parts.iter().filter(|part| part["operation"] == "list").count() as u64;
    assert_eq!(lists, world.server.stats().list_objects.requests);
    for get in &gets {
        let (first, took) = (get["first"].as_i64().expect("a time"), get["took"].as_i64().expect("a time"));
        assert!(0 < first && first <= took, "{get}");
    }
    let sum = |name: &str| -> f64 {
        drawn[name].as_array().expect("bins").iter().map(|bin| bin.as_f64().expect("bytes")).sum()
    };
    assert!((sum("fetched") - 41.0 * MIB as f64).abs() < MIB as f64 / 100.0, "{}", sum("fetched"));
    let seen = world.server.stats();
    for (operation, seen) in [
        ("create_upload", seen.create_multipart_upload),
        ("upload_part", seen.upload_part),
        ("complete_upload", seen.complete_multipart_upload),
    ] {
        let shown = parts.iter().filter(|part| part["operation"] == operation).count() as u64;
        assert!(shown > 0 && shown == seen.requests, "{operation}: {shown} of {}", seen.requests);
        assert_eq!(world.gauge(&format!("write_requests_{operation}_ok")), seen.requests, "{operation}");
    }
    assert!((sum("uploaded") - 12.0 * MIB as f64).abs() < MIB as f64 / 100.0, "{}", sum("uploaded"));
    // The wait for the store that did not answer is the longest.
    let longest = &drawn["waits"][0];
    assert!(longest["took"].as_i64() >= Some(250_000), "{longest}");
    let process = &drawn["processes"][longest["process"].as_u64().expect("a number") as usize];
    assert!(process.as_str().expect("a name").ends_with(&format!("({})", std::process::id())), "{process}");
    assert!(drawn["looks"].as_array().expect("looks").len() > 2);
    // A file that can't be written is found out about before the recording.
    let said = refusal("trace", world.mount.path(), &["--output", "/no/such/trace.html", "--for", "60"]);
    assert!(
        said.starts_with("s3mount: cannot write /no/such/trace.html; name a file with --output"),
        "{said}"
    );
    let said = refusal("trace", world.mount.path(), &["--output", "/tmp", "--for", "60"]);
    assert_eq!(said, "s3mount: /tmp is a folder; name a file with --output\n");
}
