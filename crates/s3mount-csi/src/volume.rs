//! What a volume is, as Kubernetes describes it: which objects, with which flags, and by whose credentials.

use nix::unistd::Gid;
use s3mount_settings::flags::size::Size;
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::credentials::{self, Credentials, Given};
use crate::protocol::{Mode, MountVolume, Texts, VolumeCapability};

/// What Kubernetes adds to the attributes of a volume begins so.
const OF_KUBERNETES: [&str; 2] = ["csi.storage.k8s.io/", "storage.kubernetes.io/"];

/// Set by Kubernetes for a volume that the pod itself describes.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// The attributes that this driver reads. `bucketName` is the name in AWS's driver.
const ATTRIBUTES: [&str; 7] =
    ["authenticationSource", "bucket", "bucketName", FOR_CLAIM, "mountOptions", "prefix", "roleArn"];

/// Set by this driver for a volume that it has made for a claim, whose pods may do everything.
pub(crate) const FOR_CLAIM: &str = "madeForClaim";

/// Flags that the driver gives by itself, or that have no meaning in a volume.
const OWN_FLAGS: [&str; 17] = [
    "allow-other",
    "allow-root",
    "audit-log",
    "bind",
    "config",
    "control-socket",
    "debug",
    "foreground",
    "fs-name",
    "journal",
    "keep-alive",
    "log-directory",
    "log-file",
    "log-level",
    "memory-floor",
    "options",
    "profile",
];

/// Flags that a pod may give, whose author need not be trusted by the machine: none names a file, a network or memory.
const FLAGS_OF_PODS: [&str; 21] = [
    "allow",
    "append-delay",
    "dir-mode",
    "direct-io",
    "expected-bucket-owner",
    "file-mode",
    "gid",
    "immutable",
    "metadata-ttl",
    "negative-metadata-ttl",
    "noexec",
    "part-size",
    "prefetch-initial",
    "prefetch-window",
    "preset",
    "random-read-size",
    "read-only",
    "region",
    "requester-pays",
    "uid",
    "verify",
];

/// How a volume is mounted. Pods whose volumes are described alike share a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// What names the volume in Kubernetes.
    pub(crate) id: String,
    /// `s3://BUCKET/PREFIX`.
    pub(crate) source: String,
    /// Flags of a mount.
    pub(crate) flags: Vec<String>,
    /// The `--memory-limit` among them, in bytes, if there is one.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) credentials: Credentials,
}

/// What this driver takes for volumes that do not say otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Pods that describe their volume by themselves may have the driver's own credentials.
    pub(crate) lends_credentials: bool,
}

/// A flag of a mount: its name, and its value if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flag(String, Option<String>);

impl Flag {
    /// Reads `--part-size=8MiB`, `part-size=8MiB`, `part_size 8MiB` or `read-only`.
    fn parse(text: &str) -> Result<Self, Status> {
        let text = text.trim().trim_start_matches('-');
        let (name, value) = match text.split_once(|c: char| c == '=' || c.is_whitespace()) {
            Some((name, value)) => (name, Some(value.trim().to_owned())),
            None => (text, None),
        };
        let name = name.replace('_', "-");
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        {
            return Err(Status::invalid_argument(format!(
                "{text:?} is not an option of a mount; write NAME or NAME=VALUE"
            )));
        }
        Ok(Self(name, value))
    }

    fn shown(&self) -> String {
        match self {
            Self(name, Some(value)) => format!("--{name}={value}"),
            Self(name, None) => format!("--{name}"),
        }
    }
}

/// The mode and the description of a mounted volume that a capability asks for.
///
/// # Errors
/// Says which capability is missing, or is one that a bucket does not have.
pub(crate) fn mounted(capability: Option<&VolumeCapability>) -> Result<(Mode, &MountVolume), Status> {
    let capability =
        capability.ok_or_else(|| Status::invalid_argument("the volume capability is missing"))?;
    if capability.block.is_some() {
        return Err(Status::invalid_argument("a bucket is no block device; set volumeMode: Filesystem"));
    }
    let mount = capability.mount.as_ref();
    let mount = mount
        .ok_or_else(|| Status::invalid_argument("the access type of the volume capability is missing"))?;
    let mode = capability.access_mode.map_or(Mode::Unknown, |mode| mode.mode());
    if mode == Mode::Unknown {
        return Err(Status::invalid_argument("the access mode of the volume capability is missing"));
    }
    Ok((mode, mount))
}

