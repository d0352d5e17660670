//! The test server as a program.
#![expect(clippy::print_stdout, reason = "it says where it listens")]

use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use s3mount_object::ChecksumAlgorithm;
use s3mount_testkit::{Builder, Shape, TestS3, parse_size};

/// An S3 server for tests and the demo, on loopback by default.
///
/// Synthetic objects have any size and cost nothing. `/_test/stats`, `/_test/reset`,
/// `/_test/shape`, `/_test/fault`, `/_test/freeze`, `/_test/thaw`, `/_test/put` and
/// `/_test/quit` steer it.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on. Anybody who reaches it can read and write.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// An empty bucket to begin with. If its name ends in --x-s3, it is a directory bucket.
    #[arg(long, value_name = "NAME")]
    bucket: Vec<String>,
    /// Folder whose sub-folders are buckets.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// A synthetic object, such as data/big.bin=8GiB.
    #[arg(long, value_name = "BUCKET/KEY=SIZE")]
    synthetic: Vec<String>,
    /// Many synthetic objects, such as data/small/=2000x100KiB for small/f00000.bin and so on.
    #[arg(long, value_name = "BUCKET/PREFIX=COUNTxSIZE")]
    many: Vec<String>,
    /// How slow to be.
    #[arg(long, value_enum, default_value_t = Model::Fast)]
    model: Model,
    /// Requests a second that are taken; others are refused by 503 SlowDown. 0 is no limit.
    #[arg(long, default_value_t = 0.0)]
    requests_per_second: f64,
    /// Threads that serve.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Answer only requests that this access key signs. A secret is not checked, and may be left out.
    #[arg(long, value_name = "ACCESS_KEY[:SECRET]")]
    credentials: Option<String>,
    /// Say that the buckets are in this region, and refuse requests signed for another.
    #[arg(long)]
    region: Option<String>,
    /// Refuse whatever is not below this prefix, as an IAM policy does that is scoped to it.
    #[arg(long, value_name = "PREFIX")]
    allow_only: Option<String>,
    /// Have objects uploaded in parts of this size, with a CRC-32 of each.
    #[arg(long, value_name = "SIZE")]
    upload_part: Option<String>,
    /// Refuse uploads with conditions by 501.
    #[arg(long)]
    refuse_conditions: bool,
    /// How many seconds a session of a directory bucket is good for.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    session_life: u64,
    /// The smallest part but the last that an upload may have.
    #[arg(long, value_name = "SIZE", default_value = "5MiB")]
    min_part: String,
    /// Refuse uploads whose parts differ in length, except the last, as R2 does.
    #[arg(long)]
    equal_parts: bool,
    /// Give random ETags, as S3 does to objects that it encrypts with KMS keys. This saves the time for MD5.
    #[arg(long)]
    opaque_etags: bool,
    /// Drop the bytes of uploads when their checksums are known, so that they take no memory.
    #[arg(long)]
    drop_uploads: bool,
    /// Serve HTTPS as localhost, and write the certificate to trust to ca.pem in this folder.
    #[arg(long, value_name = "DIR")]
    tls_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Loopback as it is.
    Fast,
    /// S3 from EC2: first byte 25 ms, 90 MB/s a connection, LIST 60 ms; sixteen copies at a time, of 0.2 s and
    /// 180 MB/s each.
    Aws,
}

fn split<'a>(text: &'a str, form: &str) -> anyhow::Result<(&'a str, &'a str, &'a str)> {
    let parts = text.split_once('/').and_then(|(bucket, rest)| {
        let (key, size) = rest.rsplit_once('=')?;
        Some((bucket, key, size))
    });
    parts.with_context(|| format!("{text:?} is not {form}"))
}

fn build(args: &Args) -> anyhow::Result<Builder> {
    let shape = match args.model {
        Model::Fast => Shape::fast(),
        Model::Aws => Shape::aws(),
    };
    let shape = Shape { requests_per_second: args.requests_per_second, ..shape };
    let mut server = TestS3::builder().listen(args.listen).port(args.port).threads(args.threads).shape(shape);
    for bucket in &args.bucket {
        server = server.bucket(bucket);
    }
    if let Some(root) = &args.root {
        for entry in std::fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
            let path = entry?.path();
            let name =
                path.file_name().and_then(|name| name.to_str()).context("a bucket's name is not UTF-8")?;
            if path.is_dir() {
                server = server.bucket(name).folder(name, &path)?;
            }
        }
    }
    for text in &args.synthetic {
        let (bucket, key, size) = split(text, "BUCKET/KEY=SIZE")?;
        server = server.synthetic(bucket, key, parse_size(size)?);
    }
    for text in &args.many {
        let form = "BUCKET/PREFIX=COUNTxSIZE";
        let (bucket, prefix, rest) = split(text, form)?;
        let (count, size) = rest.split_once('x').with_context(|| format!("{text:?} is not {form}"))?;
        let (count, size): (u32, u64) = (count.parse()?, parse_size(size)?);
        for index in 0..count {
            server = server.synthetic(bucket, &format!("{prefix}f{index:05}.bin"), size);
        }
    }
    if let Some(size) = &args.upload_part {
        server = server.uploaded_in_parts(parse_size(size)?, ChecksumAlgorithm::Crc32);
    }
    if let Some(credentials) = &args.credentials {
        let access_key = credentials.split(':').next().unwrap_or_default();
        server = server.credentials(access_key);
    }
    if args.refuse_conditions {
        server = server.refuse_conditions();
    }
    server = server.session_life(Duration::from_secs(args.session_life));
    server = server.min_part(parse_size(&args.min_part)?);
    if args.equal_parts {
        server = server.equal_parts();
    }
    if args.opaque_etags {
        server = server.opaque_etags();
    }
    if args.drop_uploads {
        server = server.drop_uploads();
    }
    if args.tls_dir.is_some() {
        server = server.tls();
    }
    if let Some(prefix) = &args.allow_only {
        server = server.allow_only(prefix);
    }
    if let Some(region) = &args.region {
        server = server.region(region);
    }
    Ok(server)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let server = build(&args)?.start()?;
    if let (Some(dir), Some(pem)) = (&args.tls_dir, server.ca_pem()) {
        let write = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(dir.join("ca.pem"), pem));
        write.with_context(|| format!("writing ca.pem into {}", dir.display()))?;
    }
    println!("listening on {}", server.endpoint());
    std::io::stdout().flush()?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        // The answer to this request needs some time until it is sent.
        () = server.quit_requested() => tokio::time::sleep(Duration::from_millis(50)).await,
        result = tokio::signal::ctrl_c() => result?,
    }
    Ok(())
}
