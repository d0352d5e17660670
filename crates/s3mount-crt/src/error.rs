//! Translates the CRT's results and errors to ours.

use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::s3::client::MetaRequestResult;
use s3mount_object::{ErrorKind, ObjectError, S3Detail};

use crate::answer::Answer;
use crate::xml::{S3Error, s3_error};

/// Why an object without an ETag can't be read.
pub(crate) const NO_ETAG: &str =
    "the store gives the object no ETag: nothing tells its versions apart, so parts of two could be mixed";

/// The error for a request that has failed. `signing_region` is the region that the request was signed for:
/// if the answer names another region, the bucket may be there.
pub(crate) fn failed(
    operation: &'static str,
    target: &str,
    signing_region: &str,
    result: &MetaRequestResult,
) -> ObjectError {
    let answer =
        result.error_response_headers.as_ref().map(|headers| Answer::new(headers, result.response_status));
    let body = result.error_response_body.as_ref().map(|body| body.as_encoded_bytes()).unwrap_or_default();
    let said = s3_error(body);
    let region = answer.as_ref().and_then(|answer| answer.region.clone()).or_else(|| said.region.clone());
    let elsewhere = region.filter(|region| region != signing_region);
    let status = u16::try_from(result.response_status).ok().filter(|status| *status >= 100);
    let kind = match status {
        Some(status) if !(200..300).contains(&status) || said.code.is_some() => {
            kind_of_status(operation, status, &said, elsewhere)
        }
        Some(_) | None => kind_of_crt(result.crt_error),
    };
    let S3Error { code, message, request_id, .. } = said;
    let request_id = answer.and_then(|answer| answer.request_id).or(request_id);
    // The CRT tries again by itself, and then keeps nothing of the answer.
    let code = code.or_else(|| is_skewed(result.crt_error).then(|| "RequestTimeTooSkewed".to_owned()));
    ObjectError::new(kind, operation, target)
        .with_detail(S3Detail { status, code, message, request_id })
        .with_source(result.crt_error)
}

/// The error for a request that the CRT could not send: it has no result.
pub(crate) fn crt_error(operation: &'static str, target: &str, error: CrtError) -> ObjectError {
    ObjectError::new(kind_of_crt(error), operation, target).with_source(error)
}

/// S3's error codes that mean bad credentials, whatever the status is.
const BAD_CREDENTIALS: &[&str] = &[
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "AuthorizationHeaderMalformed",
];

/// S3's error codes that say that other bytes came than were sent. What this client sends is well-formed.
const BAD_CHECKSUM: &[&str] = &[
    "BadDigest",
    "XAmzContentChecksumMismatch",
    "XAmzContentSHA256Mismatch",
    "InvalidDigest",
    "MalformedXML",
];

