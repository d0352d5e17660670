//! The flag that mounts and `cleanup` share.

use std::path::PathBuf;

/// Where the journal is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JournalArgs {
    /// Folder in which mounts note their unfinished uploads and folder renames, for s3mount cleanup [default:
    /// $XDG_STATE_HOME/s3mount, else /var/lib/s3mount for root and ~/.local/state/s3mount for others].
    #[arg(long, value_name = "DIR", help_heading = "Writing", hide_short_help = true)]
    pub(crate) journal: Option<PathBuf>,
}
