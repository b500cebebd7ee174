//! Jobs side by side: the first failure ends what has not begun, and results come in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::threads;

/// Does `work` for every job, `side_by_side` at a time and begun in their order; gives the results
/// in that order. `work` is given the number of the job.
///
/// After an error no job begins. Of several errors that of the first job is the result, and an
/// interrupt only where there is no other.
pub fn run<J: Send, R: Send>(
    jobs: Vec<J>,
    side_by_side: usize,
    work: impl Fn(usize, J) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    run_with(jobs, side_by_side, || (), |(), number, job| work(number, job))
}

/// The same where each of the workers keeps something of its own, such as threads.
pub fn run_with<J: Send, W, R: Send>(
    jobs: Vec<J>,
    side_by_side: usize,
    begin: impl Fn() -> W + Sync,
    work: impl Fn(&W, usize, J) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let side_by_side = side_by_side.clamp(1, jobs.len().max(1));
    let left = Mutex::new(jobs.into_iter().enumerate());
    let failed = AtomicBool::new(false);
    // The flag is asked before a job is taken: a job that is taken is also done, so the first one
    // that fails does not depend on which worker is faster.
    let next = || {
        let mut left = left.lock().ok()?;
        if failed.load(Ordering::Relaxed) { None } else { left.next() }
    };
    let worker = || {
        let own = begin();
        let mut done = Vec::new();
        while let Some((number, job)) = next() {
            let result = work(&own, number, job);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            done.push((number, result));
        }
        done
    };
    let mut done: Vec<(usize, Result<R>)> =
        threads::side_by_side(side_by_side, worker).into_iter().flatten().collect();
    done.sort_by_key(|(number, _)| *number);
    let (mut results, mut interrupted) = (Vec::with_capacity(done.len()), None);
    for (_, result) in done {
        match result {
            Ok(result) => results.push(result),
            Err(error @ Error::Interrupted(_)) => interrupted = Some(error),
            Err(error) => return Err(error),
        }
    }
    interrupted.map_or(Ok(results), Err)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn every_job_is_done_once_and_results_are_in_order() {
        for side_by_side in [0, 1, 3, 100] {
            let done = run((0..50).collect(), side_by_side, |at, job: usize| Ok((at, 2 * job)));
            let wanted: Vec<(usize, usize)> = (0..50).map(|job| (job, 2 * job)).collect();
            assert_eq!(done.unwrap(), wanted);
        }
        assert!(run(Vec::<usize>::new(), 2, |_, job| Ok(job)).unwrap().is_empty());
        let begun = AtomicUsize::new(0);
        let begin = || begun.fetch_add(1, Ordering::Relaxed);
        let own = run_with(vec![(); 4], 1, begin, |own, _, ()| Ok(*own)).unwrap();
        assert_eq!((own, begun.into_inner()), (vec![0; 4], 1));
    }

    #[test]
    fn an_error_ends_what_has_not_begun_and_wins_over_an_interrupt() {
        let begun = AtomicUsize::new(0);
        let error = run(vec![1, 2, 3, 4], 1, |_, job| {
            begun.fetch_add(1, Ordering::Relaxed);
            if job == 2 { Err(Error::Data("two".into())) } else { Ok(()) }
        });
        assert_eq!(error.unwrap_err().to_string(), "two");
        assert_eq!(begun.into_inner(), 2);

        let barrier = Barrier::new(2);
        let error = run(vec![1, 2], 2, |_, job| -> Result<()> {
            barrier.wait();
            if job == 1 {
                return Err(Error::Interrupted(PathBuf::new()));
            }
            Err(Error::Data("failed".into()))
        });
        assert_eq!(error.unwrap_err().to_string(), "failed");
    }

    #[test]
    fn of_several_errors_that_of_the_first_job_is_told() {
        let barrier = Barrier::new(3);
        let error = run(vec!["one", "two", "three"], 3, |_, job| -> Result<()> {
            barrier.wait();
            Err(Error::Data(job.into()))
        });
        assert_eq!(error.unwrap_err().to_string(), "one");
    }
}
