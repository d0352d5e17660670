//! The settings that nobody has set, and that are found out: from the machine, and from what the AWS CLI reads.

use serde_json::Value;

use super::store::{ca_bundle, endpoint_url, region};
use super::{journal, memory, metadata_limit};
use crate::flags::mount::MountArgs;
use crate::flags::size::Size;
use crate::resolved::environment::variable;

/// A setting that is found out.
#[derive(Clone, Debug)]
pub struct DetectedSetting {
    /// The name of its flag.
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// `environment`, `profile`, `machine`, or `flag` if it follows from another flag.
    pub(crate) kind: &'static str,
    /// Where it comes from, as a person may look it up.
    pub(crate) from: String,
}

/// The settings that a mount with `args` finds out.
///
/// # Errors
/// When a size that others follow from can't be used.
pub fn found(args: &MountArgs) -> anyhow::Result<Vec<DetectedSetting>> {
    let mut found = machine(args)?;
    found.extend(aws(args)?);
    let of_list = args.names_from.as_ref().map(|_| "names-from");
    if let Some(flag) = of_list.or(args.immutable.then_some("immutable")) {
        let for_ever =
            |name| DetectedSetting { name, value: "indefinite".into(), kind: "flag", from: flag.to_owned() };
        found.extend(["metadata-ttl", "negative-metadata-ttl"].map(for_ever));
    }
    Ok(found)
}

/// What follows from the machine.
fn machine(args: &MountArgs) -> anyhow::Result<Vec<DetectedSetting>> {
    let limit = memory::limit(args.memory_limit)?;
    let floor = memory::floor(args.memory_floor, limit)?;
    let (part, _) = memory::part(args.part_size, floor)?;
    let names = u64::try_from(metadata_limit(args.metadata_limit)?)?;
    let of = |is_set: bool, name, value: Value, from: &str| {
        (!is_set).then(|| DetectedSetting { name, value, kind: "machine", from: from.to_owned() })
    };
    let size = |bytes: u64| Value::from(Size(bytes).to_string());
    let journal = journal::dir(&args.writing.journal).map(|dir| dir.display().to_string());
    let all = [
        of(args.memory_limit.is_some(), "memory-limit", size(limit), "default, of this machine's memory"),
        of(args.part_size.is_some(), "part-size", size(part), "default, of memory-limit"),
        of(
            args.prefetch_window.is_some(),
            "prefetch-window",
            size(memory::window(limit)),
            "default, of memory-limit",
        ),
        of(args.metadata_limit.is_some(), "metadata-limit", size(names), "default, of this machine's memory"),
        of(
            args.max_threads.is_some(),
            "max-threads",
            memory::threads(None, ("--memory-floor", floor), args.writing.allows_writes())?
                .0
                .to_string()
                .into(),
            "default, of this machine's cores",
        ),
        of(args.uid.is_some(), "uid", nix::unistd::getuid().to_string().into(), "default, you"),
        of(args.gid.is_some(), "gid", nix::unistd::getgid().to_string().into(), "default, your group"),
        of(args.writing.journal.journal.is_some(), "journal", journal.ok().into(), "default, of this user"),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// What the AWS CLI would find, too.
fn aws(args: &MountArgs) -> anyhow::Result<Vec<DetectedSetting>> {
    let access = &args.access;
    let of = |is_set: bool, name, found: Option<(String, String)>| {
        let (value, from) = found.filter(|_| !is_set)?;
        let kind = if from.starts_with("profile") { "profile" } else { "environment" };
        Some(DetectedSetting { name, value: value.into(), kind, from })
    };
    let profile = variable("AWS_PROFILE").filter(|_| !access.no_sign_request);
    let bundle = ca_bundle(access).map(|(path, from)| (path.display().to_string(), from));
    let all = [
        of(access.region.is_some(), "region", region(access)),
        of(access.endpoint_url.is_some(), "endpoint-url", endpoint_url(access.endpoint_url.as_deref())?),
        of(access.profile.is_some(), "profile", profile.map(|name| (name, "AWS_PROFILE".to_owned()))),
        of(access.ca_bundle.is_some(), "ca-bundle", bundle),
    ];
    Ok(all.into_iter().flatten().collect())
}
