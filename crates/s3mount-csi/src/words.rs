//! What s3mount says on its command line, in words of a volume. Who made the volume has no command line, and reads this in
//! the events of a pod or a claim.

use std::fmt;

/// Why s3mount does not mount, or does not make a volume, where the caller has to know it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It can't use what it was given.
    Unusable(String),
    /// The bucket is not there.
    NoBucket(String),
    /// The prefix of a new volume has objects of others.
    Occupied(String),
    /// The store, or STS, refuses whoever has these credentials.
    Denied(String),
    /// There are no credentials, or none that count.
    NoCredentials(String),
    /// The store, or STS, can't be reached, or fails.
    Unreachable(String),
    /// A disk of the node is full.
    DiskFull(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(text)
            | Self::NoBucket(text)
            | Self::Occupied(text)
            | Self::Denied(text)
            | Self::NoCredentials(text)
            | Self::Unreachable(text)
            | Self::DiskFull(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Refused {}

/// The end of what is said of a daemon that has ended early.
const SILENT_END: &str = "; look into its log, or run it with --foreground --debug";

/// Remedies that a volume does not have, and those that it has.
const REMEDIES: [(&str, &str); 3] = [
    (SILENT_END, "; look into its log, which is in the driver's folder on the node"),
    (
        "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with --profile, or pass --no-sign-request \
         for a public bucket",
        "; give the driver some, or set authenticationSource, or the option no-sign-request for a public bucket",
    ),
    (
        "; renew them, or choose others with --profile",
        "; renew those of the driver, the Secret or the pod, whichever authenticationSource says",
    ),
];

/// What a program has said that ended with the exit code for a command line that makes no sense: the first line says it.
pub(crate) fn of_usage(said: &str) -> Refused {
    let line = said.lines().next().unwrap_or_default();
    Refused::Unusable(of_volume(line.trim_start_matches("error: ")))
}

/// What a program has said that failed. `Err` if the caller has nothing to know but the text.
pub(crate) fn of_failure(said: &str) -> Result<Refused, String> {
    let text = of_volume(said);
    // A line that begins with a flag is about its value. Warnings may come before it.
    let is_of_flag = |line: &str| line.trim_start_matches("s3mount: ").starts_with("--");
    if said.lines().any(is_of_flag) || said.contains("is not the name of a bucket") {
        return Ok(Refused::Unusable(text));
    }
    let is = |words: &[&str]| words.iter().any(|words| said.contains(words));
    if said.contains("bucket \"") && is(&["\" does not exist at "]) {
        Ok(Refused::NoBucket(text))
    } else if is(&["is no volume of the driver"]) {
        Ok(Refused::Occupied(text))
    } else if is(&[" refuses access to ", "STS does not give "]) {
        Ok(Refused::Denied(text))
    } else if is(&[" does not accept the credentials "]) {
        Ok(Refused::NoCredentials(text))
    } else if is(&["cannot reach ", "STS cannot serve now ", ": no answer within "])
        || is(&[" does not serve bucket "]) && is(&[": Server", ": Throttled"])
    {
        Ok(Refused::Unreachable(text))
    } else if is(&["no credentials for bucket "]) {
        Ok(Refused::NoCredentials(text))
    } else if is(&["No space left on device", "Disk quota exceeded"]) {
        Ok(Refused::DiskFull(text))
    } else {
        Err(text)
    }
}

/// The same text without dashes before options, and with remedies that a volume has.
pub(crate) fn of_volume(said: &str) -> String {
    let lines = said.lines().map(|line| line.trim().trim_start_matches("s3mount: "));
    let mut lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    // A daemon that has said why it ends has not ended silently.
    if lines.iter().any(|line| !line.ends_with(SILENT_END)) {
        lines.retain(|line| !line.ends_with(SILENT_END));
    }
    let text = lines.join("; ");
    let text = REMEDIES.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let mut parts = text.split("--");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Names of buckets may have two hyphens, too.
        let is_inside = told.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric());
        let is_flag = !is_inside && part.starts_with(|c: char| c.is_ascii_lowercase());
        told.push_str(if is_flag { "the option " } else { "--" });
        told.push_str(part);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::{Refused, of_failure, of_usage, of_volume};

    #[test]
    fn flags_become_options() {
        for (said, told) in [
            (
                "bucket \"b\" is in region \"eu-west-1\"; pass --region eu-west-1",
                "bucket \"b\" is in region \"eu-west-1\"; pass the option region eu-west-1",
            ),
            ("s3mount: a\ns3mount: note: b (--gid)", "a; note: b (the option gid)"),
            ("no bucket x--usw2-az1--x-s3 -- yet", "no bucket x--usw2-az1--x-s3 -- yet"),
            (
                "it was killed; look into its log, or run it with --foreground --debug",
                "it was killed; look into its log, which is in the driver's folder on the node",
            ),
            ("a\ns3mount: it ended; look into its log, or run it with --foreground --debug", "a"),
        ] {
            assert_eq!(of_volume(said), told);
        }
    }

    #[test]
    fn the_caller_hears_whose_fault_it_is() {
        let said =
            "error: unexpected argument '--banana' found\n\n  tip: to pass it\n\nUsage: s3mount [OPTIONS]";
        assert_eq!(of_usage(said).to_string(), "unexpected argument 'the option banana' found");
        let missing =
            of_failure("bucket \"b\" does not exist at http://s; check its name, and --endpoint-url");
        assert!(matches!(missing, Ok(Refused::NoBucket(text)) if !text.contains("--")));
        let small = of_failure("warning: old\ns3mount: --part-size 1B is too small");
        assert!(
            matches!(small, Ok(Refused::Unusable(text)) if text.ends_with("option part-size 1B is too small"))
        );
        type Refusing = fn(String) -> Refused;
        for (said, kind) in [
            ("s3://b/p/ has objects, and is no volume of the driver", Refused::Occupied as Refusing),
            ("http://s refuses access to bucket \"b\" (AccessDenied: no)", Refused::Denied),
            ("no credentials for bucket \"b\": STS does not give arn:r (AccessDenied)", Refused::Denied),
            ("http://s does not accept the credentials for bucket \"b\"", Refused::NoCredentials),
            ("no credentials for bucket \"b\"", Refused::NoCredentials),
            ("cannot reach http://s for bucket \"b\"", Refused::Unreachable),
            ("no credentials for bucket \"b\": cannot reach STS for arn:r (refused)", Refused::Unreachable),
            ("no credentials for bucket \"b\": STS cannot serve now (Throttling)", Refused::Unreachable),
            ("no credentials for bucket \"b\": no answer within 20s; check it", Refused::Unreachable),
            ("http://s does not serve bucket \"b\": HeadBucket: Server, status 500", Refused::Unreachable),
        ] {
            assert_eq!(of_failure(said), Ok(kind(said.to_owned())));
        }
        assert_eq!(of_failure("the network is away"), Err("the network is away".to_owned()));
    }
}
