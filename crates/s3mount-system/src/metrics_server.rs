//! `--metrics-listen`: serves metrics over HTTP, for Prometheus.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::time::Duration;

use anyhow::{Context, anyhow};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::guests::Guests;

/// The most clients that are being answered.
const MAX_GUESTS: usize = 64;

/// The time that a client may take for its request and for the answer.
const MAX_TIME: Duration = Duration::from_secs(10);

/// How long to wait when no client can be accepted. Mostly the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// The text format of Prometheus.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Serves the metrics at `address` until the runtime ends. `show` makes their text.
///
/// # Errors
/// Fails if nobody can listen there.
pub fn listen<F>(
    address: SocketAddr,
    show: impl Fn() -> F + Clone + Send + Sync + 'static,
    runtime: &Handle,
) -> anyhow::Result<()>
where
    F: Future<Output = String> + Send + 'static,
{
    let listener = StdTcpListener::bind(address).map_err(|error| explain(address, &error))?;
    listener.set_nonblocking(true)?;
    let _inside = runtime.enter();
    let listener = TcpListener::from_std(listener).context("cannot serve the metrics")?;
    tracing::info!(address = %listener.local_addr()?, "metrics are served");
    runtime.spawn(accept(listener, show));
    Ok(())
}

fn explain(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there; each mount needs a port of its own",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; 127.0.0.1 is for itself alone",
        io::ErrorKind::PermissionDenied => "only root may listen at ports below 1024; name a larger one",
        _ => return anyhow!("cannot listen at --metrics-listen {address}: {error}"),
    };
    anyhow!("cannot listen at --metrics-listen {address}: {remedy}")
}

async fn accept<F>(listener: TcpListener, show: impl Fn() -> F + Clone + Send + Sync + 'static)
where
    F: Future<Output = String> + Send + 'static,
{
    let mut guests = Guests::new(MAX_GUESTS);
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::warn!(%error, "the metrics' port cannot accept");
                sleep(PAUSE).await;
                continue;
            }
        };
        let show = show.clone();
        guests.admit(async move {
            let answer = service_fn(|request| {
                let show = &show;
                async move { Ok::<_, Infallible>(answer(&request, show).await) }
            });
            // A connection serves one request, so that idle clients keep no other client out.
            let served =
                http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(client), answer);
            if !matches!(timeout(MAX_TIME, served).await, Ok(Ok(()))) {
                tracing::debug!("a client of the metrics' port left, or took too long");
            }
        });
    }
}

async fn answer<F>(request: &Request<Incoming>, show: impl Fn() -> F) -> Response<Full<Bytes>>
where
    F: Future<Output = String>,
{
    let text = |status, text: String| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, FORMAT);
        response
    };
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".into());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "s3mount serves its metrics at /metrics\n".into());
    }
    text(StatusCode::OK, show().await)
}
