//! The command line: the flags of a mount, or one of the commands. The help of each is written here, or beside its
//! flags.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use s3mount_csi::CsiArgs;
use s3mount_fuse::MountId;
use s3mount_settings::flags::mount::MountArgs;
use s3mount_settings::show::ConfigArgs;
use s3mount_tools::bench::BenchArgs;
use s3mount_tools::cache::CacheArgs;
use s3mount_tools::cleanup::CleanupArgs;
use s3mount_tools::cp::CopyArgs;
use s3mount_tools::doctor::DoctorArgs;
use s3mount_tools::names::NamesArgs;
use s3mount_tools::pending::{FlushArgs, PendingArgs};
use s3mount_tools::stats::StatsArgs;
use s3mount_tools::top::TopArgs;
use s3mount_tools::trace::TraceArgs;
use s3mount_tools::tune::TuneArgs;
use s3mount_tools::volume::VolumeArgs;
use s3mount_tools::warm::WarmArgs;

/// A folder that is not given is named by clap as if it could be left out, since `--buckets` takes the bucket's place.
const USAGE: &str = "\
s3mount [OPTIONS] <[s3://]BUCKET[/PREFIX]> <DIR>
       s3mount [OPTIONS] --buckets <NAME=BUCKET[/PREFIX],...> <DIR>
       s3mount <COMMAND>";

