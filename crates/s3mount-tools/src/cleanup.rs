//! `s3mount cleanup`: puts in order what daemons that are gone have left in buckets.

mod item;

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use s3mount_settings::flags::access::AccessArgs;
use s3mount_settings::flags::age::Age;
use s3mount_settings::flags::journal::JournalArgs;
use s3mount_settings::resolved::journal;
use s3mount_settings::resolved::source::{self, Source};
use s3mount_settings::resolved::store::Store;
use s3mount_system::terminal;
use s3mount_write::{FoundJournal, Intent, Left, Owner, Record, Recovery};
use tokio::runtime::Runtime;

use self::item::Item;
use crate::bench::runtime;

/// The flags of `s3mount cleanup`.
#[derive(Clone, Debug, clap::Args)]
pub struct CleanupArgs {
    /// Only what was left here [default: wherever the journals say].
    #[arg(value_name = "[s3://]BUCKET[/PREFIX]")]
    source: Option<String>,

    #[command(flatten)]
    journal: JournalArgs,

    /// Say what would be done, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,

    /// Also abort uploads that are in no journal, whoever has begun them: other machines and other programs, too.
    ///
    /// Uploads that mounts of this machine have under way stay.
    #[arg(long, requires_all = ["source", "older_than"])]
    all: bool,

    /// With --all: only uploads that were begun so long ago, such as 2d or 12h.
    #[arg(long, value_name = "TIME", requires = "all")]
    older_than: Option<Age>,

    /// Give a request up after this many seconds, and go on with the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    #[command(flatten)]
    access: AccessArgs,
}

/// One run of the command.
struct Cleanup<'a> {
    args: &'a CleanupArgs,
    runtime: Runtime,
    /// What the command line names.
    only: Option<(Store, Source)>,
    has_failed: bool,
}

/// Cleans up. Returns failure if it could not clean up everything.
pub fn run(args: &CleanupArgs) -> anyhow::Result<ExitCode> {
    let only = args.source.as_deref().map(|named| source::parse(named, None)).transpose()?;
    let only =
        only.map(|source| Ok::<_, anyhow::Error>((Store::new(source.bucket.clone(), &args.access)?, source)));
    let only = only.transpose()?;
    ensure!(
        only.is_some() || args.access.is_default(),
        "the store was named, and no bucket; give the bucket, too: s3mount cleanup s3://BUCKET"
    );
    let dir = journal::dir(&args.journal)?;
    let found =
        FoundJournal::all(&dir).with_context(|| format!("cannot read the journals in {}", dir.display()))?;
    let mut cleanup = Cleanup { args, runtime: runtime(2)?, only, has_failed: false };
    let mut in_use = HashSet::new();
    for found in found {
        match found {
            FoundJournal::Dead(left) => cleanup.clean(left),
            FoundJournal::Live(owner, records) => {
                in_use.extend(records.into_iter().filter_map(|record| match record.intent {
                    Intent::Upload { id, .. } => id,
                    Intent::Rename { .. } => None,
                }));
                cleanup.note(&owner, "is alive; what it has under way is left alone");
            }
            FoundJournal::Foreign(owner) => {
                cleanup.note(&owner, "is on another machine, and may be alive; run this command there");
            }
            FoundJournal::Unreadable(path, error) => {
                cleanup
                    .fail(&format!("cannot read {}: {error}; delete it if nothing needs it", path.display()));
            }
        }
    }
    if args.all {
        cleanup.abort_all(&in_use);
    }
    Ok(if cleanup.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Cleanup<'_> {
    fn fail(&mut self, text: &str) {
        self.has_failed = true;
        terminal::notice(text);
    }

    fn note(&self, owner: &Owner, text: &str) {
        if self.wants(owner) {
            let Owner { pid, host, store, .. } = owner;
            terminal::notice(&format!("process {pid} of {host}, which mounts {}, {text}", store.bucket));
        }
    }

    /// Whether the command line asks for what this daemon has left.
    fn wants(&self, owner: &Owner) -> bool {
        self.only.as_ref().is_none_or(|(store, _)| store.identity() == Store::at(&owner.store).identity())
    }

    fn wants_key(&self, record: &Record) -> bool {
        let prefix = self.only.as_ref().map_or("", |(_, source)| source.prefix.as_str());
        match &record.intent {
            Intent::Upload { key, .. } => key.starts_with(prefix),
            Intent::Rename { from, to, .. } => from.starts_with(prefix) || to.starts_with(prefix),
        }
    }

    /// Puts in order what one daemon has left.
    fn clean(&mut self, mut left: Left) {
        if !self.wants(left.owner()) {
            return;
        }
        let records: Vec<(u64, Record)> =
            left.records().iter().filter(|(_, record)| self.wants_key(record)).cloned().collect();
        let owner = left.owner().clone();
        if let Some((_, first)) = records.first() {
            let store =
                self.only.as_ref().map_or_else(|| Store::at(&owner.store), |(store, _)| store.clone());
            let recovery = match self.connect(&store, first) {
                Ok(recovery) => recovery,
                Err(error) => return self.fail(&format!("{error:#}")),
            };
            for (slot, record) in &records {
                let recovered = self.runtime.block_on(recovery.recover(record));
                let item = Item::new(&owner, record, &recovered, self.args.dry_run);
                self.has_failed |= recovered.is_err();
                item.print(self.args.json);
                if item.is_over()
                    && let Err(error) = left.done(*slot)
                {
                    self.fail(&format!("cannot write the journal: {error}"));
                }
            }
        }
        if !self.args.dry_run
            && let Err(error) = left.close()
        {
            self.fail(&format!("cannot delete a journal: {error}"));
        }
    }

    fn connect(&self, store: &Store, record: &Record) -> anyhow::Result<Recovery> {
        let (Intent::Upload { key: path, .. } | Intent::Rename { from: path, .. }) = &record.intent;
        self.recovery(store, path.rsplit_once('/').map_or("", |(parent, _)| parent))
    }

    fn recovery(&self, store: &Store, prefix: &str) -> anyhow::Result<Recovery> {
        let (client, _) = self.runtime.block_on(store.connect(store.crt_config(64)?, prefix, 1))?;
        let timeout = Duration::from_secs(self.args.timeout);
        Ok(Recovery::new(Arc::new(client), timeout, self.args.dry_run))
    }

    /// Aborts all uploads that are old enough, except those `in_use`.
    fn abort_all(&mut self, in_use: &HashSet<String>) {
        let (Some((store, source)), Some(Age(age))) = (&self.only, self.args.older_than) else { return };
        let (store, prefix) = (store.clone(), source.prefix.clone());
        let uploads = self.recovery(&store, &prefix).and_then(|recovery| {
            let listed =
                self.runtime.block_on(recovery.uploads(&prefix)).context("cannot list the uploads")?;
            Ok((recovery, listed))
        });
        let (recovery, uploads) = match uploads {
            Ok(found) => found,
            Err(error) => return self.fail(&format!("{error:#}")),
        };
        let before = SystemTime::now().checked_sub(age).unwrap_or(UNIX_EPOCH);
        for listed in uploads {
            if listed.initiated <= before && !in_use.contains(&listed.upload.id) {
                let aborted = self.runtime.block_on(recovery.abort(&listed.upload));
                self.has_failed |= aborted.is_err();
                Item::of_upload(&store.bucket, &listed, aborted, self.args.dry_run).print(self.args.json);
            }
        }
    }
}
