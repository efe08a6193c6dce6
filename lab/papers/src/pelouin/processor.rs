//! The processor's own cache, page by page: whether a page is still in it after reads of other pages.
//!
//! A page fills the same lines of every set that the colour of its frame selects. So a cache of `ways` ways keeps the
//! last `ways` pages of each colour. A file's pages are in frames of any colour, so the eviction of the first page is
//! random. It occurs around the moment at which the read pages fill the cache.

use crate::PaperError;
use crate::claims::runs::Setup;
use crate::claims::value::{Number, Value};
use ahead_policy::PAGE_BYTES;
use ahead_sim::Chance;

/// A cache of pages.
#[derive(Clone, Copy, Debug)]
struct ProcessorCache {
    /// The size of the cache, bytes.
    bytes: u64,
    /// Ways of each set.
    ways: u64,
}

/// Number of tried layouts.
const LAYOUTS: u64 = 1000;

/// The mean and the standard deviation of the blocks until the first one is gone.
pub(super) fn run(setup: &Setup) -> Result<Value, PaperError> {
    let cache = ProcessorCache { bytes: setup.whole("bytes")?, ways: setup.whole("ways")? };
    let (mean, deviation) = cache.blocks_until_gone();
    Ok(Value::record([("mean", Number(mean)), ("deviation", Number(deviation))]))
}

impl ProcessorCache {
    /// The number of read blocks, with the first one, when the first block is evicted. Mean and standard deviation over
    /// many layouts in memory.
    fn blocks_until_gone(&self) -> (f64, f64) {
        let colours = self.bytes / self.ways / PAGE_BYTES;
        let mut chance = Chance::new(1);
        let counts: Vec<f64> = (0..LAYOUTS).map(|_| self.one(colours, &mut chance) as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let square = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (mean, square.sqrt())
    }

    fn one(&self, colours: u64, chance: &mut Chance) -> u64 {
        let (mut blocks, mut same) = (1, 0);
        // The first page is evicted when `ways` other pages of its colour were read after it.
        while same < self.ways {
            blocks += 1;
            same += u64::from(chance.below(colours) == 0);
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_evictions_is_the_capacity_of_the_cache() {
        let (mean, deviation) = ProcessorCache { bytes: 1 << 20, ways: 8 }.blocks_until_gone();
        // Negative binomial distribution: mean 8 × 32 pages after the first, deviation √(8 × 31 × 32).
        assert!((mean - 257.0).abs() < 9.0 && (deviation - 89.1).abs() < 6.0, "{mean} {deviation}");
        // One colour: exactly the number of ways.
        assert_eq!(ProcessorCache { bytes: 16 * 4096, ways: 16 }.blocks_until_gone(), (17.0, 0.0));
    }
}
