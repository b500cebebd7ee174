//! Jobs side by side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use thinfer_data::threads;
use thinfer_data::{Error, Result};

/// Does `work` for the jobs, `side_by_side` at a time and in their order; it is given the number of
/// a job. The first error ends what has not begun, and is the result; an interrupt only where there
/// is no other.
pub(super) fn farm<J: Sync, R: Send>(
    jobs: &[J],
    side_by_side: usize,
    work: impl Fn(usize, &J) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let ended = AtomicBool::new(false);
    let done = Mutex::new(Vec::new());
    let worker = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return Ok(()) };
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            let result = work(number, job).inspect_err(|_| ended.store(true, Ordering::Relaxed))?;
            if let Ok(mut done) = done.lock() {
                done.push(result);
            }
        }
    };
    let joined: Vec<Result<()>> =
        threads::side_by_side(side_by_side.clamp(1, jobs.len().max(1)), worker);
    let mut interrupted = None;
    for result in joined {
        match result {
            Err(error @ Error::Interrupted(_)) => interrupted = Some(error),
            other => other?,
        }
    }
    match interrupted {
        Some(error) => Err(error),
        None => Ok(done.into_inner().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn every_job_is_done_once() {
        let jobs: Vec<usize> = (0..50).collect();
        for side_by_side in [0, 1, 3, 100] {
            let mut done = farm(&jobs, side_by_side, |at, job| Ok((at, 2 * job))).unwrap();
            done.sort_unstable();
            let want: Vec<(usize, usize)> = jobs.iter().map(|job| (*job, 2 * job)).collect();
            assert_eq!(done, want);
        }
        assert!(farm(&[] as &[usize], 2, |_, job| Ok(*job)).unwrap().is_empty());
    }

    #[test]
    fn an_error_ends_what_has_not_begun_and_wins_over_an_interrupt() {
        let begun = AtomicUsize::new(0);
        let error = farm(&[1, 2, 3, 4], 1, |_, job| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *job == 2 { Err(Error::Data("two".into())) } else { Ok(()) }
        });
        assert_eq!(error.unwrap_err().to_string(), "two");
        assert_eq!(begun.into_inner(), 2);

        let barrier = std::sync::Barrier::new(2);
        let error = farm(&[1, 2], 2, |_, job| -> Result<()> {
            barrier.wait();
            if *job == 1 {
                return Err(Error::Interrupted(PathBuf::new()));
            }
            Err(Error::Data("failed".into()))
        });
        assert_eq!(error.unwrap_err().to_string(), "failed");
    }
}
