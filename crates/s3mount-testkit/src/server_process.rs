//! The test server as a process of its own. So its CPU time and memory don't count as those of the test or
//! the bench.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::mount::cpu_seconds;
use crate::server::tls;
use crate::{Shape, Stats};

/// A running `s3mount-test-server`. Dropping this ends the server.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    endpoint: String,
    tls: Option<Arc<ClientConfig>>,
}

impl ServerProcess {
    /// Runs `command` and waits until the server listens.
    ///
    /// # Errors
    /// When the server does not start, or does not say where it listens.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        // Ctrl-C at the terminal must not end the server. The program that started the server ends it, after
        // its mounts are down.
        let command = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().context("starting the test server")?;
        let mut server = Self { child, endpoint: String::new(), tls: None };
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let endpoint = line.trim().strip_prefix("listening on ");
        server.endpoint = endpoint.context("the test server did not start")?.to_owned();
        Ok(server)
    }

    /// Runs `command` so that the server speaks TLS, and waits until it listens. The certificate to trust is `ca.pem` in
    /// the folder `dir` then.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn start_with_tls(command: &mut Command, dir: &Path) -> anyhow::Result<Self> {
        let mut server = Self::start(command.arg("--tls-dir").arg(dir))?;
        server.tls = Some(tls::client(&dir.join("ca.pem"))?);
        Ok(server)
    }

    /// The server's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The CPU time that the server has used, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.child.id())
    }

    /// The counters.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn stats(&self) -> anyhow::Result<Stats> {
        Ok(serde_json::from_str(&self.control("stats", "")?)?)
    }

    /// Sets the counters to zero.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn reset_stats(&self) -> anyhow::Result<()> {
        self.control("reset", "").map(drop)
    }

    /// Makes the server slow, or fast again.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn shape(&self, shape: Shape) -> anyhow::Result<()> {
        self.control("shape", &serde_json::to_string(&shape)?).map(drop)
    }

    fn control(&self, what: &str, body: &str) -> anyhow::Result<String> {
        let (_, host) = self.endpoint.split_once("://").context("the test server has no URL")?;
        let stream = TcpStream::connect(host)?;
        match &self.tls {
            None => ask(stream, host, what, body),
            Some(tls) => {
                let connection = ClientConnection::new(tls.clone(), ServerName::try_from("localhost")?)?;
                ask(StreamOwned::new(connection, stream), host, what, body)
            }
        }
    }
}

fn ask(mut stream: impl Read + Write, host: &str, what: &str, body: &str) -> anyhow::Result<String> {
    let length = body.len();
    write!(
        stream,
        "POST /_test/{what} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("the test server hung up")?;
    Ok(body.to_owned())
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
