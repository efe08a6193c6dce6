//! The pages that programs touch at their start, as measured. `lab/papers/starts.txt` describes the method and the
//! form.

use ahead_policy::Page;

/// The measurement.
const TEXT: &str = include_str!("../starts.txt");

/// A touched file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    /// The length of the file, pages.
    pub pages: u64,
    /// Whether the access was through a mapping instead of calls.
    pub is_mapped: bool,
    /// The position of the file on the disk, among all files.
    pub rank: usize,
}

/// Consecutive touched pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub file: usize,
    pub first: Page,
    pub pages: u64,
}

/// A program's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The program.
    pub name: &'static str,
    /// The runs of pages in the order of their first use.
    pub runs: Vec<Run>,
}

/// All measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Starts {
    /// Every file.
    pub files: Vec<Touched>,
    /// Every program.
    pub list: Vec<Start>,
}

impl Starts {
    /// The measurement in this crate.
    pub fn measured() -> Starts {
        let mut starts = Starts::default();
        for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(' ') {
                Some(("start", name)) => starts.list.push(Start { name, runs: Vec::new() }),
                _ if line == "files" => {}
                _ => line.split_whitespace().for_each(|word| starts.take(word)),
            }
        }
        starts
    }

    fn take(&mut self, word: &str) {
        let Some(start) = self.list.last_mut() else {
            let (pages, rank) = word.split_once(['m', 'r']).expect("a file is pages, m or r, rank");
            let is_mapped = word.contains('m');
            return self.files.push(Touched { pages: number(pages), is_mapped, rank: number(rank) as usize });
        };
        let (file, rest) = match word.split_once(':') {
            Some((file, rest)) => (number(file) as usize, rest),
            None => (start.runs.last().expect("the first run names its file").file, word),
        };
        let (first, pages) = rest.split_once('+').unwrap_or((rest, "1"));
        start.runs.push(Run { file, first: number(first), pages: number(pages) });
    }

    /// The starts with these names, in the given order.
    pub fn named<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a Start> + 'a {
        names.iter().filter_map(|name| self.list.iter().find(|start| start.name == name))
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("the measurement holds numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_is_complete() {
        let starts = Starts::measured();
        assert_eq!(starts.files.len(), 449);
        assert_eq!(starts.list.len(), 10);
        let mut ranks: Vec<usize> = starts.files.iter().map(|file| file.rank).collect();
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..449));
        for start in &starts.list {
            assert!(start.runs.len() > 200, "{}", start.name);
            for run in &start.runs {
                assert!(run.pages > 0 && run.first + run.pages <= starts.files[run.file].pages, "{run:?}");
            }
        }
        let names = ["bash".to_owned()];
        let [bash] = starts.named(&names).collect::<Vec<_>>()[..] else { panic!("bash is not there") };
        assert_eq!(bash.runs[0], Run { file: 0, ..bash.runs[0] });
    }
}
