//! gRPC on a Unix socket: which call is answered by which function.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use prost::Message;
use tokio::net::UnixListener;
use tonic::Status;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::driver::Driver;
use crate::protocol::Empty;

/// Answers the calls that come to a socket.
#[derive(Clone)]
struct Calls(Arc<Driver>);

impl tower::Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let driver = self.0.clone();
        Box::pin(async move { Ok(answer(driver, request).await) })
    }
}

/// Answers one call.
async fn answer(driver: Arc<Driver>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/csi.v1.Identity/GetPluginInfo" => unary(request, |_: Empty| ready(Ok(driver.plugin_info()))).await,
        "/csi.v1.Identity/GetPluginCapabilities" => {
            unary(request, |_: Empty| ready(Ok(driver.plugin_capabilities()))).await
        }
        "/csi.v1.Identity/Probe" => unary(request, |_: Empty| ready(Ok(driver.probe()))).await,
        "/csi.v1.Controller/ControllerGetCapabilities" => {
            unary(request, |_: Empty| ready(Ok(driver.controller_capabilities()))).await
        }
        "/csi.v1.Controller/CreateVolume" => unary(request, |call| driver.create_volume(call)).await,
        "/csi.v1.Controller/DeleteVolume" => unary(request, |call| driver.delete_volume(call)).await,
        "/csi.v1.Controller/ValidateVolumeCapabilities" => {
            unary(request, |call| driver.validate_volume_capabilities(call)).await
        }
        "/csi.v1.Node/NodeGetInfo" => unary(request, |_: Empty| ready(Ok(driver.node_info()))).await,
        "/csi.v1.Node/NodeGetCapabilities" => {
            unary(request, |_: Empty| ready(Ok(driver.node_capabilities()))).await
        }
        "/csi.v1.Node/NodePublishVolume" => unary(request, |call| driver.publish(call)).await,
        "/csi.v1.Node/NodeUnpublishVolume" => unary(request, |call| driver.unpublish(call)).await,
        "/csi.v1.Node/NodeGetVolumeStats" => unary(request, |call| driver.volume_stats(call)).await,
        _ => Status::unimplemented(format!("s3mount's CSI driver has no {path}")).into_http(),
    }
}

/// Reads the one message of a call, and sends the one message of its answer.
async fn unary<Q, A, F>(request: Request<Body>, mut answer: impl FnMut(Q) -> F + Send) -> Response<Body>
where
    Q: Message + Default + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
    F: Future<Output = Result<A, Status>> + Send,
{
    let path = request.uri().path().to_owned();
    let service = service_fn(move |call: tonic::Request<Q>| {
        let (answered, path) = (answer(call.into_inner()), path.clone());
        async move {
            match answered.await {
                Ok(answer) => Ok(tonic::Response::new(answer)),
                Err(status) => {
                    tracing::warn!(call = path, code = ?status.code(), "{}", status.message());
                    Err(status)
                }
            }
        }
    });
    Grpc::new(ProstCodec::<A, Q>::default()).unary(service, request).await
}

/// The path of the socket that an endpoint names: `unix:///csi/csi.sock`, or the path alone.
pub(crate) fn socket_path(endpoint: &str) -> Result<PathBuf, String> {
    let path =
        endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")).unwrap_or(endpoint);
    if Path::new(path).is_absolute() {
        return Ok(path.into());
    }
    Err("not a socket; write unix:// and its absolute path, such as unix:///csi/csi.sock".to_owned())
}

/// Which file is at `path`.
fn inode(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|found| (found.dev(), found.ino()))
}

/// Listens at `path`, and answers until `ended` is ready. A socket that another process has left there is replaced, and
/// this one is removed at the end.
pub(crate) async fn serve(
    driver: Arc<Driver>,
    path: &Path,
    ended: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let shown = path.display();
    match path.symlink_metadata() {
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(path).with_context(|| format!("cannot replace the socket {shown}"))?;
        }
        Ok(_) => anyhow::bail!("{shown} is there, and is no socket; name another --endpoint"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {shown}"))?;
    let incoming = futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let bound = inode(path).with_context(|| format!("cannot look at {shown}"))?;
    let ended = async {
        ended.await;
        // Who calls from here on finds no driver at once. The socket may be that of the next one by now.
        if inode(path).is_ok_and(|there| there == bound) {
            let _ = std::fs::remove_file(path);
        }
    };
    tracing::info!(socket = %shown, "listens");
    let server = tonic::transport::Server::builder();
    server.serve_with_incoming_shutdown(Calls(driver), incoming, ended).await.context("cannot serve")
}