/// Mount an S3 bucket as a folder, and read at the speed of the network.
///
/// Reads become parallel ranged GETs that run ahead of the reader, inside a hard memory bound.
/// The mount is read-only unless a flag allows more. `s3mount umount DIR` takes it down.
///
/// The defaults need no tuning. Sizes are written 8MiB, 1.5G or 512k (powers of 1024), 8MB (of
/// 1000), or in bytes. The command returns when the mount answers, with exit code 0. It
/// returns 1 when it cannot mount, and 2 when it cannot read a flag.
#[derive(Debug, Parser)]
#[command(
    override_usage = USAGE,
    name = "s3mount",
    version,
    long_version = crate::version::long(),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a bucket; the word may be left out.
    Mount(Box<MountArgs>),
    /// Unmount a folder that s3mount has mounted.
    ///
    /// The command returns when the mount is gone. A mount in use stays, and the command names the
    /// processes that use it. A mount whose daemon was killed is taken down too.
    Umount {
        /// Folder where the bucket is mounted.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Unmount even while the mount is in use.
        ///
        /// The folder is free at once. Programs can go on reading the files that they have open. The
        /// daemon ends when the last of these files is closed.
        #[arg(short, long)]
        lazy: bool,
    },
    /// Wait until all files that a mount with --write-behind has taken are uploaded.
    ///
    /// Says how many that are. The exit code is 1 if some can't be uploaded: they wait on.
    Flush(FlushArgs),
    /// Show the files that wait in --write-behind, and decide on those that the store has refused.
    ///
    /// A file is refused, for example, if somebody else has written its object meanwhile. Its bytes stay until
    /// they are uploaded again, saved elsewhere, or dropped.
    Pending(PendingArgs),
    /// List a tree, or a list of files, through a mount before a job needs it; and read the files.
    ///
    /// Names are then known for --metadata-ttl. With --read the kernel's page cache then holds the
    /// files' bytes, if there is memory for all of them; with --to-cache the mount's disk cache does.
    Warm(WarmArgs),
    /// Make the index of a list of objects, for many mounts with --names-from.
    ///
    /// Each mount would make it by itself, once on each machine. A mount that is given the index begins at once, from
    /// any disk or network file system. The list is an S3 Inventory, a .csv, .tsv or .parquet; see docs/LISTS.md.
    Names(Box<NamesArgs>),
    /// Show, check and tidy what mounts keep on a disk (--cache), also while they use it.
    Cache(CacheArgs),
    /// Print the settings that a mount would have, and where each comes from.
    ///
    /// Takes all flags of a mount. A setting comes from its flag, else from the environment, else from the file of
    /// --config, else from the preset, else it has its default. See docs/CONFIGURATION.md.
    Config(Box<ConfigArgs>),
    /// Have the daemons of mounts replaced by this program, while programs use the mounts.
    ///
    /// After a new version was installed at the same path. Takes mounts with --keep-alive, or from a systemd unit that
    /// stores descriptors. Open files stay open, and calls under way wait for a moment. Files that are open for writing have
    /// to be closed first, but for those that --write-spool keeps: the daemon waits 30 seconds for that, and goes on as it is if
    /// they are not.
    Upgrade {
        /// Folder of the mount.
        #[arg(value_name = "DIR", required_unless_present = "all")]
        dir: Option<PathBuf>,
        /// All mounts of this machine.
        #[arg(long, conflicts_with = "dir")]
        all: bool,
    },
    /// Copy objects inside the store: from key to key, from bucket to bucket, or whole folders.
    ///
    /// No byte passes this machine: S3 copies large objects in parts, many at a time. Each copy has the
    /// version that was there when the copy began, with its metadata, its tags and its headers, and is compared
    /// with it by checksum. A copy that was interrupted goes on where it ended when the command is
    /// repeated, if S3 keeps a CRC-64/NVME of the source, with the storage class and the encryption that the
    /// first run has named. The command returns 1 if an object was not copied.
    Cp(Box<CopyArgs>),
    /// Abort the uploads, and undo or finish the folder renames, of mounts that were killed.
    ///
    /// Mounts that may write note their uploads and folder renames in a journal. This command goes through the
    /// journals of this machine, and cleans up after mounts that are gone. It leaves alone what mounts that are alive
    /// have under way, and what is in no journal, unless --all is given. The exit code is 1 if it could not clean up
    /// everything.
    Cleanup(Box<CleanupArgs>),
    /// Look at all that a mount needs, and say what is wrong and what to do.
    ///
    /// Checks this machine; with a bucket, the store and what the credentials may do there; with a folder, whether it can
    /// be mounted at. Takes all flags of a mount, and checks what they ask for. Nothing is changed or written. The exit
    /// code is 1 if something would fail, and 0 also with warnings.
    Doctor(Box<DoctorArgs>),
    /// Show what a mount does now, and whether its readers wait for storage.
    ///
    /// Throughput, requests in flight, windows, memory by owner, where reads find their bytes, who waits for
    /// how long, and what the requests have cost. Rates and waits are taken over --interval. A process waits
    /// while one of its calls has no answer for half a millisecond or more. What the kernel's page cache
    /// answers never comes to the mount. Only the user who mounted may ask, and root where the mount lets it
    /// in.
    Stats(StatsArgs),
    /// Show what a mount does on the whole terminal, until q or Ctrl-C.
    ///
    /// The same as stats --watch, with the processes and the files that read, and how throughput went. A
    /// terminal of 40 columns is enough. With $NO_COLOR set it uses no colours.
    Top(TopArgs),
    /// Record what a mount does for a while, and write it down as one HTML page.
    ///
    /// The page has a timeline of the requests to the store (when each was sent, when its first and its last
    /// byte came), memory and windows, throughput, and the waits of each process. It loads nothing from
    /// anywhere, and shows the names of files. The mount records only meanwhile.
    Trace(TraceArgs),
    /// Measure how fast an object is read, for each size of part and number of connections.
    ///
    /// Each measurement is taken twice: by the S3 client alone, and through a mount of its own. The
    /// table goes to standard output as it grows, s3mount-bench.json and s3mount-bench.html (with
    /// plots, and the timeline of the best run's parts) to --output.
    Bench(Box<BenchArgs>),
    /// Find the flags that suit a bucket, by a short measurement of a few of its objects.
    Tune(Box<TuneArgs>),
    /// Serve Kubernetes as a driver of the Container Storage Interface: buckets as volumes of pods.
    ///
    /// Answers at --endpoint until SIGTERM. Each volume of the node is a mount of its own, with --keep-alive, that all its
    /// pods share. See docs/KUBERNETES.md.
    Csi(CsiArgs),
    /// Print the completions of a shell, for its start file: source <(s3mount completions bash).
    ///
    /// Packages have them, and manual pages, already.
    Completions {
        /// Shell that completes.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Wait until a daemon has ended, and let those go who wait for it. Each daemon starts one.
    #[command(hide = true)]
    Warden {
        /// Process number of the daemon.
        #[arg(value_name = "PID")]
        daemon: u32,
        /// The kernel's numbers of its mount.
        #[arg(value_name = "ID")]
        id: MountId,
        /// The process that keeps the mount for another daemon.
        #[arg(value_name = "HOLDER")]
        holder: Option<u32>,
        /// Wait for the next daemon as long as that process lives.
        #[arg(long)]
        patient: bool,
    },
    /// Ask the daemon of a mount whether it is alive, in a process that may be left behind.
    #[command(hide = true)]
    Probe {
        /// Where it is mounted.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// The user to ask as.
        #[arg(value_name = "UID", requires = "group")]
        user: Option<u32>,
        /// The group to ask as.
        #[arg(value_name = "GID")]
        group: Option<u32>,
    },
    /// Make and delete the volumes of the CSI driver, for which it runs this.
    #[command(hide = true)]
    Volume(VolumeArgs),
    /// Write the manual pages of all commands.
    #[command(hide = true)]
    Man {
        /// Folder for the pages.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    /// The layers of settings know such commands by this flag.
    #[test]
    fn three_commands_take_the_settings_of_a_mount() {
        let command = Args::command();
        let takes_settings = |command: &&clap::Command| {
            command.get_arguments().any(|argument| argument.get_long() == Some("config"))
        };
        let names: Vec<_> =
            command.get_subcommands().filter(takes_settings).map(clap::Command::get_name).collect();
        assert_eq!(names, ["mount", "config", "doctor"]);
    }
}