fn kind_of_status(operation: &str, status: u16, said: &S3Error, elsewhere: Option<String>) -> ErrorKind {
    let code = said.code.as_deref().unwrap_or_default();
    match (status, code) {
        (301 | 307 | 308, _) => ErrorKind::WrongRegion(elsewhere),
        (400 | 403, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" | "")
            if elsewhere.is_some() =>
        {
            ErrorKind::WrongRegion(elsewhere)
        }
        (_, code) if BAD_CREDENTIALS.contains(&code) => ErrorKind::BadCredentials,
        (_, "InvalidObjectState") => ErrorKind::Archived,
        (_, "NoSuchBucket") => ErrorKind::NoSuchBucket,
        (_, "NoSuchUpload") => ErrorKind::NoSuchUpload,
        (_, "InvalidPart" | "InvalidPartOrder" | "EntityTooSmall") => ErrorKind::InvalidPart,
        (_, "EntityTooLarge") | (413, _) => ErrorKind::TooLarge,
        // Self-hosted stores have these codes; S3 does not.
        (_, "QuotaExceeded" | "XMinioStorageFull" | "XMinioAdminBucketQuotaExceeded") | (507, _) => {
            ErrorKind::NoSpace
        }
        (_, code) if BAD_CHECKSUM.contains(&code) => ErrorKind::BadChecksum,
        (_, "ConditionalRequestConflict" | "OperationAborted") | (409, _) => ErrorKind::Conflict,
        (_, "SlowDown" | "Throttling" | "RequestLimitExceeded") | (429 | 503, _) => ErrorKind::Throttled,
        (_, "RequestTimeout") | (408, _) => ErrorKind::TimedOut,
        (_, "AccessDenied") | (401 | 403, _) => ErrorKind::Forbidden,
        (404, _) if operation == "HeadBucket" => ErrorKind::NoSuchBucket,
        (404, _) => ErrorKind::NotFound,
        (_, "PreconditionFailed") | (412, _) => ErrorKind::PreconditionFailed,
        (416, _) => ErrorKind::RangeNotSatisfiable,
        (501, _) => ErrorKind::Unsupported,
        (_, "InternalError") | (500.., _) => ErrorKind::Server,
        _ => ErrorKind::Rejected,
    }
}

/// Whether the store has refused the time in a signature.
fn is_skewed(error: CrtError) -> bool {
    error.to_string().contains("TIME_TOO_SKEWED")
}

/// The kind of a CRT error, by its name. The name begins with the library that the error comes from. The
/// names are stable; the list of errors is not.
fn kind_of_crt(error: CrtError) -> ErrorKind {
    let text = error.to_string();
    let has = |name: &str| text.contains(name);
    if has("AWS_ERROR_S3_CANCELED") {
        ErrorKind::Cancelled
    } else if is_skewed(error) {
        // The machine's clock is wrong, so the store accepts no signature.
        ErrorKind::BadCredentials
    } else if has("NO_CREDENTIALS") || has("AWS_AUTH_CREDENTIALS") || has("AWS_AUTH_PROFILE") {
        ErrorKind::NoCredentials
    } else if has("AWS_ERROR_S3_SLOW_DOWN") {
        ErrorKind::Throttled
    } else if has("AWS_ERROR_S3_INTERNAL_ERROR") {
        ErrorKind::Server
    } else if has("AWS_ERROR_S3_MISSING_ETAG") {
        ErrorKind::NoEtag
    } else if has("AWS_ERROR_S3_OBJECT_MODIFIED") {
        ErrorKind::PreconditionFailed
    } else if has("TIMEOUT") || has("THROUGHPUT_FAILURE") {
        ErrorKind::TimedOut
    } else if has("AWS_IO_TLS") {
        ErrorKind::Tls
    } else if has("AWS_IO_") || has("AWS_ERROR_HTTP") {
        ErrorKind::Network
    } else if has("AWS_ERROR_S3_") || has("DEST_COPY_TOO_SMALL") {
        // A header is missing or wrong, or a length does not fit.
        ErrorKind::Integrity
    } else {
        ErrorKind::Rejected
    }
}

#[cfg(test)]
mod tests {
    use mountpoint_s3_crt_sys::{aws_auth_errors, aws_http_errors, aws_io_errors, aws_s3_errors};
    use s3mount_object::ErrorKind;

    use super::{S3Error, kind_of_crt, kind_of_status};

    #[test]
    fn kinds_follow_the_crt() {
        // A new client registers the names of the CRT's errors.
        let _client = crate::CrtClient::new(crate::CrtConfig::new("b")).expect("a client");
        let cases = [
            (aws_s3_errors::AWS_ERROR_S3_CANCELED as i32, ErrorKind::Cancelled),
            (aws_s3_errors::AWS_ERROR_S3_SLOW_DOWN as i32, ErrorKind::Throttled),
            (aws_s3_errors::AWS_ERROR_S3_INTERNAL_ERROR as i32, ErrorKind::Server),
            (aws_s3_errors::AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED as i32, ErrorKind::BadCredentials),
            (aws_s3_errors::AWS_ERROR_S3_MISSING_ETAG as i32, ErrorKind::NoEtag),
            (aws_auth_errors::AWS_AUTH_SIGNING_NO_CREDENTIALS as i32, ErrorKind::NoCredentials),
            (aws_http_errors::AWS_ERROR_HTTP_CHANNEL_THROUGHPUT_FAILURE as i32, ErrorKind::TimedOut),
            (aws_http_errors::AWS_ERROR_HTTP_CONNECTION_CLOSED as i32, ErrorKind::Network),
            (aws_io_errors::AWS_IO_DNS_INVALID_NAME as i32, ErrorKind::Network),
            (aws_io_errors::AWS_IO_SOCKET_CONNECTION_REFUSED as i32, ErrorKind::Network),
            (aws_io_errors::AWS_IO_SOCKET_TIMEOUT as i32, ErrorKind::TimedOut),
            (aws_io_errors::AWS_IO_TLS_ERROR_NEGOTIATION_FAILURE as i32, ErrorKind::Tls),
        ];
        for (code, kind) in cases {
            assert_eq!(kind_of_crt(code.into()), kind, "{code}");
        }
    }

    #[test]
    fn kinds_follow_status_and_code() {
        let said = |code: &str| S3Error { code: Some(code.to_owned()), ..S3Error::default() };
        let elsewhere = || Some("eu-west-1".to_owned());
        let cases = [
            (404, said("NoSuchKey"), None, ErrorKind::NotFound),
            (404, said("NoSuchBucket"), None, ErrorKind::NoSuchBucket),
            (403, said("AccessDenied"), None, ErrorKind::Forbidden),
            (403, said("AccessDenied"), elsewhere(), ErrorKind::Forbidden),
            (403, said("InvalidObjectState"), None, ErrorKind::Archived),
            (403, said("SignatureDoesNotMatch"), None, ErrorKind::BadCredentials),
            (400, said("ExpiredToken"), None, ErrorKind::BadCredentials),
            (400, said("AuthorizationHeaderMalformed"), elsewhere(), ErrorKind::WrongRegion(elsewhere())),
            (400, S3Error::default(), elsewhere(), ErrorKind::WrongRegion(elsewhere())),
            (301, said("PermanentRedirect"), elsewhere(), ErrorKind::WrongRegion(elsewhere())),
            (412, said("PreconditionFailed"), None, ErrorKind::PreconditionFailed),
            (503, said("SlowDown"), None, ErrorKind::Throttled),
            (500, said("InternalError"), None, ErrorKind::Server),
            (501, said("NotImplemented"), None, ErrorKind::Unsupported),
            (405, said("MethodNotAllowed"), None, ErrorKind::Rejected),
            (409, said("ConditionalRequestConflict"), None, ErrorKind::Conflict),
            (404, said("NoSuchUpload"), None, ErrorKind::NoSuchUpload),
            (400, said("EntityTooSmall"), None, ErrorKind::InvalidPart),
            (400, said("EntityTooLarge"), None, ErrorKind::TooLarge),
            (507, said("XMinioStorageFull"), None, ErrorKind::NoSpace),
            (400, said("BadDigest"), None, ErrorKind::BadChecksum),
            (400, said("MalformedXML"), None, ErrorKind::BadChecksum),
            // These answers began with 200, before the store knew how the request would end.
            (200, said("InternalError"), None, ErrorKind::Server),
            (200, said("InvalidPart"), None, ErrorKind::InvalidPart),
            (200, said("PreconditionFailed"), None, ErrorKind::PreconditionFailed),
            (200, said("AccessDenied"), None, ErrorKind::Forbidden),
        ];
        for (status, said, elsewhere, kind) in cases {
            assert_eq!(kind_of_status("GetObject", status, &said, elsewhere), kind, "{status} {said:?}");
        }
        assert_eq!(kind_of_status("HeadBucket", 404, &S3Error::default(), None), ErrorKind::NoSuchBucket);
    }
}
