//! The processor's own cache, page by page: whether a page that was read is still in it after others were.
//!
//! A page fills the same lines of every set that its frame's colour selects, so that a cache of `ways` ways keeps the
//! last `ways` pages of each colour. A file's pages lie in frames of any colour, so the moment at which the first page
//! goes is one of chance, around the one at which as many pages were read as fit.

use ahead_policy::PAGE_BYTES;
use ahead_sim::Chance;

/// A cache of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessorCache {
    /// Its size, bytes.
    pub bytes: u64,
    /// Ways of each set.
    pub ways: u64,
}

/// Layouts that are tried.
const LAYOUTS: u64 = 1000;

impl ProcessorCache {
    /// How many blocks were read, the first one included, when the first one is out: mean and standard deviation over
    /// many layouts in memory.
    pub(super) fn blocks_until_gone(&self) -> (f64, f64) {
        let colours = self.bytes / self.ways / PAGE_BYTES;
        let mut chance = Chance::new(1);
        let counts: Vec<f64> = (0..LAYOUTS).map(|_| self.one(colours, &mut chance) as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let square = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (mean, square.sqrt())
    }

    fn one(&self, colours: u64, chance: &mut Chance) -> u64 {
        let (mut blocks, mut same) = (1, 0);
        // The first one goes when as many others of its colour as there are ways were read after it.
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
    fn the_mean_is_what_fits() {
        let (mean, deviation) = ProcessorCache { bytes: 1 << 20, ways: 8 }.blocks_until_gone();
        // Negative binomial: 8 × 32 pages after the first, and √(8 × 31 × 32) around it.
        assert!((mean - 257.0).abs() < 9.0 && (deviation - 89.1).abs() < 6.0, "{mean} {deviation}");
        // One colour: exactly as many as there are ways.
        assert_eq!(ProcessorCache { bytes: 16 * 4096, ways: 16 }.blocks_until_gone(), (17.0, 0.0));
    }
}
