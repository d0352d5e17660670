//! The credentials change while a job reads.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use s3mount_testkit::{Fault, FaultKind, MountGuard, Operation, TestS3, watchdog};

use crate::world::{BUCKET, KIB, World, check_file, s3mount};

/// Writes a credentials file whose profile has this access key.
fn write_profile(path: &Path, access_key: &str) {
    let text = format!("[job]\naws_access_key_id = {access_key}\naws_secret_access_key = secret\n");
    fs::write(path, text).expect("a credentials file");
}

fn bucket() -> s3mount_testkit::Builder {
    (0..20).fold(TestS3::builder().credentials("FIRST"), |server, index| {
        server.synthetic(BUCKET, &format!("d/{index}"), 100 * KIB)
    })
}

fn read(world: &World, index: usize) {
    let key = format!("d/{index}");
    assert_eq!(check_file(&world.path(&key), &key), 100 * KIB);
}

#[test]
fn a_profile_that_is_written_anew_is_read_again() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    write_profile(file.path(), "FIRST");
    let world = World::with(bucket(), &["--profile", "job"], |command| {
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_SHARED_CREDENTIALS_FILE", file.path()).env("AWS_CONFIG_FILE", "/dev/null");
    });
    read(&world, 0);
    write_profile(file.path(), "SECOND");
    world.server.set_access_key("SECOND");
    std::thread::scope(|scope| {
        for index in 1..9 {
            let world = &world;
            scope.spawn(move || read(world, index));
        }
    });
    // Reads fail while the credentials stay wrong.
    world.server.set_access_key("THIRD");
    std::thread::sleep(Duration::from_secs(3));
    let error = fs::read(world.path("d/10")).expect_err("no credentials that are taken");
    assert_eq!(error.raw_os_error(), Some(Errno::EACCES as i32));
    write_profile(file.path(), "THIRD");
    std::thread::sleep(Duration::from_secs(3));
    read(&world, 10);
}

#[test]
fn a_token_that_has_expired_is_waited_for() {
    let world = World::with(bucket().credentials("test"), &[], |_| {});
    read(&world, 0);
    for code in ["ExpiredToken", "TokenRefreshRequired"] {
        let expired = FaultKind::Status(400, code.to_owned());
        world.server.fault(Fault::new(expired.clone()).on(Operation::GetObject).times(4));
        world.server.fault(Fault::new(expired).on(Operation::ListObjects).times(2));
    }
    for index in 1..10 {
        read(&world, index);
    }
}

/// An access key that has expired when the service hands it out.
const SHORT_LIVED: &str = "SHORT";

/// Starts a metadata service that answers as the service of ECS and as that of EC2, and returns its address.
/// The service answers with the access key that `key` holds at this time, and fails while `key` is empty.
fn metadata_service(address: &str, key: Arc<Mutex<String>>) -> SocketAddr {
    let listener = TcpListener::bind(address).expect("an address");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            // The whole request comes in the first packet.
            let mut request = [0; 4096];
            let len = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..len]);
            let body = match request.split(' ').nth(1).unwrap_or_default() {
                "/latest/api/token" => "a session".to_owned(),
                "/latest/meta-data/iam/security-credentials/" => "a-role".to_owned(),
                "/credentials" | "/latest/meta-data/iam/security-credentials/a-role" => {
                    let key = key.lock().expect("a lock").clone();
                    // If a key expires soon, the CRT asks the service again each time that it needs a key.
                    let year = if key == SHORT_LIVED { 2020 } else { 2099 };
                    if key.is_empty() {
                        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                        continue;
                    }
                    format!(
                        "{{\"Code\": \"Success\", \"AccessKeyId\": \"{key}\", \"SecretAccessKey\": \"secret\", \
                         \"Token\": \"token\", \"Expiration\": \"{year}-01-01T00:00:00Z\"}}"
                    )
                }
                path => panic!("{path} is asked for"),
            };
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    address
}

/// Takes all credentials from a command. It finds only those that are set afterwards.
fn without_credentials(command: &mut Command) -> &mut Command {
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").env("HOME", "/nonexistent");
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
}

/// Reads with credentials of the service that `configure` names, before and after the credentials change.
fn read_by_service(key: &Mutex<String>, configure: impl FnOnce(&mut Command)) {
    let world = World::with(bucket(), &[], |command: &mut Command| {
        configure(without_credentials(command));
    });
    read(&world, 0);
    "SECOND".clone_into(&mut key.lock().expect("a lock"));
    world.server.set_access_key("SECOND");
    for index in 1..10 {
        read(&world, index);
    }
}

#[test]
fn the_metadata_service_of_a_container_is_asked_again() {
    let key = Arc::new(Mutex::new("FIRST".to_owned()));
    let url = format!("http://{}/credentials", metadata_service("127.0.0.1:0", key.clone()));
    read_by_service(&key, |command| {
        command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
    });
}

