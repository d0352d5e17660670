//! `s3mount cp s3://A/KEY s3://B/KEY`: copies objects inside the store, so that no byte passes this machine.

mod bar;
mod explain;
mod listing;
mod place;
mod tree;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use s3mount_bucket::{Bucket, WritableBucket};
use s3mount_crt::{CrtConfig, usual_event_loops};
use s3mount_object::{Condition, Encryption};
use s3mount_settings::flags::access::AccessArgs;
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::directory_bucket;
use s3mount_settings::resolved::store::Store;
use s3mount_system::terminal;
use s3mount_system::threads::cores;
use s3mount_write::{Copied, Copier, CopyConfig, CopyError, CopyOrder, Encrypted};

use self::bar::{Bar, Sum};
use self::explain::{explain, explain_source};
use self::place::Place;
use crate::bench::runtime;

const COPYING: &str = "Copying";

/// The flags of `s3mount cp`.
#[derive(Clone, Debug, clap::Args)]
pub struct CopyArgs {
    /// Object to copy; with --recursive, the folder whose objects are copied, or a whole bucket.
    #[arg(value_name = "s3://BUCKET/KEY")]
    source: String,

    /// Key of the copy; a key that ends in a slash, or a bucket alone, is the folder that it goes to.
    #[arg(value_name = "s3://BUCKET/KEY")]
    target: String,

    /// Copy all objects below the source to the same names below the target.
    ///
    /// What is there already and equal is not copied again: the ETag or the checksum is the same, or,
    /// where nothing can be compared, the size is, and the copy is not older than its source.
    #[arg(short, long, help_heading = COPYING)]
    recursive: bool,

    /// Keep objects that are at the target, whatever they are.
    #[arg(long, help_heading = COPYING)]
    no_overwrite: bool,

    /// Say what would be copied, and copy nothing.
    #[arg(long, help_heading = COPYING)]
    dry_run: bool,

    /// Size of the parts in which a large object is copied, from 5MiB to 5GiB [default: by the object's
    /// size, from 64MiB to 256MiB].
    ///
    /// An object of up to a part (128MiB without this flag) is copied by one request.
    #[arg(long, value_name = "SIZE", help_heading = COPYING)]
    part_size: Option<Size>,

    /// Requests that copy at the same time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=1024),
        help_heading = COPYING
    )]
    concurrency: u16,

    /// Storage class of the copies, such as STANDARD_IA [default: that of each source].
    #[arg(long, value_name = "CLASS", help_heading = COPYING)]
    storage_class: Option<String>,

    /// Encryption of the copies: AES256, aws:kms or aws:kms:dsse [default: that of the source inside one
    /// bucket, else that of the target's bucket].
    #[arg(
        long,
        value_name = "METHOD",
        value_parser = ["AES256", "aws:kms", "aws:kms:dsse"],
        help_heading = COPYING
    )]
    sse: Option<String>,

    /// Key of the key management service for --sse aws:kms [default: the bucket's].
    #[arg(long, value_name = "KEY", requires = "sse", help_heading = COPYING)]
    sse_kms_key_id: Option<String>,

    /// Region of the source's bucket [default: found out at AWS, else as --region].
    #[arg(long, value_name = "REGION", help_heading = COPYING)]
    source_region: Option<String>,

    #[command(flatten)]
    access: AccessArgs,
}

/// How long requests are made again.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long the command waits for the ends of uploads that it gives up.
const GIVING_UP: Duration = Duration::from_secs(10);

const MIB: u64 = 1 << 20;

/// Both ends of the copies, and how they are made.
struct Copying {
    from: Place,
    to: Place,
    source: WritableBucket,
    target: WritableBucket,
    copier: Copier,
    /// Describes what is at the target.
    there: Copier,
    order: CopyOrder,
    at_once: usize,
    keeps: bool,
    is_dry: bool,
    bar: Bar,
}