/// Whether nobody writes in this mode.
fn is_read_only(mode: Mode) -> bool {
    matches!(mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
}

/// The source of a volume: `s3://BUCKET/PREFIX`. The prefix is empty or ends in `/`.
pub(crate) fn source(bucket: &str, prefix: &str) -> String {
    let prefix = prefix.trim_start_matches('/');
    let slash = if prefix.is_empty() || prefix.ends_with('/') { "" } else { "/" };
    format!("s3://{bucket}/{prefix}{slash}")
}

/// The bucket and the prefix that attributes, or the parameters of a class, name.
pub(crate) fn place(attributes: &Texts) -> Result<(&str, &str), Status> {
    let bucket = attributes.get("bucket").or_else(|| attributes.get("bucketName"));
    let bucket = bucket.filter(|bucket| !bucket.is_empty());
    let bucket = bucket.ok_or_else(|| {
        Status::invalid_argument("the attribute bucket is missing: name the bucket of the volume")
    })?;
    Ok((bucket, attributes.get("prefix").map_or("", String::as_str)))
}

/// What a pod gets for a volume of these attributes.
///
/// # Errors
/// Names the attribute, the option or the secret that can't be taken.
pub(crate) fn read(
    id: &str,
    (attributes, secrets): (&Texts, &Texts),
    (mode, mount): (Mode, &MountVolume),
    defaults: Defaults,
) -> Result<(Volume, Given), Status> {
    let is_ephemeral = attributes.get(EPHEMERAL).is_some_and(|value| value != "false");
    for name in attributes.keys() {
        let is_known =
            ATTRIBUTES.contains(&name.as_str()) || OF_KUBERNETES.iter().any(|of| name.starts_with(of));
        if !is_known {
            let known = ATTRIBUTES.join(", ");
            return Err(Status::invalid_argument(format!(
                "{name:?} is no attribute of a volume; these are: {known}"
            )));
        }
    }
    let (bucket, prefix) = place(attributes)?;
    let (credentials, given) = credentials::read(attributes, secrets)?;
    if is_ephemeral && credentials == Credentials::Driver && !defaults.lends_credentials {
        return Err(Status::permission_denied(
            "a volume that its pod describes does not get the driver's credentials: set authenticationSource to pod, or \
             name a Secret by nodePublishSecretRef; the driver's flag --lend-credentials allows it for all pods",
        ));
    }
    let mut flags = flags(attributes, mount, is_ephemeral)?;
    let has = |flags: &[Flag], name: &str| flags.iter().any(|Flag(has, _)| has == name);
    if is_read_only(mode) {
        flags.retain(|Flag(name, _)| !name.starts_with("allow"));
    } else if !flags
        .iter()
        .any(|Flag(name, _)| name.starts_with("allow") || name == "read-only" || name == "immutable")
    {
        let is_for_claim = attributes.get(FOR_CLAIM).is_some_and(|value| value == "true");
        let rights = if is_for_claim && !is_ephemeral { "all" } else { "write" };
        flags.push(Flag("allow".to_owned(), Some(rights.to_owned())));
    }
    if !mount.volume_mount_group.is_empty() && !has(&flags, "gid") {
        let group = &mount.volume_mount_group;
        let group = group.parse().map(Gid::from_raw).map_err(|_| {
            Status::invalid_argument(format!("the volume's group {group:?} is not the number of a group"))
        })?;
        for (name, value) in
            [("gid", group.to_string().as_str()), ("dir-mode", "0775"), ("file-mode", "0664")]
        {
            if !has(&flags, name) {
                flags.push(Flag(name.to_owned(), Some(value.to_owned())));
            }
        }
    }
    let limit =
        flags.iter().find(|Flag(name, _)| name == "memory-limit").and_then(|Flag(_, value)| value.as_deref());
    let limit: Option<Result<Size, _>> = limit.map(str::parse);
    let limit = limit.transpose().map_err(|why| Status::invalid_argument(format!("memory-limit: {why}")))?;
    let volume = Volume {
        id: id.to_owned(),
        source: source(bucket, prefix),
        flags: flags.iter().map(Flag::shown).collect(),
        memory_bytes: limit.map(|limit| limit.0),
        credentials,
    };
    Ok((volume, given))
}

/// The flags that a volume names, in its `mountOptions` or among its attributes.
fn flags(attributes: &Texts, mount: &MountVolume, is_ephemeral: bool) -> Result<Vec<Flag>, Status> {
    let options = attributes.get("mountOptions").map(String::as_str).unwrap_or_default();
    let options = options.split(',').map(str::trim).filter(|option| !option.is_empty());
    let texts = mount.mount_flags.iter().map(String::as_str).chain(options);
    let flags = texts.map(Flag::parse).collect::<Result<Vec<_>, _>>()?;
    for Flag(name, _) in &flags {
        if OWN_FLAGS.contains(&name.as_str()) {
            return Err(Status::invalid_argument(format!(
                "the option {name:?} is not for volumes: the driver decides that by itself; leave it out"
            )));
        }
        if is_ephemeral && !FLAGS_OF_PODS.contains(&name.as_str()) {
            return Err(Status::invalid_argument(format!(
                "the option {name:?} is not for volumes that a pod describes, which may have {}: let an administrator \
                 make a PersistentVolume with it",
                FLAGS_OF_PODS.join(", ")
            )));
        }
    }
    Ok(flags)
}

/// Whether `id` is that of a volume which this driver has made.
pub(crate) fn is_made_here(id: &str) -> bool {
    id.starts_with("s3://")
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::{Defaults, Volume, read};
    use crate::credentials::Credentials;
    use crate::protocol::{Mode, MountVolume, Texts};

    const DEFAULTS: Defaults = Defaults { lends_credentials: false };

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn volume(attributes: &[(&str, &str)], mode: Mode, options: &[&str]) -> Result<Volume, tonic::Status> {
        let mount = MountVolume {
            mount_flags: options.iter().map(|option| (*option).to_owned()).collect(),
            volume_mount_group: String::new(),
        };
        let attributes = texts(attributes);
        read("id", (&attributes, &Texts::new()), (mode, &mount), DEFAULTS).map(|(volume, _)| volume)
    }

    #[test]
    fn options_are_taken_in_each_form_that_people_write() {
        let options = ["--part-size=4MiB", "prefetch_window 64MiB", "allow-delete", "memory-limit=512MiB"];
        let volume = volume(&[("bucketName", "b"), ("prefix", "/a/b")], Mode::MultiNodeMultiWriter, &options);
        let volume = volume.expect("a volume");
        assert_eq!(volume.source, "s3://b/a/b/");
        let expected =
            ["--part-size=4MiB", "--prefetch-window=64MiB", "--allow-delete", "--memory-limit=512MiB"];
        assert_eq!(
            (volume.flags, volume.memory_bytes),
            (expected.map(str::to_owned).to_vec(), Some(512 << 20))
        );
    }

    #[test]
    fn who_only_reads_may_write_nothing() {
        let flags =
            |mode, options: &[&str]| volume(&[("bucket", "b")], mode, options).expect("a volume").flags;
        assert_eq!(flags(Mode::MultiNodeReaderOnly, &["allow=all"]), Vec::<String>::new());
        assert_eq!(flags(Mode::SingleNodeWriter, &["read-only"]), ["--read-only"]);
        assert_eq!(flags(Mode::SingleNodeWriter, &[]), ["--allow=write"]);
    }

    #[test]
    fn a_pod_gets_neither_the_drivers_credentials_nor_its_files() {
        let mode = Mode::SingleNodeWriter;
        let ephemeral = ("csi.storage.k8s.io/ephemeral", "true");
        let refused = |attributes: &[(&str, &str)]| volume(attributes, mode, &[]).expect_err("refused");
        let status = refused(&[("bucket", "b"), ephemeral]);
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        let pod = [
            ("bucket", "b"),
            ("authenticationSource", "pod"),
            ("roleArn", "arn:aws:iam::123456789012:role/r"),
            ("csi.storage.k8s.io/pod.namespace", "n"),
            ("csi.storage.k8s.io/serviceAccount.name", "a"),
            ("csi.storage.k8s.io/serviceAccount.tokens", r#"{"sts.amazonaws.com":{"token":"a.b.c"}}"#),
            ephemeral,
        ];
        let taken = volume(&pod, mode, &[]).expect("a volume");
        let (namespace, account) = ("n".to_owned(), "a".to_owned());
        let role = "arn:aws:iam::123456789012:role/r".to_owned();
        assert_eq!(taken.credentials, Credentials::Pod { namespace, account, role });
        for option in ["cache=/etc", "endpoint-url=http://169.254.169.254", "memory-limit=1T"] {
            let status = refused(&[&pod[..], &[("mountOptions", option)]].concat());
            assert!(status.message().contains("not for volumes that a pod describes"), "{status}");
        }
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (attributes, options, word) in [
            (&[][..], &[][..], "bucket"),
            (&[("bucket", "b"), ("bukket", "c")], &[], "bukket"),
            (&[("bucket", "b")], &["log-file=/x"], "log-file"),
            (&[("bucket", "b")], &["--"], "NAME"),
            (&[("bucket", "b"), ("authenticationSource", "me")], &[], "driver"),
        ] {
            let status = volume(attributes, Mode::SingleNodeWriter, options).expect_err("refused");
            assert!(status.message().contains(word), "{status}");
            assert_eq!(status.code(), Code::InvalidArgument);
        }
    }
}
