//! Threads where the system may give none: a limit on them (`ulimit -u`, a container's `pids.max`)
//! makes work slower and never wrong, because no result depends on how many there are.

#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, Once};
use std::thread::{Builder, scope};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads that a test lets one have at a time, in the place of the system.
#[cfg(test)]
static ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Threads besides those that compute: one waits for signals, one writes files, one tells how far a
/// run is.
const OTHERS: usize = 3;

/// How many of so many threads may be asked for: all of them, except in tests.
fn allowed(threads: usize) -> usize {
    #[cfg(test)]
    let threads = threads.min(ALLOWED.load(Ordering::Relaxed));
    threads
}

/// Threads for rayon's work: as many as wanted, or as many as there are.
pub struct Threads(Option<ThreadPool>);

impl Threads {
    /// Up to `wanted` threads; 0 is one a core.
    pub fn new(wanted: usize) -> Self {
        let wanted = if wanted == 0 { cores() } else { wanted };
        let mut threads = allowed(wanted);
        while threads > 0 {
            if let Ok(pool) = ThreadPoolBuilder::new().num_threads(threads).build() {
                return Self(Some(pool));
            }
            threads /= 2;
        }
        // This thread alone, unless it belongs to a pool already.
        Self(ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().ok())
    }

    /// Does something on them.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.0 {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

/// Does the same on up to `count` threads at once, and on this one where there is no other; gives
/// what each came to.
pub fn side_by_side<R: Send>(count: usize, work: impl Fn() -> R + Sync) -> Vec<R> {
    let work = &work;
    let done: Vec<R> = scope(|scope| {
        let started = |_| Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (0..allowed(count)).map_while(started).collect();
        // A bug in a worker is shown as what it is.
        let join = |worker: std::thread::ScopedJoinHandle<'_, R>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect()
    });
    if done.is_empty() && count > 0 { vec![work()] } else { done }
}

/// Makes the threads that all work shares, of which rayon would insist on one a core. Where the
/// system gives fewer, says how many there are of how many.
///
/// To be called once, when a program starts; later calls do nothing.
pub fn prepare() -> Option<(usize, usize)> {
    static ONCE: Once = Once::new();
    let mut told = None;
    ONCE.call_once(|| {
        let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok());
        let wanted = asked.filter(|n| *n > 0).unwrap_or_else(cores);
        let there = count_possible(wanted + OTHERS);
        // Where they are few, chains need some of their own, too.
        let shared = if there < wanted + OTHERS { there / 2 } else { wanted };
        let pool = match shared {
            0 => ThreadPoolBuilder::new().num_threads(1).use_current_thread(),
            threads => ThreadPoolBuilder::new().num_threads(threads),
        };
        // A library that prepared them before has done it its own way.
        let _ = pool.build_global();
        told = (there < wanted + OTHERS).then_some((there, wanted + OTHERS));
    });
    told
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many threads, up to `wanted`, the system gives at the same time.
fn count_possible(wanted: usize) -> usize {
    let (over, told) = (Mutex::new(false), Condvar::new());
    scope(|scope| {
        let wait = || {
            let mut now = over.lock().ok();
            while let Some(false) = now.as_deref() {
                now = now.and_then(|now| told.wait(now).ok());
            }
        };
        let started = |_: &usize| Builder::new().spawn_scoped(scope, wait).is_ok();
        let count = (0..allowed(wanted)).take_while(started).count();
        if let Ok(mut over) = over.lock() {
            *over = true;
        }
        told.notify_all();
        count
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the system does where it gives no more threads: `ALLOWED` stands for its limit, which a
    /// test cannot set for one process of many.
    #[test]
    fn work_is_done_with_as_many_threads_as_there_are() {
        let sum = |threads: &Threads| {
            threads.install(|| {
                use rayon::prelude::*;
                (0..1000u64).into_par_iter().sum::<u64>()
            })
        };
        for allowed in [usize::MAX, 3, 1, 0] {
            ALLOWED.store(allowed, Ordering::Relaxed);
            let next = AtomicUsize::new(0);
            let counts = side_by_side(4, || {
                assert_eq!(sum(&Threads::new(3)), 499_500, "{allowed}");
                let mut mine = 0;
                while next.fetch_add(1, Ordering::Relaxed) < 20 {
                    mine += 1;
                }
                mine
            });
            assert_eq!(counts.iter().sum::<usize>(), 20, "{allowed}");
            assert_eq!(counts.len(), 4.min(allowed).max(1));
            assert_eq!(count_possible(5), 5.min(allowed));
            ALLOWED.store(usize::MAX, Ordering::Relaxed);
        }
        assert!(side_by_side(0, || ()).is_empty());
    }
}
