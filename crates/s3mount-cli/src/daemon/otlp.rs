//! `--otlp-endpoint`: sends the metrics of the mount to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! A collector that does not answer costs no reader anything, and one line in the log. The sums count from the
//! mount's start, so a request that is lost takes nothing with it.

mod message;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use s3mount_fs::Filesystem;
use s3mount_settings::resolved::Config;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use self::message::{Times, request};
use self::settings::Settings;

/// How long a collector may take for its answer: the default of OpenTelemetry's exporters.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of a mount may wait for the collector.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// How much of a collector's refusal is read, in bytes.
const MOST_SAID: usize = 1024;

/// Sends the metrics of a mount, from time to time and at its end.
pub(crate) struct Exporter {
    sender: Arc<Sender>,
    task: JoinHandle<()>,
}

struct Sender {
    fs: Arc<Filesystem>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    settings: Settings,
    uri: Uri,
    resource: Resource,
    started: u64,
}

impl Exporter {
    /// Begins to send to the collector at `endpoint`.
    ///
    /// # Errors
    /// Fails if OpenTelemetry's variables make no sense, or the machine has no certificates that it trusts.
    pub(crate) fn start(
        endpoint: &Uri,
        config: &Config,
        fs: Arc<Filesystem>,
        runtime: &Handle,
    ) -> anyhow::Result<Self> {
        let settings = Settings::from_env()?;
        let connector = HttpsConnectorBuilder::new();
        let connector = connector.with_native_roots().context("cannot load the machine's certificates")?;
        let _inside = runtime.enter();
        let sender = Arc::new(Sender {
            fs,
            client: Client::builder(TokioExecutor::new())
                .build(connector.https_or_http().enable_http1().build()),
            uri: metrics_uri(endpoint)?,
            resource: settings.resource(config),
            settings,
            started: message::now(),
        });
        tracing::info!(uri = %sender.uri, every = ?sender.settings.interval, "metrics are sent");
        let task = runtime.spawn(sender.clone().run());
        Ok(Self { sender, task })
    }

    /// Sends what has come since the last time.
    pub(crate) async fn finish(self) {
        self.task.abort();
        let sent = timeout(LAST_TIMEOUT, self.sender.send()).await.context("it does not answer");
        if let Err(error) = sent.flatten() {
            tracing::warn!(uri = %self.sender.uri, "the last metrics could not be sent: {error:#}");
        }
    }
}

/// The URI of metrics below the base of a collector, as OpenTelemetry's exporters find it.
fn metrics_uri(endpoint: &Uri) -> anyhow::Result<Uri> {
    let base = endpoint.to_string();
    let base = base.trim_end_matches('/');
    let path = if base.ends_with("/v1/metrics") { "" } else { "/v1/metrics" };
    format!("{base}{path}").parse().context("no URL of a collector")
}

impl Sender {
    async fn run(self: Arc<Self>) {
        let mut is_failing = false;
        loop {
            sleep(self.settings.interval).await;
            let sent = timeout(TIMEOUT, self.send()).await.context("it does not answer");
            let sent = sent.flatten();
            match &sent {
                Ok(()) if is_failing => tracing::info!(uri = %self.uri, "metrics are sent again"),
                // It is said once, until it works again.
                Err(error) if !is_failing => {
                    tracing::warn!(uri = %self.uri, "metrics cannot be sent: {error:#}{}", self.advice());
                }
                Ok(()) | Err(_) => {}
            }
            is_failing = sent.is_err();
        }
    }

    /// What is mostly wrong.
    fn advice(&self) -> &'static str {
        match self.uri.port_u16() {
            Some(4317) => "; 4317 is mostly the port of gRPC, and 4318 that of HTTP, which is needed here",
            _ => "",
        }
    }

    async fn send(&self) -> anyhow::Result<()> {
        // Brings the gauges up to date.
        self.fs.metrics();
        let times = Times { started: self.started, now: message::now() };
        let body = request(&self.fs.registry().snapshot(), &self.resource, times).encode_to_vec();
        let mut post = Request::post(&self.uri).header(CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &self.settings.headers {
            post = post.header(name, value);
        }
        let answer = self.client.request(post.body(Full::from(body))?).await?;
        let status = answer.status();
        let said = Limited::new(answer.into_body(), MOST_SAID).collect().await;
        let said = said.map(|said| said.to_bytes()).unwrap_or_default();
        ensure!(status.is_success(), "it answers {status} {}", String::from_utf8_lossy(&said).trim());
        Ok(())
    }
}
