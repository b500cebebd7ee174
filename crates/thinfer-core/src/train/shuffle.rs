//! The order in which an epoch reads its rows.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use thinfer_engine::noise::Key;

/// Rows of all orders that are made ahead, and how many orders these are at most: in a profile,
/// waking another core for every epoch took about as long as ordering 10,000 rows.
const ROWS_AHEAD: usize = 160_000;
const MOST_AHEAD: usize = 16;

/// The order of one epoch, and those of the next ones, which another core makes meanwhile.
///
/// An order follows from key and epoch alone, so nothing depends on whether it was ready in time.
#[derive(Default)]
pub(crate) struct Shuffle {
    epoch: Option<usize>,
    order: Vec<u32>,
    next: Option<Receiver<(usize, Vec<u32>)>>,
}

impl Shuffle {
    /// Whether this epoch's order has not been asked for yet.
    pub(crate) fn begins(&self, epoch: usize) -> bool {
        self.epoch != Some(epoch)
    }

    /// The order of `rows` rows in an epoch; key and rows are always the same.
    pub(crate) fn of(&mut self, key: Key, epoch: usize, rows: usize) -> &[u32] {
        if self.begins(epoch) {
            self.order = self.ready(epoch).unwrap_or_else(|| key.permutation(epoch as u64, rows));
            self.epoch = Some(epoch);
            // With one core it would only wait in line.
            if self.next.is_none() && rayon::current_num_threads() > 1 {
                self.next = Some(make_ahead(key, epoch + 1, rows));
            }
        }
        &self.order
    }

    /// The order of an epoch, if it was made ahead.
    fn ready(&mut self, epoch: usize) -> Option<Vec<u32>> {
        loop {
            match self.next.as_ref()?.try_recv() {
                Ok((of, order)) if of == epoch => return Some(order),
                // Too late for this one.
                Ok((of, _)) if of < epoch => {}
                Err(TryRecvError::Empty) => return None,
                Ok(_) | Err(TryRecvError::Disconnected) => self.next = None,
            }
        }
    }
}

/// How many orders of so many rows are made ahead.
pub fn orders_ahead(rows: usize) -> usize {
    (ROWS_AHEAD / rows.max(1)).clamp(1, MOST_AHEAD)
}

fn make_ahead(key: Key, first: usize, rows: usize) -> Receiver<(usize, Vec<u32>)> {
    let (sender, receiver) = channel();
    let count = orders_ahead(rows);
    rayon::spawn(move || {
        for epoch in first..first + count {
            let order = key.permutation(epoch as u64, rows);
            // Where nobody waits any more, the others are not needed.
            if sender.send((epoch, order)).is_err() {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use thinfer_engine::noise::Stream;

    #[test]
    fn orders_are_those_of_their_epochs_ready_or_not() {
        let key = Key::new(5, 2, Stream::Shuffle);
        let (mut at_once, mut later) = (Shuffle::default(), Shuffle::default());
        // More than are made at a time, one of them again, some passed over, and back.
        for epoch in (0..20).chain([19, 25, 26, 4, 5]) {
            let want = key.permutation(epoch as u64, 500);
            assert_eq!(at_once.of(key, epoch, 500), want);
            assert_eq!(later.of(key, epoch, 500), want);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
