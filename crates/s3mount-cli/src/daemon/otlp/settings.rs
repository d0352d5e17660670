//! What OpenTelemetry's own variables say: how often, with which headers, and what the mount is called.

use std::env;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::header::{HeaderName, HeaderValue};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use s3mount_settings::resolved::Config;

/// How often metrics are sent, unless a variable says otherwise: the default of OpenTelemetry.
const INTERVAL: Duration = Duration::from_secs(60);

/// The least time between two requests.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) interval: Duration,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    service: String,
    /// Attributes that the user has named.
    attributes: Vec<(String, String)>,
}

impl Settings {
    /// # Errors
    /// Fails if a variable makes no sense.
    pub(super) fn from_env() -> anyhow::Result<Self> {
        Self::parse(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn parse(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let named = |name: &'static str| variable(name).map(|value| (name, value));
        let interval = match named("OTEL_METRIC_EXPORT_INTERVAL") {
            None => INTERVAL,
            Some((name, value)) => {
                let millis = value.trim().parse();
                let millis =
                    millis.with_context(|| format!("{name} has to be milliseconds, not {value:?}"))?;
                Duration::from_millis(millis).max(LEAST_INTERVAL)
            }
        };
        let pairs = |found: Option<(&'static str, String)>| {
            found.map_or(Ok(Vec::new()), |(name, value)| {
                pairs(&value).with_context(|| format!("{name} has to be key=value,key=value"))
            })
        };
        let headers =
            named("OTEL_EXPORTER_OTLP_METRICS_HEADERS").or_else(|| named("OTEL_EXPORTER_OTLP_HEADERS"));
        let headers = pairs(headers)?.into_iter().map(|(name, value)| {
            let mut value =
                HeaderValue::try_from(value).with_context(|| format!("no value of a header: {name}"))?;
            value.set_sensitive(true);
            Ok((
                HeaderName::try_from(&name).with_context(|| format!("no name of a header: {name:?}"))?,
                value,
            ))
        });
        let headers = headers.collect::<anyhow::Result<_>>()?;
        let mut attributes = pairs(named("OTEL_RESOURCE_ATTRIBUTES"))?;
        let of_resource = attributes.iter().position(|(name, _)| name == "service.name");
        let of_resource = of_resource.map(|at| attributes.remove(at).1);
        let service = variable("OTEL_SERVICE_NAME").or(of_resource).unwrap_or_else(|| "s3mount".to_owned());
        Ok(Self { interval, headers, service, attributes })
    }

    /// What is said of the mount with each request. What the user has named comes last, and so is what counts.
    pub(super) fn resource(&self, config: &Config) -> Resource {
        let host =
            nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let source = config.shown.to_string();
        let mount = config.target.to_string();
        let known = [
            ("service.name", self.service.clone()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            // It stays when the mount starts again.
            ("service.instance.id", format!("{host}:{mount}")),
            ("host.name", host),
            ("process.pid", std::process::id().to_string()),
            ("s3mount.source", source),
            ("s3mount.directory", mount),
        ];
        let is_named = |name: &str| self.attributes.iter().any(|(named, _)| named == name);
        let known = known.into_iter().filter(|(name, _)| !is_named(name));
        let known = known.map(|(name, value)| key_value(name, value));
        let named = self.attributes.iter().map(|(name, value)| key_value(name, value.clone()));
        Resource { attributes: known.chain(named).collect(), ..Resource::default() }
    }
}

/// An attribute.
pub(super) fn key_value(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// The pairs of `key=value,key=value`. Values may have bytes as `%20`.
fn pairs(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(|pair| {
        // A value may be a secret, so it is not repeated.
        let (key, value) = pair.split_once('=').context("there is a part without a =")?;
        ensure!(!key.trim().is_empty(), "there is a part without a key");
        Ok((key.trim().to_owned(), decoded(value.trim())?))
    });
    pairs.collect()
}

fn decoded(value: &str) -> anyhow::Result<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digits = [rest.next(), rest.next()].map(Option::unwrap_or_default);
            let code = std::str::from_utf8(&digits).ok().and_then(|code| u8::from_str_radix(code, 16).ok());
            code.context("a % has to have two hexadecimal digits behind it")?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).context("it has to be UTF-8")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Settings;

    fn parse(variables: &[(&str, &str)]) -> anyhow::Result<Settings> {
        Settings::parse(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_are_read_as_opentelemetry_says() {
        let settings = parse(&[]).expect("settings");
        assert_eq!((settings.interval, settings.service.as_str()), (Duration::from_secs(60), "s3mount"));
        let settings = parse(&[
            ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a%3D, x-scope = 1 ,"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=job,rank=3"),
        ]);
        let settings = settings.expect("settings");
        assert_eq!(settings.interval, Duration::from_secs(5));
        assert_eq!(settings.headers[0].1.to_str().ok(), Some("Bearer a="));
        assert_eq!(
            (settings.headers[1].0.as_str(), settings.headers[1].1.as_bytes()),
            ("x-scope", &b"1"[..])
        );
        assert_eq!(settings.service, "job");
        assert_eq!(settings.attributes, [("rank".to_owned(), "3".to_owned())]);
    }

    #[test]
    fn what_makes_no_sense_is_told_without_the_secret() {
        for (variables, expected) in [
            (
                ("OTEL_METRIC_EXPORT_INTERVAL", "5s"),
                "OTEL_METRIC_EXPORT_INTERVAL has to be milliseconds, not \"5s\"",
            ),
            (
                ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
                "OTEL_EXPORTER_OTLP_HEADERS has to be key=value,key=value: there is a part without a =",
            ),
            (("OTEL_EXPORTER_OTLP_HEADERS", "key=%4"), "a % has to have two hexadecimal digits behind it"),
            (("OTEL_EXPORTER_OTLP_HEADERS", "a key=secret"), "no name of a header: \"a key\""),
        ] {
            let said = format!("{:#}", parse(&[variables]).expect_err("it makes no sense"));
            assert!(said.contains(expected) && !said.contains("secret"), "{said}");
        }
    }
}
