//! What each layer takes of the resolved settings.

use std::sync::Arc;
use std::time::SystemTime;

use nix::unistd::geteuid;
use s3mount_bucket::Rates;
use s3mount_fs::{FsConfig, PageCacheBytes};
use s3mount_fuse::{AuditSink, FuseConfig};
use s3mount_prefetch::PrefetchConfig;
use s3mount_settings::flags::mount::Verify;
use s3mount_settings::resolved::{self, Config};
use s3mount_write::WriteConfig;

use super::audit_log::AuditLog;

/// The fewest READs that the kernel may send before it has answers, however few connections there are. Files that
/// are in memory are read beside so many READs that wait.
const FEWEST_READS: u16 = 1024;

/// Set by tests: the mount is one of a kernel that sends no request again to the next daemon.
const WITHOUT_RESEND: &str = "S3MOUNT_WITHOUT_RESEND";

pub(super) fn write_config(config: &Config, writes: &resolved::writes::WriteConfig) -> WriteConfig {
    WriteConfig {
        part_bytes: writes.part_bytes,
        memory_bytes: writes.memory_bytes,
        body_bytes: writes.body_bytes,
        spool: writes.spool.clone(),
        has_checksums: writes.has_checksums,
        timeout: config.read_timeout,
        started_at: SystemTime::now(),
        ..WriteConfig::default()
    }
}

pub(super) fn rates(config: &Config) -> Rates {
    Rates {
        read_bytes: config.max_read_rate,
        write_bytes: config.max_write_rate,
        requests: config.max_request_rate.map(u64::from),
    }
}

/// The longest part of a mount that reads so many bytes a second: who waits for another part waits for a quarter of a second.
fn part_at(rate: u64) -> u64 {
    1 << (rate / 4).max(1 << 20).ilog2()
}

pub(super) fn prefetch_config(config: &Config) -> PrefetchConfig {
    let hedge_share = PrefetchConfig::default().hedge_share;
    PrefetchConfig {
        hedge_share: if config.no_hedging { 0.0 } else { hedge_share },
        part_bytes: config
            .max_read_rate
            .map_or(config.part_bytes, |rate| config.part_bytes.min(part_at(rate))),
        initial_window_bytes: config.initial_window_bytes,
        max_window_bytes: config.max_window_bytes,
        random_read_bytes: config.random_read_bytes,
        small_object_bytes: config.small_object_bytes,
        read_timeout: config.read_timeout,
        verify_whole: config.verify == Verify::Whole,
        // With a rate of requests, those in flight wait for it no longer than a second.
        max_requests: config
            .max_connections
            .min(config.max_request_rate.unwrap_or(u32::MAX))
            .try_into()
            .unwrap_or(usize::MAX),
    }
}

/// How many bytes of the memory limit are not the pool's.
pub(super) fn beside_pool(config: &Config) -> u64 {
    let floor = config.memory_floor_bytes - config.threads_bytes;
    config.threads_bytes + config.writes.as_ref().map_or(0, |writes| writes.beside_pool(floor))
}

pub(super) fn fs_config(config: &Config) -> FsConfig {
    FsConfig {
        prefix: config.shown.prefix().to_owned(),
        mounted_at: SystemTime::now(),
        started_at: SystemTime::now(),
        mounted_by: geteuid().as_raw(),
        uid: config.uid,
        gid: config.gid,
        dir_mode: config.dir_mode,
        file_mode: config.file_mode,
        metadata_ttl: config.metadata_ttl,
        negative_metadata_ttl: config.negative_metadata_ttl.duration(),
        metadata_limit_bytes: config.metadata_limit_bytes,
        memory_beside_bytes: beside_pool(config),
        inode_limit: config.inode_limit,
        direct_io: config.direct_io.clone(),
        direct_auto: config.direct_auto.then_some(s3mount_memory::page_cache_bytes as PageCacheBytes),
        allows_writes: config.writes.is_some(),
        is_told: config.events_from.is_some(),
        keeps_listings: config.names_from.is_none(),
        timeout: config.read_timeout,
    }
}

/// The most READs that the kernel sends before it has answers: twice as many as there are connections. READs that
/// wait for connections, or for GETs of others, leave room for those that memory answers.
fn max_reads(max_connections: u32) -> u16 {
    u16::try_from(max_connections.saturating_mul(2)).unwrap_or(u16::MAX).max(FEWEST_READS)
}

pub(super) fn fuse_config(config: &Config, audit: Option<Arc<AuditLog>>) -> FuseConfig {
    let cache = config.cache.as_ref().filter(|_| config.passthrough);
    let passthrough_dirs = cache.map(|cache| cache.dirs.clone());
    FuseConfig {
        fs_name: config.fs_name.clone(),
        read_only: config.read_only,
        no_exec: config.noexec,
        allow_other: config.allow_other,
        allow_root: config.allow_root,
        threads: config.threads,
        read_ahead_bytes: config.read_ahead_bytes,
        max_reads: max_reads(config.max_connections),
        passthrough_dirs: passthrough_dirs.unwrap_or_default(),
        audit: audit.map(|audit| audit as Arc<dyn AuditSink>),
        without_resend: std::env::var_os(WITHOUT_RESEND).is_some(),
    }
}
