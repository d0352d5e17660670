//! What a volume is, as Kubernetes describes it: which objects, with which flags, and by whose credentials.

mod options;

use s3mount_settings::resolved::source as sources;
use serde::{Deserialize, Serialize};
use tonic::Status;

use self::options::Flag;
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

/// The longest name that a bucket has at any store.
const LONGEST_BUCKET: usize = 255;

/// The number that stands for no group.
const NO_GROUP: u32 = u32::MAX;

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

impl Volume {
    /// Whether pods may write to it.
    pub(crate) fn is_written(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("--allow"))
    }

    /// Whether what programs have closed may be in the bucket only later.
    pub(crate) fn delays_writes(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("--append-delay") || flag.starts_with("--write-behind"))
    }

    /// What distinguishes this volume from one that is asked for `now`, in words of who describes volumes. Credentials that
    /// may replace these do not.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut add = |what: &str, before: &str, now: &str| {
            let shown = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
            differences.push(format!("{what} (before: {}, now: {})", shown(before), shown(now)));
        };
        if self.id != now.id {
            add("the volume", &self.id, &now.id);
        }
        if self.source != now.source {
            add("the bucket or the prefix", &self.source, &now.source);
        }
        if self.flags != now.flags {
            let only = |these: &[String], those: &[String]| {
                let only = these.iter().filter(|flag| !those.contains(flag));
                only.map(|flag| flag.trim_start_matches('-')).collect::<Vec<_>>().join(", ")
            };
            // Both are none if the options have only another order.
            add("the options", &only(&self.flags, &now.flags), &only(&now.flags, &self.flags));
        }
        if !now.credentials.replace(&self.credentials) {
            add("the credentials", &self.credentials.to_string(), &now.credentials.to_string());
        }
        differences
    }
}

/// What this driver takes for volumes that do not say otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Pods that describe their volume by themselves may have the driver's own credentials.
    pub(crate) lends_credentials: bool,
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
    let number = capability.access_mode.map_or(Mode::Unknown.into(), |mode| mode.mode);
    let mode = match Mode::try_from(number) {
        Ok(Mode::Unknown) => {
            return Err(Status::invalid_argument("the access mode of the volume capability is missing"));
        }
        Ok(mode) => mode,
        Err(_) => {
            return Err(Status::invalid_argument(format!(
                "the access mode {number} of the volume capability is none that this driver knows"
            )));
        }
    };
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
///
/// # Errors
/// Says why they name none.
pub(crate) fn place(attributes: &Texts) -> Result<(&str, &str), Status> {
    let find = |name: &str| attributes.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let bucket = match (find("bucket"), find("bucketName")) {
        (Some(bucket), Some(other)) if bucket != other => {
            return Err(Status::invalid_argument(format!(
                "the attributes bucket {bucket:?} and bucketName {other:?} name two buckets; leave one of them out"
            )));
        }
        (bucket, other) => bucket.or(other).ok_or_else(|| {
            Status::invalid_argument("the attribute bucket is missing: name the bucket of the volume")
        })?,
    };
    check_bucket(bucket).map_err(Status::invalid_argument)?;
    let prefix = find("prefix").unwrap_or_default();
    options::one_line("the attribute prefix", prefix)?;
    Ok((bucket, prefix))
}

/// Checks that a bucket may have this name at some store.
fn check_bucket(bucket: &str) -> Result<(), String> {
    let remedy = "name the bucket alone, and what is below it by the attribute prefix";
    if bucket.contains("://") {
        return Err(format!("the attribute bucket {bucket:?} is a URL; {remedy}"));
    }
    if sources::split(bucket).0 != bucket {
        return Err(format!("the attribute bucket {bucket:?} has a slash; {remedy}"));
    }
    let is_arn = bucket.starts_with("arn:");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c) || is_arn && c == '/';
    if bucket.len() > LONGEST_BUCKET || !bucket.chars().all(is_plain) {
        return Err(format!(
            "the attribute bucket {bucket:?} is not the name of a bucket: those have letters, digits, hyphens, dots and \
             underscores"
        ));
    }
    Ok(())
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
    if attributes.get(FOR_CLAIM).is_some_and(|value| value != "true") {
        return Err(Status::invalid_argument(format!(
            "the attribute {FOR_CLAIM} is set by the driver, to \"true\"; leave it out"
        )));
    }
    let (bucket, prefix) = place(attributes)?;
    let (credentials, given) = credentials::read(attributes, secrets)?;
    if is_ephemeral && credentials == Credentials::Driver && !defaults.lends_credentials {
        return Err(Status::permission_denied(
            "a volume that its pod describes does not get the driver's credentials: set authenticationSource to pod, or \
             name a Secret by nodePublishSecretRef; the driver's flag --lend-credentials allows it for all pods",
        ));
    }
    let mut flags = options::read(attributes, mount, is_ephemeral)?;
    let has = |flags: &[Flag], name: &str| flags.iter().any(|Flag(has, _)| has == name);
    if credentials != Credentials::Driver && has(&flags, "no-sign-request") {
        return Err(Status::invalid_argument(format!(
            "the option \"no-sign-request\" takes no credentials, and authenticationSource {} gives some; leave one of \
             them out",
            credentials.source()
        )));
    }
    if is_read_only(mode) {
        flags.retain(|Flag(name, _)| !name.starts_with("allow"));
    } else if !flags
        .iter()
        .any(|Flag(name, _)| name.starts_with("allow") || name == "read-only" || name == "immutable")
    {
        let is_for_claim = attributes.contains_key(FOR_CLAIM);
        let rights = if is_for_claim && !is_ephemeral { "all" } else { "write" };
        flags.push(Flag("allow".to_owned(), Some(rights.to_owned())));
    }
    if !mount.volume_mount_group.is_empty() && !has(&flags, "gid") {
        let group = group(&mount.volume_mount_group)?.to_string();
        for (name, value) in [("gid", group.as_str()), ("dir-mode", "0775"), ("file-mode", "0664")] {
            if !has(&flags, name) {
                flags.push(Flag(name.to_owned(), Some(value.to_owned())));
            }
        }
    }
    let limit = options::check(&flags)?;
    let volume = Volume {
        id: id.to_owned(),
        source: source(bucket, prefix),
        flags: flags.iter().map(Flag::shown).collect(),
        memory_bytes: limit.map(|limit| limit.0),
        credentials,
    };
    Ok((volume, given))
}

