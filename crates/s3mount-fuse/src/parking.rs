//! Session threads that stop reading, so that a daemon can answer all that it has read before it ends. Kernels before
//! Linux 6.9 send no request again.
//!
//! fuser's threads read the device until it is gone, and nothing tells them to stop. So each gets a signal, again and again.
//! A thread that waits for a request is in read(2), and the kernel has it repeat the call after the signal (`SA_RESTART`):
//! the handler sees a thread that is about to call read(2) on the device, as one that really is. Such a thread has read
//! nothing that it has not answered or passed on, and holds no lock. The handler keeps it until the parking is over.
//! A thread that is anywhere else goes on, and gets the next signal.
#![expect(unsafe_code, reason = "a handler of a signal, which looks at the registers of the thread")]

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use tokio::time::Instant;

/// The signal. It means nothing to a process that does not ask for it, and nobody else does here.
const SIGNAL: Signal = Signal::SIGURG;

/// The pause between two signals.
const PAUSE: Duration = Duration::from_millis(2);

/// What the names of fuser's session threads begin with.
const THREADS: &str = "fuser-";

/// 1 while threads are to park. The futex that they wait for.
static IS_WANTED: AtomicU32 = AtomicU32::new(0);

/// The device that they read.
static DEVICE: AtomicI32 = AtomicI32::new(-1);

/// How many are parked.
static PARKED: AtomicUsize = AtomicUsize::new(0);

/// Parked threads, which read on once this is dropped.
#[derive(Debug)]
pub(crate) struct Parking(());

impl Drop for Parking {
    fn drop(&mut self) {
        IS_WANTED.store(0, Ordering::SeqCst);
        // SAFETY: the futex lives as long as the process.
        unsafe { libc::syscall(libc::SYS_futex, IS_WANTED.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// Parks the `threads` session threads, which read `device`. There is one session in a process that does this.
///
/// # Errors
/// `TimedOut` if some thread has not come back to its read by `deadline`, those of reading /proc, and `Unsupported` on
/// processors whose registers are not known here. All read on then.
pub(crate) async fn park(device: RawFd, threads: usize, deadline: Instant) -> io::Result<Parking> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let action = SigAction::new(
        SigHandler::SigAction(on_signal),
        SaFlags::SA_SIGINFO | SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing that a handler may not do.
    unsafe { sigaction(SIGNAL, &action) }?;
    DEVICE.store(device, Ordering::SeqCst);
    IS_WANTED.store(1, Ordering::SeqCst);
    let parking = Parking(());
    while PARKED.load(Ordering::SeqCst) < threads {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for thread in session_threads()? {
            // SAFETY: it sends a signal. It fails for a thread that has ended, and the session with it.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL as i32) };
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(parking)
}

/// The numbers of the session threads.
pub(crate) fn session_threads() -> io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        // It fails for a thread that has just ended.
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.starts_with(THREADS) {
            threads.extend(thread.file_name().to_str().and_then(|number| number.parse::<i32>().ok()));
        }
    }
    Ok(threads)
}

/// Keeps the thread here if it is about to read the device.
extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO, the kernel passes the registers of the interrupted thread.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    if IS_WANTED.load(Ordering::SeqCst) == 0 || !is_about_to_read(context, DEVICE.load(Ordering::SeqCst)) {
        return;
    }
    PARKED.fetch_add(1, Ordering::SeqCst);
    while IS_WANTED.load(Ordering::SeqCst) != 0 {
        let no_limit = std::ptr::null::<libc::timespec>();
        // SAFETY: the futex lives as long as the process. What this does to `errno` is seen by nobody: the thread's next
        // step is a system call.
        unsafe { libc::syscall(libc::SYS_futex, IS_WANTED.as_ptr(), libc::FUTEX_WAIT, 1, no_limit) };
    }
    PARKED.fetch_sub(1, Ordering::SeqCst);
}

/// Whether the thread's next step is read(2) on `device`.
#[cfg(target_arch = "x86_64")]
fn is_about_to_read(context: &libc::ucontext_t, device: RawFd) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let register = |number: i32| context.uc_mcontext.gregs[number as usize];
    if register(libc::REG_RAX) != libc::SYS_read || register(libc::REG_RDI) != i64::from(device) {
        return false;
    }
    // SAFETY: the thread is about to run these bytes, so they can be read.
    let step = unsafe { (register(libc::REG_RIP) as *const [u8; 2]).read_unaligned() };
    step == SYSCALL
}

/// Whether the thread's next step is read(2) on `device`.
#[cfg(target_arch = "aarch64")]
fn is_about_to_read(context: &libc::ucontext_t, device: RawFd) -> bool {
    const SVC: u32 = 0xd400_0001;
    let registers = &context.uc_mcontext;
    if registers.regs[8] != libc::SYS_read as u64 || registers.regs[0] as RawFd != device {
        return false;
    }
    // SAFETY: the thread is about to run this step, so it can be read. Steps are aligned.
    let step = unsafe { (registers.pc as *const u32).read() };
    step == SVC
}

/// Nothing is known of the registers.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn is_about_to_read(_: &libc::ucontext_t, _: RawFd) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::park;

    /// Reads a pipe as fuser reads the device. Between two reads, it does what takes a moment.
    #[test]
    fn threads_park_only_at_their_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let park = |device, until| runtime.block_on(park(device, 1, until));
        let (mut read, mut write) = std::io::pipe().expect("a pipe");
        let device = read.as_raw_fd();
        let (send, taken) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("fuser-0".to_owned()).spawn(move || {
            let mut byte = [0];
            while read.read(&mut byte).is_ok_and(|len| len == 1) {
                std::thread::sleep(Duration::from_millis(3));
                send.send(byte[0]).expect("a test");
            }
        });
        let soon = || Instant::now() + Duration::from_secs(10);
        for round in 0..50 {
            write.write_all(&[round]).expect("a pipe");
            std::thread::sleep(Duration::from_micros(u64::from(round) * 100));
            let parking = park(device, soon()).expect("a parked thread");
            let before: Vec<u8> = taken.try_iter().collect();
            write.write_all(&[100 + round]).expect("a pipe");
            std::thread::sleep(Duration::from_millis(5));
            assert!(taken.try_recv().is_err(), "nothing is read while the thread is parked");
            drop(parking);
            let rest = 2 - before.len();
            let after: Vec<u8> =
                (0..rest).map(|_| taken.recv_timeout(Duration::from_secs(10)).expect("a byte")).collect();
            assert_eq!([before, after].concat(), [round, 100 + round], "each byte is taken once");
        }
        assert!(park(device + 1, Instant::now() + Duration::from_millis(50)).is_err());
        drop(write);
        thread.expect("a thread").join().expect("its end");
    }
}
