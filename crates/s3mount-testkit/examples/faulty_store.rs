//! Starts an S3 server in this process, has it fail, and looks at what it has counted.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, check};

/// The status of an answer, and its body.
fn get(server: &TestS3, path: &str, range: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let endpoint = server.endpoint();
    let host = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={range}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(0);
    let status = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    Ok((status, answer.split_off(head + 4)))
}

fn main() -> anyhow::Result<()> {
    // An object of a terabyte costs nothing: its bytes follow from its key and the offset.
    let server = TestS3::builder().synthetic("data", "huge.bin", 1 << 40).start()?;
    println!("listening on {}", server.endpoint());

    let (status, body) = get(&server, "/data/huge.bin", "1000000000000-1000000000099")?;
    check("huge.bin", 1_000_000_000_000, &body).map_err(anyhow::Error::msg)?;
    println!("{status}: {} bytes, the right ones", body.len());

    server.fault(Fault::new(FaultKind::Status(503, "SlowDown".into())).on(Operation::GetObject).times(1));
    for _ in 0..2 {
        println!("with one fault: {}", get(&server, "/data/huge.bin", "0-99")?.0);
    }

    let stats = server.stats();
    println!("counted: {} GETs, {} connections", stats.get_object.requests, stats.connections);
    Ok(())
}
