//! `s3mount doctor`: looks at all that a mount needs, changes nothing, and says what to do.

mod credentials;
mod disk;
mod finding;
mod folder;
mod machine;
mod queue;
mod store;

use std::process::ExitCode;

use s3mount_settings::flags::mount::{MountArgs, optional};
use s3mount_settings::resolved::shown::{Shown, Subtree};
use s3mount_settings::resolved::{Config, defaults};
use s3mount_system::{mounts, terminal};
use serde_json::json;

use self::finding::{CheckStatus, Finding};
use self::machine::Machine;

/// The flags of `s3mount doctor`.
#[derive(Debug, clap::Parser)]
#[command(mut_args(optional))]
pub struct DoctorArgs {
    #[command(flatten)]
    pub(crate) mount: MountArgs,

    /// Also write an object of no bytes below the prefix, and delete it.
    ///
    /// Without this flag nothing is written, and whether it may be is not known.
    #[arg(long, conflicts_with = "buckets")]
    pub(crate) try_write: bool,

    /// Print JSON: each check with its state, what was found and what to do.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs all checks that the arguments allow, and prints what they found. The exit code is 1 if one failed.
///
/// # Errors
/// When nothing can be checked at all.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    let mut report = |finding: Finding| {
        if !args.json {
            terminal::result(&finding.line());
        }
        findings.push(finding);
    };
    let mount = &args.mount;
    report(settings(mount));
    if let Err(error) = mounts::check() {
        report(Finding::fail("/proc", format!("{error:#}"), ""));
    }
    for finding in machine::check(&Machine::here(), mount) {
        report(finding);
    }
    for finding in disk::check_all(&mount.cache, mount.max_cache_size.map(|size| size.0)) {
        report(finding);
    }
    if let (_, Some(dir)) = mount.places() {
        report(folder::check(dir, mount.nonempty));
    }
    if let Some(list) = mount.names_from.as_ref().filter(|list| !list.starts_with("s3://")) {
        report(match std::fs::metadata(list) {
            Ok(_) => Finding::skip("names", format!("{list} is there; a mount reads it")),
            Err(error) => Finding::fail("names", format!("{list}: {error}"), "name a list that is there"),
        });
    }
    if mount.has_bucket() {
        report(credentials::check(&mount.access));
        match Shown::new(mount) {
            Ok(shown) => {
                for subtree in shown.subtrees() {
                    if shown.bucket().is_none() {
                        report(Finding::ok("bucket", format!("{subtree}:")));
                    }
                    let Subtree { store, prefix } = subtree;
                    store::check(store, prefix, args.try_write, mount.events_from.as_ref(), &mut report)?;
                }
            }
            Err(error) => report(Finding::fail("endpoint", format!("{error:#}"), "")),
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (failures, warnings) = (count(CheckStatus::Fail), count(CheckStatus::Warn));
    if args.json {
        let checks: Vec<_> = findings.iter().map(Finding::json).collect();
        terminal::result(&format!("{:#}", json!({ "ok": failures == 0, "checks": checks })));
    } else {
        terminal::result(&summary(failures, warnings, mount.has_bucket()));
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summary(failures: usize, warnings: usize, has_bucket: bool) -> String {
    let counted = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let more = if has_bucket { "" } else { "; give a bucket to check the store, too" };
    format!("{}, {}{more}", counted(failures, "failure"), counted(warnings, "warning"))
}

/// Whether the flags, the environment and the file make a mount.
fn settings(mount: &MountArgs) -> Finding {
    let checked = match mount.places() {
        (_, Some(_)) if mount.has_bucket() => Config::new(mount).map(|config| config.warnings),
        _ => defaults::found(mount).map(|_| Vec::new()),
    };
    match checked {
        Ok(warnings) if warnings.is_empty() => {
            Finding::ok("settings", "they can be used; s3mount config shows them")
        }
        Ok(warnings) => Finding::warn("settings", warnings.join("; "), ""),
        Err(error) => Finding::fail("settings", format!("{error:#}"), ""),
    }
}