/// The group that shall have the files of a volume.
fn group(text: &str) -> Result<u32, Status> {
    let number = text.parse().ok().filter(|number| *number != NO_GROUP);
    number.ok_or_else(|| {
        Status::invalid_argument(format!("the volume's group {text:?} is not the number of a group"))
    })
}

/// Whether `id` is that of a volume which this driver has made.
pub(crate) fn is_made_here(id: &str) -> bool {
    id.starts_with("s3://") && id.ends_with('/') && !id.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::{Defaults, Volume, group, is_made_here, read};
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
    fn attributes_that_contradict_are_refused() {
        let role = ("roleArn", "arn:aws:iam::123456789012:role/r");
        for (attributes, options, word) in [
            (&[("bucket", "b"), ("bucketName", "c")][..], &[][..], "two buckets"),
            (&[("bucket", "s3://b/p")], &[], "is a URL; name the bucket alone"),
            (&[("bucket", "b/p")], &[], "has a slash"),
            (&[("bucket", "b c")], &[], "is not the name of a bucket"),
            (&[("bucket", "b\0")], &[], "is not the name of a bucket"),
            (&[("bucket", "b"), ("prefix", "a\nb/")], &[], "the attribute prefix"),
            (&[("bucket", "b"), role], &[], "authenticationSource: pod"),
            (&[("bucket", "b"), ("madeForClaim", "yes")], &[], "madeForClaim"),
            (&[("bucket", "b"), ("mountOptions", "uid=1")], &["uid=1"], "the attribute mountOptions"),
        ] {
            let status = volume(attributes, Mode::SingleNodeWriter, options).expect_err("refused");
            assert!(status.message().contains(word), "{status}");
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
        let both = [("bucket", "b"), ("bucketName", "b")];
        assert!(volume(&both, Mode::SingleNodeWriter, &[]).is_ok());
        let access_point = [("bucket", "arn:aws:s3:eu-west-1:123456789012:accesspoint/a")];
        assert!(volume(&access_point, Mode::SingleNodeWriter, &[]).is_ok());
    }

    #[test]
    fn a_volume_with_credentials_signs_its_requests() {
        let secrets = texts(&[("key_id", "a"), ("access_key", "b")]);
        let mount = MountVolume {
            mount_flags: vec!["no-sign-request".to_owned()],
            volume_mount_group: String::new(),
        };
        let attributes = texts(&[("bucket", "b")]);
        let read =
            |secrets: &Texts| read("id", (&attributes, secrets), (Mode::SingleNodeWriter, &mount), DEFAULTS);
        let status = read(&secrets).expect_err("refused");
        assert!(status.message().contains("authenticationSource secret"), "{status}");
        assert!(read(&Texts::new()).is_ok());
    }

    #[test]
    fn a_group_is_one_that_files_can_have() {
        assert_eq!(group("1000").expect("a group"), 1000);
        for text in ["4294967295", "4294967296", "-1", "staff"] {
            assert_eq!(group(text).expect_err("no group").code(), Code::InvalidArgument);
        }
    }

    #[test]
    fn what_differs_is_named() {
        let read = |attributes: &[(&str, &str)], options: &[&str]| {
            volume(attributes, Mode::SingleNodeWriter, options).expect("a volume")
        };
        let before = read(&[("bucket", "b")], &["gid=1", "immutable"]);
        let mut now = read(&[("bucket", "c")], &["gid=2", "immutable"]);
        now.credentials = Credentials::Secret { sha256: "x".to_owned() };
        let expected = [
            "the bucket or the prefix (before: s3://b/, now: s3://c/)",
            "the options (before: gid=1, now: gid=2)",
            "the credentials (before: those of the driver, now: those of a Secret)",
        ];
        assert_eq!(before.differences(&now), expected);
        assert_eq!(before.differences(&before), Vec::<String>::new());
    }

    #[test]
    fn only_whole_ids_are_of_this_driver() {
        assert!(is_made_here("s3://b/claims/pvc-1/"));
        assert!(!is_made_here("b/pvc-1") && !is_made_here("s3://b/pvc-1") && !is_made_here("s3://b\0/"));
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (attributes, options, word) in [
            (&[][..], &[][..], "bucket"),
            (&[("bucket", "b"), ("bukket", "c")], &[], "bukket"),
            (&[("bucket", "b")], &["log-file=/x"], "log-file"),
            (&[("bucket", "b")], &["banana"], "banana"),
            (&[("bucket", "b")], &["--"], "NAME"),
            (&[("bucket", "b"), ("authenticationSource", "me")], &[], "driver"),
        ] {
            let status = volume(attributes, Mode::SingleNodeWriter, options).expect_err("refused");
            assert!(status.message().contains(word), "{status}");
            assert_eq!(status.code(), Code::InvalidArgument);
        }
    }
}
