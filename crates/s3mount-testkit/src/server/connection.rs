//! Takes connections and serves them.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::libc::linger;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Linger, TcpCongestion};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::server::handler::{self, ResetConnection};
use crate::server::shared::Shared;

/// How long to wait when no connection can be taken. This happens when the process has no file descriptors
/// left.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

/// Takes and serves connections for ever.
pub(crate) async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
            continue;
        };
        shared.counters.connection();
        tune(&stream);
        let (shared, acceptor) = (shared.clone(), acceptor.clone());
        // A second descriptor of the socket is needed to set how the connection closes.
        let Ok(socket) = stream.as_fd().try_clone_to_owned() else { continue };
        tokio::spawn(async move {
            match acceptor {
                None => serve(stream, socket, shared).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, socket, shared).await;
                    }
                }
            }
        });
    }
}

/// Makes a connection send at once, and with the congestion control `cubic`. With BBR, which is some systems'
/// default, loopback is half as fast.
fn tune(stream: &TcpStream) {
    // If one of the two fails, the connection is only slower.
    let _ = (stream.set_nodelay(true), setsockopt(stream, TcpCongestion, &OsString::from("cubic")));
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    socket: OwnedFd,
    shared: Arc<Shared>,
) {
    let service = service_fn(|request| async {
        let answer = handler::handle(&shared, request).await;
        if answer.as_ref().map_or(true, |answer| answer.extensions().get::<ResetConnection>().is_some()) {
            // A connection that is closed without lingering is reset. Where this option can't be set, the
            // connection is closed instead.
            let _ = setsockopt(&socket, Linger, &linger { l_onoff: 1, l_linger: 0 });
        }
        answer
    });
    // If serving ends with an error, a fault or the client has broken the connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