/// Copies, and says what was copied.
pub fn run(args: &CopyArgs) -> anyhow::Result<()> {
    let (from, to) = (Place::new(&args.source)?, Place::new(&args.target)?);
    check(args, &from, &to)?;
    let start = Instant::now();
    let runtime = runtime(cores())?;
    let target_store = Store::new(to.bucket.clone(), &args.access)?;
    let source_store = Store::new(from.bucket.clone(), &args.access)?;
    let source_store = if from.bucket == to.bucket {
        source_store
    } else {
        source_store.of_another_bucket(args.source_region.as_deref())
    };
    let (copying, outcome) = runtime.block_on(async {
        let connect = async |store: &Store, place: &Place| {
            let config = store.crt_config(u32::from(args.concurrency) + 2)?;
            let config = CrtConfig { event_loops: usual_event_loops(), ..config };
            let (client, _) = store.connect(config, &place.key, 1).await?;
            anyhow::Ok(Bucket::from(Arc::new(client)).with_timeout(TIMEOUT))
        };
        let target = connect(&target_store, &to).await?;
        let source =
            if from.bucket == to.bucket { target.clone() } else { connect(&source_store, &from).await? };
        let copying = Copying::new(args, from, to, source, target);
        let copies =
            async { if args.recursive { copying.copy_tree().await } else { copying.copy_one().await } };
        let outcome = tokio::select! {
            outcome = copies => outcome,
            signal = tokio::signal::ctrl_c() => {
                signal?;
                Err(anyhow::anyhow!("interrupted; the same command goes on where this one has ended"))
            }
        };
        anyhow::Ok((copying, outcome))
    })?;
    // Uploads that are given up are aborted in the background.
    let ends = Instant::now() + GIVING_UP;
    while runtime.metrics().num_alive_tasks() > 0 && Instant::now() < ends {
        std::thread::sleep(Duration::from_millis(20));
    }
    let sum = copying.bar.finish();
    if outcome.is_ok() || args.recursive {
        terminal::result(&sum.line(start.elapsed(), args.dry_run));
    }
    for warning in sum.warnings() {
        terminal::notice(&warning);
    }
    outcome?;
    match sum.failed {
        0 => Ok(()),
        failed => bail!("{failed} objects were not copied; the same command tries these again"),
    }
}

/// Refuses what can't be meant.
fn check(args: &CopyArgs, from: &Place, to: &Place) -> anyhow::Result<()> {
    directory_bucket::check_objects(&to.bucket, args.storage_class.as_deref(), args.sse.as_deref())?;
    if let Some(size) = args.part_size {
        ensure!(
            (5 * MIB..=5 << 30).contains(&size.0),
            "--part-size {size} is not between 5MiB and 5GiB; leave it out, and it is chosen by the object's size"
        );
    }
    if args.recursive {
        let (below, into) = (from.folder(), to.folder());
        ensure!(
            from.bucket != to.bucket || !into.starts_with(&below),
            "the target {to} lies inside of the source {from}; name a target that does not, or the copies \
             would be copied again"
        );
        return Ok(());
    }
    ensure!(!from.is_folder(), "the source {from} is a folder; add --recursive to copy all that is below it");
    let target = to.named(from.name());
    ensure!(
        (&from.bucket, &from.key) != (&to.bucket, &target),
        "the source {from} and the target are the same object; name another target"
    );
    Ok(())
}

impl Copying {
    fn new(args: &CopyArgs, from: Place, to: Place, source: WritableBucket, target: WritableBucket) -> Self {
        let config = CopyConfig {
            part_bytes: args.part_size.map(|size| size.0),
            max_requests: usize::from(args.concurrency),
            timeout: TIMEOUT,
            resumes: true,
            ..CopyConfig::default()
        };
        let copier = Copier::new(source.clone(), target.clone(), config.clone());
        let there = Copier::new(target.clone(), target.clone(), config);
        let given = args
            .sse
            .clone()
            .map(|method| Encrypted::With(Encryption { method, kms_key_id: args.sse_kms_key_id.clone() }));
        let is_inside = from.bucket == to.bucket;
        let by_itself = if is_inside { Encrypted::Kept } else { Encrypted::AsBucket };
        let order = CopyOrder {
            source_bucket: Some(from.bucket.clone()).filter(|_| !is_inside),
            key: String::new(),
            encrypted: given.unwrap_or(by_itself),
            storage_class: args.storage_class.clone(),
            condition: args.no_overwrite.then_some(Condition::Absent),
        };
        Self {
            from,
            to,
            source,
            target,
            copier,
            there,
            order,
            at_once: usize::from(args.concurrency),
            keeps: args.no_overwrite,
            is_dry: args.dry_run,
            bar: Bar::new(),
        }
    }

    /// Copies one object.
    async fn copy_one(&self) -> anyhow::Result<()> {
        let key = self.to.named(self.from.name());
        let source = self.copier.describe(&self.from.key).await;
        let source = source.map_err(|error| explain_source(&self.from, error))?;
        self.bar.plan(source.description.meta.size);
        let order = CopyOrder { key: key.clone(), ..self.order.clone() };
        if self.is_dry {
            self.bar.say(&format!("{} -> {}", self.from, self.to.with(&key)));
            self.bar.count(|sum| sum.add(source.description.meta.size, None));
            return Ok(());
        }
        match self.copier.copy(&source, &order, &|bytes| self.bar.advance(bytes)).await {
            Ok(copied) => self.note(&copied),
            Err(CopyError::Taken { .. }) if self.keeps => self.bar.count(|sum| sum.kept += 1),
            Err(error) => return Err(explain(&self.from, &self.to.with(&key), error)),
        }
        Ok(())
    }

    fn note(&self, copied: &Copied) {
        self.bar.count(|sum: &mut Sum| sum.add(copied.size, Some(copied)));
    }
}
