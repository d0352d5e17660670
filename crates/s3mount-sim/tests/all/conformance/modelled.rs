//! Scripts on the model of the kernel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::Filesystem;
use s3mount_sim::draw::Draw;
use s3mount_sim::kernel::{Call, Kernel, KernelConfig, Listing, Process, Whence};

/// Runs a script over `filesystem`. Returns the answers of its lines, and the requests.
pub(super) fn run(filesystem: impl FnOnce() -> Arc<Filesystem>, script: &[&str]) -> (Vec<String>, Vec<Call>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let config = KernelConfig {
            has_passthrough: false,
            has_pauses: false,
            readahead_bytes: super::READAHEAD_BYTES,
            keeps_record: true,
            ..KernelConfig::new(Arc::new(Draw::new(1)))
        };
        let kernel = Kernel::new(filesystem(), config);
        let processes = (1..=3).map(|pid| (pid, Process::new(&kernel, pid))).collect();
        let mut machine = Machine { processes, names: BTreeMap::new() };
        // A process has entered the folder.
        machine.line("3 - stat /").await;
        let before = kernel.calls().len();
        let mut answers = Vec::new();
        for line in script {
            answers.push(machine.line(line).await);
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        (answers, kernel.calls().split_off(before))
    })
}

/// Processes, and the descriptors and maps that they have under names.
struct Machine {
    processes: BTreeMap<u32, Process>,
    names: BTreeMap<(u32, String), u32>,
}

fn shown(data: &[u8]) -> String {
    let sum = data.iter().zip(1_u64..).map(|(byte, at)| at * u64::from(*byte)).sum::<u64>();
    format!("{}:{}", data.len(), sum % (1 << 32))
}

fn ok(result: Result<(), i32>) -> Result<String, i32> {
    result.map(|()| "ok".to_owned())
}

fn count(result: Result<usize, i32>) -> Result<String, i32> {
    result.map(|count| count.to_string())
}

fn flags(text: &str) -> i32 {
    let of = |flag| match flag {
        "r" => libc::O_RDONLY,
        "w" => libc::O_WRONLY,
        "rw" => libc::O_RDWR,
        "creat" => libc::O_CREAT,
        "excl" => libc::O_EXCL,
        "trunc" => libc::O_TRUNC,
        "append" => libc::O_APPEND,
        _ => panic!("no flag: {flag}"),
    };
    text.split(',').map(of).fold(0, |all, flag| all | flag)
}

impl Machine {
    async fn line(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().collect();
        let [pid, variable, call, args @ ..] = &*words else { panic!("no call: {line}") };
        let pid = pid.parse().expect("a process");
        match self.call(pid, variable, call, args).await {
            Ok(answer) => answer,
            Err(errno) => format!("errno {errno}"),
        }
    }

    fn fd(&self, pid: u32, name: &str) -> u32 {
        self.names.get(&(pid, name.to_owned())).copied().unwrap_or(u32::MAX)
    }

    async fn call(&mut self, pid: u32, variable: &str, call: &str, args: &[&str]) -> Result<String, i32> {
        let process = self.processes[&pid].clone();
        let number = |at: usize| args[at].parse::<u64>().expect("a number");
        match call {
            "sleep" => tokio::time::sleep(Duration::from_secs_f64(args[0].parse().expect("seconds"))).await,
            "fork" => {
                let child: u32 = variable.parse().expect("a process");
                self.processes.insert(child, process.fork(child));
                let own: Vec<_> = self.names.iter().filter(|((of, _), _)| *of == pid).collect();
                let own: Vec<_> =
                    own.into_iter().map(|((_, name), fd)| ((child, name.clone()), *fd)).collect();
                self.names.extend(own);
            }
            "exit" => process.exit().await,
            "open" | "dup" | "map" => {
                let made = match call {
                    "open" => process.open(args[0], flags(args[1])).await?,
                    "dup" => process.dup(self.fd(pid, args[0]))?,
                    _ => process.mmap(self.fd(pid, args[0]), args[2] != "private").await?,
                };
                self.names.insert((pid, variable.to_owned()), made);
            }
            _ => {
                let fd = self.fd(pid, variable);
                return match call {
                    "copy" => {
                        let to = self.fd(pid, args[0]);
                        let len = number(3) as usize;
                        count(process.copy_file_range(fd, number(1), to, number(2), len).await)
                    }
                    _ => by_descriptor(&process, fd, call, args).await,
                };
            }
        }
        Ok("ok".to_owned())
    }
}

async fn by_descriptor(process: &Process, fd: u32, call: &str, args: &[&str]) -> Result<String, i32> {
    let number = |at: usize| args[at].parse::<u64>().expect("a number");
    let len = |at: usize| number(at) as usize;
    match call {
        "read" => process.read(fd, len(0)).await.map(|bytes| shown(&bytes)),
        "pread" => process.pread(fd, number(0), len(1)).await.map(|bytes| shown(&bytes)),
        "write" => count(process.write(fd, args[0].as_bytes()).await),
        "pwrite" => count(process.pwrite(fd, number(0), args[1].as_bytes()).await),
        "fill" => count(process.pwrite(fd, number(0), &args[2].as_bytes().repeat(len(1))).await),
        "end" => process.lseek(fd, 0, Whence::End).await.map(|end| end.to_string()),
        "fsync" => ok(process.fsync(fd).await),
        "ftruncate" => ok(process.ftruncate(fd, number(0)).await),
        "allocate" => ok(process.fallocate(fd, number(0), number(1)).await),
        "close" => ok(process.close(fd).await),
        "fstat" => process.fstat(fd).await.map(|stat| stat.size.to_string()),
        "append" => ok(process.set_append(fd, args[0] == "on")),
        "lock" => ok(process.try_lock(fd, true, args[0] == "alone")),
        "mread" => process.map_read(fd, number(0), len(1)).await.map(|bytes| shown(&bytes)),
        "mwrite" => ok(process.map_write(fd, number(0), args[1].as_bytes()).await),
        "msync" => ok(process.msync(fd).await),
        "munmap" => ok(process.munmap(fd).await),
        _ => by_path(process, call, args).await,
    }
}

async fn by_path(process: &Process, call: &str, args: &[&str]) -> Result<String, i32> {
    match call {
        "stat" => process.stat(args[0]).await.map(|stat| stat.size.to_string()),
        "truncate" => ok(process.truncate(args[0], args[1].parse().expect("a number")).await),
        "rename" => ok(process.rename(args[0], args[1]).await),
        "noreplace" => ok(process.rename_noreplace(args[0], args[1]).await),
        "unlink" => ok(process.unlink(args[0]).await),
        "mkdir" => ok(process.mkdir(args[0]).await),
        "rmdir" => ok(process.rmdir(args[0]).await),
        "list" => {
            let mut names = process.readdir(args.first().copied().unwrap_or(""), Listing::default()).await?;
            names.sort();
            Ok(if names.is_empty() { "nothing".to_owned() } else { names.join(",") })
        }
        _ => panic!("no call: {call}"),
    }
}
