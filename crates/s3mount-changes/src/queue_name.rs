//! Which queue somebody means.

use std::fmt;
use std::str::FromStr;

/// A queue of SQS, as somebody names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueName {
    /// By its URL, which names the server and, at AWS, the region.
    Url {
        /// The URL of the queue.
        url: String,
        /// The URL of its server.
        server: String,
        /// The region, if the host names one.
        region: Option<String>,
    },
    /// By its name.
    Named {
        /// The name.
        name: String,
        /// The account, if it is not that of the credentials.
        account: Option<String>,
        /// The region, if it is not that of the bucket.
        region: Option<String>,
    },
}

/// Why a text names no queue.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a queue; write sqs://NAME, sqs://ACCOUNT/NAME, the queue's URL, such as \
     https://sqs.eu-central-1.amazonaws.com/111122223333/NAME, or its ARN"
)]
pub struct NoQueue(String);

/// Whether SQS allows the name of a queue. Names of FIFO queues end in `.fifo`: S3 can't send to these.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=80).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn is_account(account: &str) -> bool {
    account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit())
}

impl FromStr for QueueName {
    type Err = NoQueue;

    fn from_str(text: &str) -> Result<Self, NoQueue> {
        let bad = || NoQueue(text.to_owned());
        if let Some(rest) = text.strip_prefix("sqs://") {
            let (account, name) = match rest.split_once('/') {
                Some((account, name)) => (Some(account), name),
                None => (None, rest),
            };
            if !is_name(name) || !account.is_none_or(is_account) {
                return Err(bad());
            }
            return Ok(Self::Named {
                name: name.to_owned(),
                account: account.map(str::to_owned),
                region: None,
            });
        }
        if text.starts_with("arn:") {
            let parts: Vec<_> = text.split(':').collect();
            let &["arn", partition, "sqs", region, account, name] = &*parts else { return Err(bad()) };
            if !partition.starts_with("aws") || region.is_empty() || !is_account(account) || !is_name(name) {
                return Err(bad());
            }
            let (account, region) = (Some(account.to_owned()), Some(region.to_owned()));
            return Ok(Self::Named { name: name.to_owned(), account, region });
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(bad)?;
        let (host, path) = rest.split_once('/').ok_or_else(bad)?;
        if !["http", "https"].contains(&scheme) || host.is_empty() || path.contains(['?', '#']) {
            return Err(bad());
        }
        if !path.rsplit('/').next().is_some_and(is_name) {
            return Err(bad());
        }
        // sqs.REGION.amazonaws.com, and the same in other partitions.
        let region = host.strip_prefix("sqs.").and_then(|rest| rest.split_once(".amazonaws."));
        Ok(Self::Url {
            url: text.to_owned(),
            server: format!("{scheme}://{host}"),
            region: region.map(|(region, _)| region.to_owned()),
        })
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, .. } => f.write_str(url),
            Self::Named { name, account: Some(account), .. } => write!(f, "sqs://{account}/{name}"),
            Self::Named { name, account: None, .. } => write!(f, "sqs://{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::QueueName;

    #[test]
    fn queues_are_named_in_four_ways() {
        let parse = |text: &str| text.parse::<QueueName>().expect(text);
        let named = |account: Option<&str>, region: Option<&str>| QueueName::Named {
            name: "q-1".to_owned(),
            account: account.map(str::to_owned),
            region: region.map(str::to_owned),
        };
        assert_eq!(parse("sqs://q-1"), named(None, None));
        assert_eq!(parse("sqs://111122223333/q-1"), named(Some("111122223333"), None));
        assert_eq!(
            parse("arn:aws-cn:sqs:cn-north-1:111122223333:q-1"),
            named(Some("111122223333"), Some("cn-north-1"))
        );
        let url = |url: &str, server: &str, region: Option<&str>| QueueName::Url {
            url: url.to_owned(),
            server: server.to_owned(),
            region: region.map(str::to_owned),
        };
        for (text, server, region) in [
            (
                "https://sqs.eu-central-1.amazonaws.com/111122223333/q",
                "https://sqs.eu-central-1.amazonaws.com",
                Some("eu-central-1"),
            ),
            (
                "https://sqs.cn-north-1.amazonaws.com.cn/111122223333/q",
                "https://sqs.cn-north-1.amazonaws.com.cn",
                Some("cn-north-1"),
            ),
            ("http://127.0.0.1:5000/123456789012/q", "http://127.0.0.1:5000", None),
        ] {
            assert_eq!(parse(text), url(text, server, region));
        }
    }

    #[test]
    fn other_texts_name_no_queue() {
        for text in [
            "",
            "q",
            "sqs://",
            "sqs://a/b",
            "sqs://q.fifo",
            "sqs://111122223333/q/r",
            "arn:aws:sns:eu-central-1:111122223333:q",
            "arn:aws:sqs::111122223333:q",
            "https://sqs.eu-central-1.amazonaws.com",
            "https://sqs.eu-central-1.amazonaws.com/111122223333/",
            "ftp://host/q",
            "s3://bucket/q",
        ] {
            let error = text.parse::<QueueName>().expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("sqs://NAME"), "{error}");
        }
    }
}
