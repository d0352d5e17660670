//! Stores that cannot be mounted. The command exits with 1, and its message has the value and the remedy.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use s3mount_testkit::{Builder, Fault, FaultKind, MountGuard, Operation, TestS3, run_with_timeout, watchdog};
use tempfile::TempDir;

use crate::world::{BUCKET, World, s3mount, wait_for};

/// The message with which a mount of `source` fails.
fn refusal(endpoint: &str, source: &str, flags: &[&str]) -> String {
    let _watchdog = watchdog(Duration::from_secs(60));
    let folder = TempDir::new().expect("a folder");
    let flags = [&["--foreground"], flags].concat();
    let mut command = s3mount(endpoint, source, folder.path(), &flags);
    let output = run_with_timeout(&mut command, Duration::from_secs(45)).expect("s3mount");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn server(builder: Builder) -> TestS3 {
    builder.object(BUCKET, "f", "text").start().expect("a server")
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let server = server(TestS3::builder());
    let said = refusal(&server.endpoint(), "s3://nowhere/prefix/", &[]);
    let expected = format!(
        "s3mount: bucket \"nowhere\" does not exist at {}; check its name, and --endpoint-url if it is not at AWS",
        server.endpoint()
    );
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn a_bucket_in_another_region_is_refused_with_its_region() {
    let server = server(TestS3::builder().region("eu-west-1"));
    let said = refusal(&server.endpoint(), BUCKET, &["--region", "us-west-2"]);
    assert!(
        said.starts_with("s3mount: bucket \"data\" is in region \"eu-west-1\"; pass --region eu-west-1"),
        "{said}"
    );
}

#[test]
fn a_region_that_is_not_given_is_found_out() {
    let world = World::new(TestS3::builder().region("eu-west-1").object(BUCKET, "f", "text"), &[]);
    assert_eq!(world.read("f"), b"text");
}

#[test]
fn a_clock_that_is_wrong_is_named() {
    let server = server(TestS3::builder());
    server.fault(Fault::new(FaultKind::Clock(1200)));
    let said = refusal(&server.endpoint(), BUCKET, &[]);
    assert!(said.contains("refuses the requests of this machine because its clock is wrong"), "{said}");
    assert!(said.contains("set the clock"), "{said}");
}

#[test]
fn denied_access_is_refused_with_the_permissions_that_it_takes() {
    let server = server(TestS3::builder().deny("secret/"));
    let said = refusal(&server.endpoint(), "data/secret/", &[]);
    assert!(said.contains("refuses access to bucket \"data\" (AccessDenied: "), "{said}");
    assert!(said.contains("the credentials need s3:ListBucket and s3:GetObject"), "{said}");
}

#[test]
fn unknown_credentials_are_refused_at_once() {
    let server = server(TestS3::builder().credentials("another"));
    let said = refusal(&server.endpoint(), BUCKET, &[]);
    assert!(
        said.contains("does not accept the credentials for bucket \"data\" (InvalidAccessKeyId: "),
        "{said}"
    );
    assert!(said.contains("renew them, or choose others with --profile"), "{said}");
    let requests = server.stats().requests();
    assert!(requests <= 4, "{requests} requests with credentials that are refused");
}

#[test]
fn a_bucket_that_is_not_public_is_refused_without_credentials() {
    let server = server(TestS3::builder().credentials("another"));
    let said = refusal(&server.endpoint(), BUCKET, &["--no-sign-request"]);
    assert!(said.contains("refuses access to bucket \"data\""), "{said}");
}

#[test]
fn a_port_where_nobody_listens_is_named() {
    // The kernel gives no other test a port below 1024.
    let endpoint = "http://127.0.0.1:1";
    let said = refusal(endpoint, BUCKET, &[]);
    let expected =
        format!("s3mount: cannot reach {endpoint} for bucket \"data\"; check --endpoint-url and the network");
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn a_host_that_is_not_there_is_named() {
    let said = refusal("http://no-such-host.invalid", BUCKET, &[]);
    assert!(
        said.starts_with("s3mount: cannot reach http://no-such-host.invalid for bucket \"data\""),
        "{said}"
    );
}

#[test]
fn a_control_socket_replaces_nothing_else() {
    let server = server(TestS3::builder());
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    let said = refusal(&server.endpoint(), BUCKET, &["--control-socket", path]);
    let expected = format!("s3mount: --control-socket {path} exists and is not a socket; name another path");
    assert!(said.starts_with(&expected), "{said}");
    let said = refusal(&server.endpoint(), BUCKET, &["--control-socket", "/no/such/folder/socket"]);
    assert!(said.starts_with("s3mount: cannot listen at --control-socket /no/such/folder/socket"), "{said}");
}

#[test]
fn tls_to_a_plain_port_is_explained() {
    let server = server(TestS3::builder());
    let endpoint = server.endpoint().replace("http://", "https://");
    let said = refusal(&endpoint, BUCKET, &[]);
    let expected = format!(
        "s3mount: cannot reach {endpoint} for bucket \"data\"; check --endpoint-url (a server without TLS takes \
         http://) and the network"
    );
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn a_certificate_that_is_not_trusted_until_its_authority_is_given() {
    let server = server(TestS3::builder().tls());
    let said = refusal(&server.endpoint(), BUCKET, &[]);
    assert!(said.contains("needs --ca-bundle FILE"), "{said}");
    let world = World::new(TestS3::builder().object(BUCKET, "f", "text").tls(), &[]);
    assert_eq!(world.read("f"), b"text");
}

#[test]
fn plain_http_to_a_tls_port_is_refused() {
    let server = server(TestS3::builder().tls());
    let said = refusal(&server.endpoint().replace("https://", "http://"), BUCKET, &[]);
    assert!(said.contains("localhost"), "{said}");
}

#[test]
fn a_prefix_without_keys_is_an_empty_mount_and_a_warning() {
    let world = World::new(TestS3::builder().object(BUCKET, "f", "text"), &["--prefix", "nothing/here"]);
    assert_eq!(std::fs::read_dir(world.mount.path()).expect("the root").count(), 0);
    let said = world.mount.stderr();
    assert!(
        said.contains(
            "there is no key below the prefix \"nothing/here/\" of bucket \"data\": the mount is empty"
        ),
        "{said}"
    );
}

#[test]
fn a_store_that_knows_no_conditions_is_told_at_the_mount() {
    const SAID: &str = "the store refuses writes that have a condition (501 NotImplemented";
    let world = World::new(TestS3::builder().refuse_conditions(), &["--allow=write"]);
    wait_for("it is told", || world.mount.stderr().contains(SAID));
    let mut file = File::create(world.path("f")).expect("a file");
    file.write_all(b"text").expect("a write");
    assert_eq!(nix::unistd::close(file), Err(nix::errno::Errno::EIO));
    assert_eq!(world.server.keys(BUCKET), [""; 0]);
    // Who only reads is not told, and who has a store that knows them is not, either.
    let reads = World::new(TestS3::builder().refuse_conditions(), &[]);
    let knows = World::new(TestS3::builder(), &["--allow=write"]);
    for world in [reads, knows] {
        assert!(!world.mount.stderr().contains(SAID), "{}", world.mount.stderr());
        assert_eq!(world.server.keys(BUCKET), [""; 0]);
    }
    // A store that does not answer delays no mount.
    let server = TestS3::builder().bucket(BUCKET).start().expect("a server");
    server.fault(Fault::new(FaultKind::Freeze).on(Operation::CompleteMultipartUpload));
    let folder = TempDir::new().expect("a folder");
    let mut command = s3mount(&server.endpoint(), BUCKET, folder.path(), &["--foreground", "--allow=write"]);
    let mount = MountGuard::new(&mut command, folder.path()).expect("a mount");
    std::fs::write(folder.path().join("f"), "text").expect("a file");
    drop(mount);
    server.thaw();
}
