//! What happens to signals of the system besides those that ask a run to stop.

/// Signals that ask a program to end, and that whoever started it may have had it ignore.
#[cfg(unix)]
const ENDING: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// Lets a write beyond the limit on file sizes (`ulimit -f`) fail with an error that can be told.
/// The signal that comes with it would end the program without a word.
pub(crate) fn survive_file_limits() {
    #[cfg(unix)]
    ignore(libc::SIGXFSZ);
}

/// Does something that takes over signals, and leaves those alone that were ignored before: `nohup`
/// and scripts that start a program in the background rely on it.
pub(crate) fn keeping_ignored<T>(take_over: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    let before: Vec<libc::c_int> = ENDING.into_iter().filter(|s| is_ignored(*s)).collect();
    let taken = take_over();
    #[cfg(unix)]
    before.into_iter().for_each(ignore);
    taken
}

#[cfg(unix)]
fn ignore(signal: libc::c_int) {
    // SAFETY: the number is one of the constants of the system, and a signal that is ignored runs
    // no code of ours.
    unsafe {
        libc::signal(signal, libc::SIG_IGN);
    }
}

#[cfg(unix)]
fn is_ignored(signal: libc::c_int) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action nothing changes, and the present one is written to memory of its
    // own type, all of whose fields may be zero.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
