//! Requests to `/_test/...`, by which other processes steer the server.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};

use crate::object::Object;
use crate::server::body::Reply;
use crate::server::request::Target;
use crate::server::shared::Shared;

/// Answers a request that steers the server.
pub(crate) async fn control(shared: &Shared, request: Request<Incoming>) -> Response<Reply> {
    let target = Target::new(&Method::GET, request.uri(), request.headers());
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (status, text) = match act(shared, &path, &target, &body) {
        Ok(text) => (StatusCode::OK, text),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
    };
    let mut response = Response::new(Reply::bytes(text, None));
    *response.status_mut() = status;
    response
}

fn act(shared: &Shared, path: &str, target: &Target, body: &[u8]) -> anyhow::Result<String> {
    let parameter =
        |name: &str| target.query.get(name).ok_or_else(|| anyhow::anyhow!("the query has no {name}"));
    match path {
        "/_test/stats" => return Ok(serde_json::to_string(&shared.counters.stats())?),
        "/_test/reset" => {
            shared.counters.reset();
            shared.faults.clear();
        }
        "/_test/shape" => shared.set_shape(serde_json::from_slice(body)?),
        "/_test/fault" => shared.faults.add(serde_json::from_slice(body)?),
        "/_test/freeze" => shared.freeze(true),
        "/_test/thaw" => shared.freeze(false),
        "/_test/quit" => shared.quit.notify_one(),
        "/_test/put" => {
            let (bucket, key) = (parameter("bucket")?, parameter("key")?);
            let object = Object::synthetic(key, crate::parse_size(parameter("size")?)?);
            shared.write().entry(bucket.clone()).or_default().insert(key.clone(), object);
        }
        _ => anyhow::bail!("{path} is none of stats, reset, shape, fault, freeze, thaw, put, quit"),
    }
    Ok("ok\n".to_owned())
}
