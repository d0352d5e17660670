//! Checks of the store: endpoint, region, clock, and what the credentials may do, one by one.

use std::future::Future;
use std::time::{Duration, Instant};

use s3mount_changes::QueueName;
use s3mount_crt::{CrtClient, CrtConfig};
use s3mount_object::{
    Body, ByteRange, ErrorKind, GetObject, ListObjects, ListPage, ListedObject, NewObject, ObjectClient as _,
    ObjectError, ObjectId, ObjectWriter as _,
};
use s3mount_settings::resolved::store::{SILENCE, Store, explain};

use super::finding::Finding;
use super::queue;

/// The time that the store may take for one answer.
const LIMIT: Duration = Duration::from_secs(10);

/// S3 refuses requests whose time differs by more, in seconds.
const MOST_SKEW_S: u64 = 15 * 60;

/// A machine whose clock is kept right differs by less, in seconds. Answers have whole seconds.
const SKEW_S: u64 = 60;

/// An answer within a region takes less.
const NEAR: Duration = Duration::from_millis(200);

/// The connections and the threads of the client.
const CONNECTIONS: u32 = 2;

/// How many LISTs tell how far the store is.
const PROBES: usize = 3;

/// The name of the object that is written, below the prefix.
const PROBE: &str = ".s3mount-doctor";

/// Reports each check of the store, until one fails without which the others can't be made.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn check(
    store: &Store,
    prefix: &str,
    may_write: bool,
    queue: Option<&QueueName>,
    report: &mut dyn FnMut(Finding),
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = match store.crt_config(CONNECTIONS) {
        Ok(config) => config,
        // The check of the credentials has said why.
        Err(_) => {
            report(Finding::skip("endpoint", "not asked without credentials"));
            return Ok(());
        }
    };
    runtime.block_on(async {
        if let Some(region) = check_all(store, config, prefix, may_write, report).await
            && let Some(name) = queue
        {
            report(queue::check(&store.queue(name.clone(), &region)).await);
        }
    });
    Ok(())
}

/// Returns the region of the bucket, if the store answers.
async fn check_all(
    store: &Store,
    config: CrtConfig,
    prefix: &str,
    may_write: bool,
    report: &mut dyn FnMut(Finding),
) -> Option<String> {
    let connected = in_time(CrtClient::connect(config)).await;
    let (client, info) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            report(unreachable(store, error));
            return None;
        }
    };
    if let Some(region) = info.region {
        report(Finding::ok("region", region));
    }
    report(clock(client.clock_skew_s()));
    let start = Instant::now();
    let first = ListObjects { prefix: prefix.to_owned(), max_keys: Some(100), ..ListObjects::default() };
    let page = match in_time(client.list_objects(first)).await {
        Ok(page) => {
            report(Finding::ok("LIST", format!("of keys below {prefix:?}")));
            report(endpoint(store, latency(&client, prefix, start.elapsed()).await));
            if page == ListPage::default() {
                report(Finding::warn("prefix", format!("no key is below {prefix:?}"), "check the prefix"));
            }
            page
        }
        Err(_) if client.clock_skew_s().is_some_and(|skew_s| skew_s.unsigned_abs() >= MOST_SKEW_S) => {
            report(Finding::fail("LIST", "refused, and the clock is wrong", "set it, and ask again"));
            return None;
        }
        Err(error) if is_about_permissions(error.kind()) => {
            report(refused("LIST", &format!("s3:ListBucket on {}", arn(&store.bucket, None)), &error));
            ListPage::default()
        }
        Err(error) => {
            report(unreachable(store, error));
            return None;
        }
    };
    let object = page.objects.iter().find(|object| object.meta.size > 0).or(page.objects.first());
    head(&client, store, prefix, object, report).await;
    get(&client, store, prefix, object, report).await;
    put(&client, store, prefix, may_write, report).await;
    Some(client.region().to_owned())
}

