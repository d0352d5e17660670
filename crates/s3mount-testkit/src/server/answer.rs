//! How a request ends: with an answer, or with an error of S3.

use std::borrow::Cow;

use hyper::Response;

use crate::server::body::Reply;
use crate::uploads::Refused;

/// An error that the server answers with.
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) extra: String,
}

pub(crate) fn refuse(status: u16, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Refusal {
    Refusal { status, code: code.into(), message: message.into(), extra: String::new() }
}

impl From<Refused> for Refusal {
    fn from(Refused { status, code, message }: Refused) -> Self {
        refuse(status, code, message)
    }
}

pub(crate) type Answer = Result<Response<Reply>, Refusal>;
