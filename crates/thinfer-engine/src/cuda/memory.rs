//! Device memory: planned before anything is allocated.

/// Everything starts on a multiple of this.
pub(crate) const ALIGN: usize = 256;

pub(crate) fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Deals out pieces of one buffer that does not exist yet, and takes them back.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Free pieces below `end`, by offset; neighbours are joined.
    free: Vec<(usize, usize)>,
    end: usize,
}

impl Pool {
    /// A piece: the smallest free one that fits, or a new one at the end.
    pub(crate) fn take(&mut self, bytes: usize) -> usize {
        let bytes = aligned(bytes.max(1));
        let fits = self.free.iter().enumerate().filter(|(_, (_, size))| *size >= bytes);
        if let Some((at, _)) = fits.min_by_key(|(_, (_, size))| *size) {
            let (offset, size) = self.free[at];
            if size == bytes {
                self.free.remove(at);
            } else {
                self.free[at] = (offset + bytes, size - bytes);
            }
            return offset;
        }
        // A free piece at the end grows.
        if let Some(&(offset, size)) = self.free.last()
            && offset + size == self.end
        {
            self.free.pop();
            self.end = offset + bytes;
            return offset;
        }
        let offset = self.end;
        self.end += bytes;
        offset
    }

    /// Takes a piece back.
    pub(crate) fn give(&mut self, offset: usize, bytes: usize) {
        let bytes = aligned(bytes.max(1));
        let at = self.free.partition_point(|(o, _)| *o < offset);
        self.free.insert(at, (offset, bytes));
        if at + 1 < self.free.len() && offset + bytes == self.free[at + 1].0 {
            self.free[at].1 += self.free[at + 1].1;
            self.free.remove(at + 1);
        }
        if at > 0 && self.free[at - 1].0 + self.free[at - 1].1 == offset {
            self.free[at - 1].1 += self.free[at].1;
            self.free.remove(at);
        }
    }

    /// The size of the buffer.
    pub(crate) fn size(&self) -> usize {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_used_again_and_joined() {
        let mut pool = Pool::default();
        let (a, b, c) = (pool.take(256), pool.take(512), pool.take(100));
        assert_eq!((a, b, c, pool.size()), (0, 256, 768, 1024));
        pool.give(a, 256);
        pool.give(b, 512);
        assert_eq!(pool.take(768), 0);
        pool.give(c, 100);
        assert_eq!(pool.take(1024), 768);
        assert_eq!(pool.size(), 1792);
    }
}
