//! The flags of writing.

use std::path::PathBuf;

use clap::{ArgAction, ValueEnum as _};

use crate::flags::age::Age;
use crate::flags::journal::JournalArgs;
use crate::flags::size::Size;

const WRITING: &str = "Writing";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WriteArgs {
    /// What programs may do to files; several have commas between them. Each allows to write new files, too.
    ///
    /// A file is an object once its writer has closed it: close(2) waits for that, and fails if the store
    /// does not have it. No reader sees half a file. A call that is not allowed fails with EPERM, and
    /// without this flag with EROFS.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', action = ArgAction::Append)]
    #[arg(conflicts_with_all = ["read_only", "immutable"], help_heading = WRITING)]
    pub(crate) allow: Vec<Allow>,

    #[command(flatten)]
    pub(crate) old: OldAllowArgs,

    /// The most objects that a renamed folder may hold [default: 10000].
    ///
    /// The rename of a folder with more fails with EXDEV.
    #[arg(long, value_name = "N", help_heading = WRITING, hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) dir_rename_limit: Option<u32>,

    /// Keep owner, mode and time of files, and allow symbolic links.
    ///
    /// They are kept as s3fs, geesefs and rclone do: as the object's metadata mode, uid, gid and mtime, in
    /// whole seconds. Listings do not contain these, so the first look-up of each file costs a HEAD. Attributes that
    /// are set before a file is closed are written with its bytes; later, the store copies the object onto itself.
    /// Without this flag, such calls succeed and are forgotten. The flag also makes a read-only mount show the
    /// attributes that others have set.
    #[arg(long, help_heading = WRITING)]
    pub(crate) keep_attributes: bool,

    /// Make an object FOLDER/ without bytes for each new folder, so that other machines see it while it is empty.
    ///
    /// rmdir deletes it, which needs --allow delete. Without this flag, a new folder is known to this mount
    /// alone until a file is in it.
    #[arg(long, help_heading = WRITING, hide_short_help = true)]
    pub(crate) folder_markers: bool,

    /// Size of the parts in which a large file is uploaded.
    ///
    /// 5MiB to 64MiB. A smaller file is one request. The parts of a file of more than 8GiB grow with it.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", help_heading = WRITING, hide_short_help = true)]
    pub(crate) write_part_size: Size,

    /// Folder on a disk for files that are not written from front to back.
    ///
    /// It has to be there.
    /// S3 does not return the uploaded parts of a large file. With this folder, they can still be changed and read
    /// before the file is closed. Without it, both fail with EINVAL once the part has left the memory.
    ///
    /// With --keep-alive, all that is written goes there first, so that programs go on writing when the daemon is killed.
    #[arg(long, value_name = "DIR", help_heading = WRITING)]
    pub(crate) write_spool: Option<PathBuf>,

    /// Room for the files in --write-spool.
    #[arg(long, value_name = "SIZE", default_value = "10GiB", requires = "write_spool", help_heading = WRITING, hide_short_help = true)]
    pub(crate) max_spool_size: Size,

    /// Let close and fsync of a file return once its bytes are safe on a local disk, in this folder; uploads follow.
    ///
    /// For jobs that write thousands of small files, one after another. Programs of this mount see such a file at once,
    /// others when it is uploaded. A daemon that is killed, or a machine that loses its power, loses none: the next mount
    /// with this folder uploads them. A file of more than --write-part-size is uploaded while it is written, and its close
    /// waits, as without this flag. `s3mount flush` and `s3mount umount` wait for all uploads, and `s3mount pending` shows
    /// what waits, and what S3 has refused.
    #[arg(long, value_name = "DIR", help_heading = WRITING)]
    pub(crate) write_behind: Option<PathBuf>,

    /// Room for the files in --write-behind. Where it is full, close waits for S3.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", requires = "write_behind", help_heading = WRITING, hide_short_help = true)]
    pub(crate) max_write_behind_size: Size,

    /// Let programs that append to a file close it without waiting for S3.
    ///
    /// A log whose writer opens it anew for each line is uploaded anew for each line. With a time such as
    /// 10s, all bytes appended within that time are uploaded at once. If the machine fails meanwhile, these lines are
    /// lost. fsync, renaming the file and unmounting wait for nothing.
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = WRITING, hide_short_help = true)]
    pub(crate) append_delay: Age,

    /// Make fsync publish a long file, too.
    ///
    /// fsync always waits until S3 has the bytes. A file of more than a part is an object when it is closed.
    /// With this flag, fsync makes an object of the bytes so far, and each later fsync copies that object.
    #[arg(long, help_heading = WRITING, hide_short_help = true)]
    pub(crate) fsync_publish: bool,

    /// Checksum to send with every upload, which S3 compares.
    ///
    /// For stores that know no CRC-64/NVME. Without it, a write whose answer is lost has failed.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = UploadChecksums::Crc64nvme, help_heading = WRITING, hide_short_help = true)]
    pub(crate) upload_checksums: UploadChecksums,

    /// Media type of new objects; `auto` goes by the extension of the name, as the AWS CLI does.
    #[arg(long, value_name = "TYPE", default_value = "auto", help_heading = WRITING, hide_short_help = true)]
    pub(crate) content_type: String,

    #[command(flatten)]
    pub(crate) journal: JournalArgs,

    /// Storage class of new objects, such as STANDARD_IA [default: the store's].
    #[arg(long, value_name = "CLASS", help_heading = WRITING, hide_short_help = true)]
    pub(crate) storage_class: Option<String>,

    /// Encryption of new objects: AES256, aws:kms or aws:kms:dsse [default: the bucket's].
    #[arg(long, value_name = "METHOD", value_parser = ["AES256", "aws:kms", "aws:kms:dsse"], help_heading = WRITING, hide_short_help = true)]
    pub(crate) sse: Option<String>,

    /// Key of the key management service for --sse aws:kms [default: the bucket's].
    #[arg(long, value_name = "KEY", requires = "sse", help_heading = WRITING, hide_short_help = true)]
    pub(crate) sse_kms_key_id: Option<String>,
}

