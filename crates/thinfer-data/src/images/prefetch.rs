//! Decodes the next images while the present ones are used.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{ImageStream, View};
use crate::error::{Error, Result};
use crate::threads::Threads;

/// Images in a given order, chunk by chunk, one chunk ahead of the caller. Two chunks are in memory
/// at any time.
#[derive(Debug)]
pub struct Prefetch {
    /// Chunks as they are ready. Nothing once the last has been taken.
    ready: Option<Receiver<Result<Vec<u8>>>>,
    /// Where used memory goes back.
    free: Option<SyncSender<Vec<u8>>>,
    worker: Option<JoinHandle<()>>,
    /// The memory of the chunk that the caller has.
    current: Vec<u8>,
    /// How many images the order has, how many a chunk, and how many were given out.
    total: usize,
    chunk: usize,
    given: usize,
    started: Instant,
    waited: Duration,
}

/// Images that are ready.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The place of the first in the order.
    pub first: usize,
    /// The images one after another.
    pub bytes: &'a [u8],
}

/// How fast images came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Images a second, from the start to now.
    pub images_per_second: f64,
    /// Share of the time in which the caller waited for images. Near 1, decoding is what limits.
    pub waited: f64,
}

impl Prefetch {
    /// Starts to decode the rows of `order`, `chunk` at a time, on `threads` threads; 0 is one a
    /// core.
    pub fn new(
        stream: Arc<dyn ImageStream>,
        order: Vec<u32>,
        chunk: usize,
        view: View,
        threads: usize,
    ) -> Result<Self> {
        let failed = |what: &str| {
            Error::Data(format!(
                "no thread to decode images can be started: {what}; raise the limit on threads (`ulimit -u`, or that of the container), or end other programs"
            ))
        };
        let chunk = chunk.max(1);
        let total = order.len();
        // A chunk is handed over when the caller comes for it; then the next is begun.
        let (give, ready) = sync_channel(0);
        let (free, used) = sync_channel::<Vec<u8>>(2);
        for _ in 0..2 {
            free.send(Vec::new()).map_err(|error| failed(&error.to_string()))?;
        }
        let work = move || {
            let pool = Threads::new(threads);
            let len = stream.shape().len();
            for rows in order.chunks(chunk) {
                // Either end is gone when the caller is: then there is nothing left to do.
                let Ok(mut bytes) = used.recv() else { return };
                bytes.resize(rows.len() * len, 0);
                let filled = pool.install(|| stream.fill(rows, view, &mut bytes));
                let ended = filled.is_err();
                if give.send(filled.map(|()| bytes)).is_err() || ended {
                    return;
                }
            }
        };
        let worker = std::thread::Builder::new().name("prefetch".into()).spawn(work);
        let worker = worker.map_err(|error| failed(&error.to_string()))?;
        Ok(Self {
            ready: Some(ready),
            free: Some(free),
            worker: Some(worker),
            current: Vec::new(),
            total,
            chunk,
            given: 0,
            started: Instant::now(),
            waited: Duration::ZERO,
        })
    }

    /// The next chunk, or nothing after the last.
    #[expect(clippy::should_implement_trait, reason = "a chunk borrows memory that is used again")]
    pub fn next(&mut self) -> Result<Option<Chunk<'_>>> {
        if self.given == self.total {
            return Ok(None);
        }
        let gone = || Error::Data("the images could not be decoded; start the run again".into());
        let (Some(ready), Some(free)) = (&self.ready, &self.free) else { return Err(gone()) };
        if self.given > 0 {
            // After its last chunk nobody takes the memory back.
            let _ = free.send(std::mem::take(&mut self.current));
        }
        let begun = Instant::now();
        let bytes = ready.recv().map_err(|_| gone())?;
        self.waited += begun.elapsed();
        self.current = bytes?;
        let first = self.given;
        self.given += self.chunk.min(self.total - first);
        Ok(Some(Chunk { first, bytes: &self.current }))
    }

    /// How fast images came up to now.
    pub fn speed(&self) -> Speed {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        Speed {
            images_per_second: self.given as f64 / seconds,
            waited: self.waited.as_secs_f64() / seconds,
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        // Without the two ends the worker stops after the chunk it is at.
        (self.ready, self.free) = (None, None);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::tests::pictures;
    use super::*;

    #[test]
    fn chunks_are_the_images_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let stream = Arc::new(pictures(folder.path(), 7, &[2], 1));
        let order = vec![3, 0, 6, 2, 2, 5, 1];
        let len = stream.shape().len();
        let mut expected = vec![0; order.len() * len];
        stream.fill(&order, View::Centre, &mut expected).unwrap();
        for (chunk, threads) in [(1, 1), (3, 2), (7, 0), (100, 1), (0, 1)] {
            let mut prefetch =
                Prefetch::new(stream.clone(), order.clone(), chunk, View::Centre, threads).unwrap();
            let (mut got, mut firsts) = (Vec::<u8>::new(), Vec::new());
            while let Some(chunk) = prefetch.next().unwrap() {
                firsts.push(chunk.first);
                got.extend(chunk.bytes);
            }
            assert!(got == expected, "chunks of {chunk}");
            assert!(firsts.iter().copied().eq((0..7).step_by(chunk.max(1))), "{firsts:?}");
            assert!(prefetch.next().unwrap().is_none());
            let speed = prefetch.speed();
            assert!(speed.images_per_second > 0.0 && (0.0..=1.0).contains(&speed.waited));
        }
    }

    #[test]
    fn an_order_without_rows_has_no_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let stream = Arc::new(pictures(folder.path(), 2, &[], 0));
        let mut prefetch = Prefetch::new(stream, Vec::new(), 2, View::Centre, 1).unwrap();
        assert!(prefetch.next().unwrap().is_none());
    }

    #[test]
    fn a_failure_comes_in_its_place_and_ends_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let stream = Arc::new(pictures(folder.path(), 4, &[2], 0));
        let mut prefetch = Prefetch::new(stream, vec![0, 1, 2, 3], 1, View::Centre, 1).unwrap();
        assert!(prefetch.next().unwrap().is_some());
        assert!(prefetch.next().unwrap().is_some());
        assert!(prefetch.next().unwrap_err().to_string().contains("2.jpg"));
        assert!(prefetch.next().is_err());
    }

    #[test]
    fn it_can_be_dropped_at_any_time() {
        let folder = tempfile::tempdir().unwrap();
        let stream: Arc<dyn ImageStream> = Arc::new(pictures(folder.path(), 6, &[], 0));
        for taken in 0..4 {
            let order = (0..6).collect();
            let mut prefetch =
                Prefetch::new(Arc::clone(&stream), order, 1, View::Centre, 1).unwrap();
            for _ in 0..taken {
                prefetch.next().unwrap();
            }
        }
        assert_eq!(Arc::strong_count(&stream), 1, "no thread is left behind");
    }
}