/// The answer, or an error if none comes in time.
async fn in_time<T>(answer: impl Future<Output = Result<T, ObjectError>>) -> Result<T, ObjectError> {
    let timed_out = |_| Err(ObjectError::new(ErrorKind::TimedOut, "request", ""));
    tokio::time::timeout(LIMIT, answer).await.unwrap_or_else(timed_out)
}

/// A failure after which no other request can succeed.
fn unreachable(store: &Store, error: ObjectError) -> Finding {
    let name = match error.kind() {
        ErrorKind::WrongRegion(_) => "region",
        ErrorKind::NoCredentials | ErrorKind::BadCredentials | ErrorKind::StaleCredentials => "access",
        ErrorKind::NoSuchBucket | ErrorKind::NotFound => "bucket",
        _ => "endpoint",
    };
    let said = match error.kind() {
        ErrorKind::TimedOut => {
            format!("{} gave no answer within {LIMIT:?}; {SILENCE}", store.shown())
        }
        _ => explain(store, error).to_string(),
    };
    Finding::fail(name, said, "")
}

fn is_about_permissions(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Forbidden | ErrorKind::Rejected | ErrorKind::Archived)
}

/// What the difference of the clocks means. `skew_s` is positive if the store's is ahead.
fn clock(skew_s: Option<i64>) -> Finding {
    const NAME: &str = "clock";
    let Some(skew_s) = skew_s else { return Finding::skip(NAME, "the store does not say what time it is") };
    let direction = if skew_s > 0 { "behind" } else { "ahead of" };
    let size_s = skew_s.unsigned_abs();
    let said = format!("this machine's is {size_s} s {direction} the store's");
    const REMEDY: &str = "set it: timedatectl set-ntp true";
    match size_s {
        size_s if size_s >= MOST_SKEW_S => {
            Finding::fail(NAME, format!("{said}, and S3 refuses requests that differ by 15 minutes"), REMEDY)
        }
        size_s if size_s > SKEW_S => Finding::warn(NAME, said, REMEDY),
        _ => Finding::ok(NAME, "it agrees with the store's"),
    }
}

/// The shortest time of a LIST, of those that are sent here and of one that took `first`.
async fn latency(client: &CrtClient, prefix: &str, first: Duration) -> Duration {
    let mut best = first;
    for _ in 1..PROBES {
        let start = Instant::now();
        let one = ListObjects { prefix: prefix.to_owned(), max_keys: Some(1), ..ListObjects::default() };
        if in_time(client.list_objects(one)).await.is_ok() {
            best = best.min(start.elapsed());
        }
    }
    best
}

fn endpoint(store: &Store, latency: Duration) -> Finding {
    let said = format!("{} answers a LIST within {} ms", store.shown(), latency.as_millis().max(1));
    if latency > NEAR {
        return Finding::warn(
            "endpoint",
            said,
            "the store is far or busy: run in its region, or raise --prefetch-window",
        );
    }
    Finding::ok("endpoint", said)
}

async fn head(
    client: &CrtClient,
    store: &Store,
    prefix: &str,
    object: Option<&ListedObject>,
    report: &mut dyn FnMut(Finding),
) {
    let missing = format!("{prefix}{PROBE}");
    let key = object.map_or(missing.as_str(), |object| &object.key);
    report(match in_time(client.head_object(key)).await {
        Ok(_) => Finding::ok("HEAD", format!("of {key:?}")),
        // Who may not list gets 403 for a key that is not there.
        Err(error) if object.is_none() && *error.kind() == ErrorKind::NotFound => {
            Finding::ok("HEAD", "of a key that is not there")
        }
        Err(error) => {
            refused("HEAD", &format!("s3:GetObject on {}", arn(&store.bucket, Some(prefix))), &error)
        }
    });
}