/// The checksum of what is uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UploadChecksums {
    /// The CRC-64/NVME, which S3 keeps.
    Crc64nvme,
    /// None.
    None,
}

/// What programs may do to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Allow {
    /// Make new files.
    Write,
    /// Change and replace existing files. An object that another client has replaced since it was opened is not
    /// replaced: close(2) fails with ESTALE.
    Overwrite,
    /// Delete files.
    Delete,
    /// Rename files and folders. The store copies each object, and then the old ones are deleted; others see both
    /// meanwhile. Without it, rename(2) of a folder with objects fails with EXDEV, and mv copies file by file.
    Rename,
    /// All of these.
    All,
}

/// The names of [`OldAllowArgs`].
pub(crate) const OLD_ALLOW: [&str; 4] =
    ["allow-write", "allow-overwrite", "allow-delete", "allow-dir-rename"];

/// The flags of version 0.1 for `--allow`. They add to it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OldAllowArgs {
    #[arg(long, conflicts_with_all = ["read_only", "immutable"], hide = true)]
    allow_write: bool,
    #[arg(long, conflicts_with_all = ["read_only", "immutable"], hide = true)]
    allow_overwrite: bool,
    #[arg(long, conflicts_with_all = ["read_only", "immutable"], hide = true)]
    allow_delete: bool,
    #[arg(long, conflicts_with_all = ["read_only", "immutable"], hide = true)]
    allow_dir_rename: bool,
}

impl WriteArgs {
    /// Whether programs may do `what`.
    pub(crate) fn allows(&self, what: Allow) -> bool {
        let old = match what {
            Allow::Write => self.old.allow_write,
            Allow::Overwrite => self.old.allow_overwrite,
            Allow::Delete => self.old.allow_delete,
            Allow::Rename => self.old.allow_dir_rename,
            Allow::All => false,
        };
        old || self.allow.iter().any(|allowed| [what, Allow::All].contains(allowed))
    }

    /// Whether programs may write at all.
    pub(crate) fn allows_writes(&self) -> bool {
        Allow::value_variants().iter().any(|what| self.allows(*what))
    }
}
