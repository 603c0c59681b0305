//! Signals: the first process of a container gets no default action, so SIGTERM must be waited for.

use crate::faults::Kind;
use crate::phases::{Phase, Phases, say};

#[derive(Clone, Copy)]
pub enum OnSignal {
    /// A server or an idle container was asked to stop, and did.
    ExitZero,
    /// A bench was cut off.
    ExitBySignal,
}

fn asked_to_stop() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the zeroed set before anything reads it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        set
    }
}

/// Before any other thread exists: they inherit the mask, so that only the thread started here sees the signals.
pub fn take_over(phases: &'static Phases, on_signal: OnSignal) {
    let set = asked_to_stop();
    // SAFETY: both calls get valid arguments; ignoring SIGCHLD lets the kernel reap children, adopted ones too.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    small_thread(move || {
        loop {
            let mut signal = 0;
            // SAFETY: the set is blocked, as sigwait wants it.
            unsafe { libc::sigwait(&set, &mut signal) };
            if phases.has(|fault| fault.kind == Kind::IgnoreSigterm) {
                say(&format!("reference-engine ignoring signal {signal}"));
                continue;
            }
            phases.enter(Phase::Stopping, "");
            std::process::exit(match on_signal {
                OnSignal::ExitZero => 0,
                OnSignal::ExitBySignal => 128 + signal,
            });
        }
    })
    .expect("a thread for signals");
}

/// The default actions again, for a child. Async-signal-safe.
pub fn give_back() {
    let set = asked_to_stop();
    // SAFETY: unblocks what `take_over` blocked.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

pub fn wait_forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// A thread with a small stack: the engine's own memory is to stay tiny.
pub fn small_thread(work: impl FnOnce() + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().stack_size(128 << 10).spawn(work)
}