async fn get(
    client: &CrtClient,
    store: &Store,
    prefix: &str,
    object: Option<&ListedObject>,
    report: &mut dyn FnMut(Finding),
) {
    let Some(object) = object.filter(|object| object.meta.size > 0) else {
        return report(Finding::skip("GET", "no key with bytes is seen, so none was read"));
    };
    let request = GetObject {
        object: ObjectId::new(&object.key, object.meta.etag.clone()),
        range: ByteRange::new(0, 1),
    };
    report(match in_time(client.get_object(request, Box::new(vec![0_u8]))).await {
        Ok(_) => Finding::ok("GET", format!("of the first byte of {:?}", object.key)),
        Err(error) if *error.kind() == ErrorKind::Archived => Finding::warn(
            "GET",
            format!("{:?} is archived", object.key),
            "restore it: aws s3api restore-object, or leave such objects out by --prefix",
        ),
        Err(error) => refused(
            "GET",
            &format!("s3:GetObject on {} (and kms:Decrypt for its key)", arn(&store.bucket, Some(prefix))),
            &error,
        ),
    });
}

async fn put(
    client: &CrtClient,
    store: &Store,
    prefix: &str,
    may_write: bool,
    report: &mut dyn FnMut(Finding),
) {
    let of = |action: &str| format!("s3:{action} on {}", arn(&store.bucket, Some(prefix)));
    if !may_write {
        return report(Finding::skip(
            "PUT",
            format!("not tried; writing needs {}, and --try-write tries it", of("PutObject")),
        ));
    }
    let key = format!("{prefix}{PROBE}-{}", std::process::id());
    let empty = NewObject::default();
    if let Err(error) = in_time(client.put(&key, Body::default(), &empty, None)).await {
        return report(refused("PUT", &of("PutObject"), &error));
    }
    report(Finding::ok("PUT", format!("of {key:?}")));
    report(match in_time(client.delete(&key, None)).await {
        Ok(_) => Finding::ok("DELETE", format!("of {key:?}")),
        Err(error) => refused("DELETE", &format!("{}; {key:?} is left there", of("DeleteObject")), &error),
    });
}

/// A request that the store has refused, and the permission that it takes.
fn refused(name: &'static str, permission: &str, error: &ObjectError) -> Finding {
    let detail = error.detail();
    let said = match (&detail.code, &detail.message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.clone(),
        // The answer to a HEAD has no body.
        (None, _) => {
            detail.status.map_or_else(|| error.to_string(), |status| format!("HTTP status {status}"))
        }
    };
    if *error.kind() == ErrorKind::Forbidden {
        return Finding::fail(name, format!("refused ({said})"), format!("grant {permission}"));
    }
    Finding::fail(name, said, format!("it needs {permission}"))
}

/// The resource that a policy names.
fn arn(bucket: &str, prefix: Option<&str>) -> String {
    let bucket =
        if bucket.starts_with("arn:") { bucket.to_owned() } else { format!("arn:aws:s3:::{bucket}") };
    prefix.map_or_else(|| bucket.clone(), |prefix| format!("{bucket}/{prefix}*"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::CheckStatus;
    use super::{arn, clock};

    #[test]
    fn clocks_may_differ_by_a_minute() {
        for (skew_s, state) in [
            (None, CheckStatus::Skip),
            (Some(0), CheckStatus::Ok),
            (Some(-60), CheckStatus::Ok),
            (Some(61), CheckStatus::Warn),
            (Some(-900), CheckStatus::Fail),
        ] {
            assert_eq!(clock(skew_s).state, state, "{skew_s:?}");
        }
        assert!(clock(Some(1200)).said.starts_with("this machine's is 1200 s behind the store's"));
        assert!(clock(Some(-1200)).said.contains("ahead of"));
    }

    #[test]
    fn policies_name_resources() {
        assert_eq!(arn("b", None), "arn:aws:s3:::b");
        assert_eq!(arn("b", Some("p/")), "arn:aws:s3:::b/p/*");
        assert_eq!(arn("arn:aws:s3:r:1:accesspoint/a", None), "arn:aws:s3:r:1:accesspoint/a");
    }
}