#[test]
fn a_refresh_of_credentials_that_fails_is_waited_for() {
    let key = Arc::new(Mutex::new(SHORT_LIVED.to_owned()));
    let url = format!("http://{}/credentials", metadata_service("127.0.0.1:0", key.clone()));
    let world = World::with(bucket().credentials(SHORT_LIVED), &[], |command: &mut Command| {
        without_credentials(command).env("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
    });
    read(&world, 0);
    key.lock().expect("a lock").clear();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..5)
            .map(|index| {
                scope.spawn({
                    let world = &world;
                    move || read(world, index)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        assert!(!readers.iter().any(|reader| reader.is_finished()), "they wait");
        SHORT_LIVED.clone_into(&mut key.lock().expect("a lock"));
    });
    assert!(world.mount.stderr().contains("NoCredentials"), "the log tells why they waited");
}

/// Runs a test in a network of its own, where this machine has these addresses.
fn in_own_network(addresses: &[&str], test: impl FnOnce() + Send) {
    // A network belongs to a thread, and to the threads and processes that this thread starts.
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root makes a network");
        let ip = |command: &str| {
            let status = Command::new("ip").args(command.split(' ')).status().expect("ip");
            assert!(status.success(), "ip {command}");
        };
        ip("link set lo up");
        addresses.iter().for_each(|address| ip(&format!("addr add {address} dev lo")));
        test();
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("the test"));
}

#[test]
fn the_metadata_service_of_an_instance_is_asked_again() {
    // The address of this service can't be configured, so the test needs a network in which it has this
    // address.
    in_own_network(&["169.254.169.254/32"], || {
        let key = Arc::new(Mutex::new("FIRST".to_owned()));
        metadata_service("169.254.169.254:80", key.clone());
        read_by_service(&key, |command| {
            command.env_remove("AWS_EC2_METADATA_DISABLED");
        });
    });
}

/// The names that a name server was asked for.
pub(crate) type Names = Arc<Mutex<Vec<String>>>;

/// Starts a name server. It says that each name has the IPv4 address 127.0.0.1, and no IPv6 address.
fn name_server(address: &str) -> Names {
    let names = Names::default();
    let asked = names.clone();
    let socket = UdpSocket::bind((address, 53)).expect("the name server's address");
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((len, who)) = socket.recv_from(&mut packet) {
            // By RFC 1035, a question has a header of 12 bytes, a name of labels with their lengths, a type
            // and a class.
            let name = packet[12..len].iter().position(|byte| *byte == 0).expect("the name's end");
            let question = &packet[12..12 + name + 5];
            // Each label has its length before it, which is less than that of any character of a name.
            let dotted = question[1..name].iter().map(|byte| if *byte < b'-' { b'.' } else { *byte });
            let dotted = String::from_utf8(dotted.collect()).expect("a name");
            asked.lock().expect("a lock").push(dotted);
            let is_v4 = question[name + 1..name + 3] == [0, 1];
            let mut answer =
                [&packet[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0], question].concat();
            if is_v4 {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            socket.send_to(&answer, who).expect("an answer");
        }
    });
    names
}

/// Runs a test in a network of its own, where each name is that of this machine.
pub(crate) fn where_all_names_are_here(test: impl FnOnce(&Names) + Send) {
    let names = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let names = names.lines().find_map(|line| line.strip_prefix("nameserver ")).unwrap_or("127.0.0.1").trim();
    let addresses = if names.starts_with("127.") { vec![] } else { vec![names] };
    in_own_network(&addresses, || {
        test(&name_server(names));
    });
}

/// Makes STS answer a web identity with this access key, and makes S3 take only this key.
fn role(server: &TestS3, access_key: &str) {
    let credentials = format!(
        "<AccessKeyId>{access_key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>\
         <SessionToken>token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
    );
    let answer = format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>{credentials}\
         </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    );
    server.clear_faults();
    server.fault(Fault::new(FaultKind::Body(answer)).on(Operation::Other));
    server.set_access_key(access_key);
}

#[test]
fn sts_is_asked_again_for_a_web_identity() {
    // The name of STS can't be configured, either. So one server is STS and S3 here, and a name server of the
    // test's own gives its address for all names.
    where_all_names_are_here(|_| {
        let _watchdog = watchdog(Duration::from_secs(60));
        let server = bucket().tls().port(443).start().expect("a server");
        role(&server, "FIRST");
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let bundle = file("ca.pem", server.ca_pem().expect("a certificate"));
        let token = file("token", "a token of Kubernetes");
        let dir = folder.path().join("mnt");
        fs::create_dir(&dir).expect("a mount point");
        let flags = ["--foreground", "--ca-bundle", &bundle, "--region", "us-east-1"];
        let mut command = s3mount(&server.endpoint(), BUCKET, &dir, &flags);
        without_credentials(&mut command)
            .env("AWS_WEB_IDENTITY_TOKEN_FILE", token)
            .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/job");
        command.env("AWS_REGION", "us-east-1");
        let mount = MountGuard::new(&mut command, &dir).expect("a mount");
        let read = |index: usize| {
            let key = format!("d/{index}");
            assert_eq!(check_file(&mount.path().join(&key), &key), 100 * KIB);
        };
        read(0);
        role(&server, "SECOND");
        (1..10).for_each(read);
    });
}
