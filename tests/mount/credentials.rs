//! Credentials that change while a job reads.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use s3mount_testkit::{Fault, FaultKind, Operation, TestS3};

use crate::world::{BUCKET, KIB, World, check_file};

/// Keys of a profile that the server takes, or takes no more.
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
    // What stays wrong is told.
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

/// A metadata service of ECS's kind and of EC2's, which answers with the key that is set just now.
/// Returns where it listens.
fn metadata_service(address: &str, key: Arc<Mutex<String>>) -> SocketAddr {
    let listener = TcpListener::bind(address).expect("an address");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            // The request is in the first packet.
            let mut request = [0; 4096];
            let len = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..len]);
            let body = match request.split(' ').nth(1).unwrap_or_default() {
                "/latest/api/token" => "a session".to_owned(),
                "/latest/meta-data/iam/security-credentials/" => "a-role".to_owned(),
                "/credentials" | "/latest/meta-data/iam/security-credentials/a-role" => {
                    let key = key.lock().expect("a lock").clone();
                    format!(
                        "{{\"Code\": \"Success\", \"AccessKeyId\": \"{key}\", \"SecretAccessKey\": \"secret\", \
                         \"Token\": \"token\", \"Expiration\": \"2099-01-01T00:00:00Z\"}}"
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

/// Reads with credentials of the service that `configure` names, before and after they change.
fn read_by_service(key: &Mutex<String>, configure: impl FnOnce(&mut Command)) {
    let world = World::with(bucket(), &[], |command: &mut Command| {
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
        configure(command.env("HOME", "/nonexistent"));
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
fn the_metadata_service_of_an_instance_is_asked_again() {
    // Its address can't be configured, so this thread and what it starts have a network of their own.
    let test = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("root makes a network");
        for command in ["addr add 169.254.169.254/32 dev lo", "link set lo up"] {
            let ip = Command::new("ip").args(command.split(' ')).status().expect("ip");
            assert!(ip.success(), "ip {command}");
        }
        let key = Arc::new(Mutex::new("FIRST".to_owned()));
        metadata_service("169.254.169.254:80", key.clone());
        read_by_service(&key, |command| {
            command.env_remove("AWS_EC2_METADATA_DISABLED");
        });
    });
    test.join().expect("the test");
}
