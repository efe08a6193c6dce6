//! The items and marks of a profile.
//!
//! ```text
//!     pieces   [libc 0-1M][app 0-200K][data 0-40M ...........................]      by first use; seldom used ones come last
//!     items    [..][..][..][..].......                                              at most `item_bytes` each
//!     marks    ▲ libc     ▲ app      ▲ data    ▲ data at 1M  ▲ data at 2M           first open, and progress within a large file
//! ```

use super::{Item, Mark};
use crate::{Piece, Source};
use ahead_model::sorting;
use ahead_profile::{Extent, MilestoneKind, Profile};
use std::collections::HashMap;

/// Distance of the marks within a file, bytes: the 1 MB of Opdenacker's figure 2.
const STEP_BYTES: u64 = 1 << 20;

/// Largest number of items: a larger profile has larger ones.
const MOST_ITEMS: u64 = 1 << 16;

/// The event of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The file, as an index into the profile.
    pub file: usize,
    /// The program reads here in the file, and has read what is before. 0: it executes or opens the file.
    pub offset_bytes: u64,
}

/// What a window moves over.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// What each item fetches.
    pub pieces: Vec<Piece>,
    pub items: Vec<Item>,
    /// The marks, in order of their places.
    pub marks: Vec<Mark>,
    /// What each mark stands for.
    pub events: Vec<Progress>,
    /// The marks of each file: the first open, and then in ascending order within the file.
    pub of_file: HashMap<usize, Vec<usize>>,
}

impl Flow {
    /// The flow of a profile. `pieces` are in order of first use; no item is longer than `item_bytes`, unless there were too many items.
    pub fn new(profile: &Profile, pieces: &[Piece], item_bytes: u64, page_bytes: u64) -> Flow {
        let total = pieces.iter().map(Piece::bytes).fold(0, u64::saturating_add);
        let item_bytes = item_bytes.max(total / MOST_ITEMS).next_multiple_of(page_bytes).max(page_bytes);
        let mut flow = Flow::default();
        let times = Times::new(profile);
        let (usual, late): (Vec<&Piece>, Vec<&Piece>) = pieces.iter().partition(|piece| !piece.late);
        let mut latest_us = 0;
        for piece in usual.into_iter().chain(late) {
            let (time_us, thread) = times.of(piece);
            latest_us = if piece.late { latest_us } else { time_us.unwrap_or(0).max(latest_us) };
            for start in (piece.range.start..piece.range.end).step_by(item_bytes as usize) {
                let range = start..piece.range.end.min(start.saturating_add(item_bytes));
                let physical_bytes = piece.physical_bytes.map(|at| at.saturating_add(start - piece.range.start));
                flow.items.push(Item { bytes: range.end - range.start, time_us: latest_us, thread, opened_by: None });
                flow.pieces.push(Piece { range, physical_bytes, ..piece.clone() });
            }
        }
        flow.mark(profile);
        flow
    }

    /// Whether the items have different times: otherwise no clock can follow them.
    pub fn has_times(&self) -> bool {
        self.items.first().zip(self.items.last()).is_some_and(|(first, last)| last.time_us > first.time_us)
    }

    fn mark(&mut self, profile: &Profile) {
        let usual = self.pieces.partition_point(|piece| !piece.late);
        let mut opened = opened_us(profile);
        let mut marked: Vec<(usize, Progress)> = Vec::new();
        // Of each file: the last place and offset.
        let mut within: HashMap<usize, (usize, u64)> = HashMap::new();
        for (index, piece) in self.pieces[..usual].iter().enumerate() {
            let Source::File(file) = piece.source else { continue };
            let offset_bytes = piece.range.start;
            match within.get_mut(&file) {
                None => {
                    // The event comes before the first use of its file, and metadata in between belongs to it.
                    let opened_us = opened.remove(&file).unwrap_or(u64::MAX).min(piece.first_use_us);
                    let place = self.pieces[..index].partition_point(|before| before.first_use_us < opened_us);
                    marked.push((place, Progress { file, offset_bytes: 0 }));
                    within.insert(file, (index, offset_bytes));
                }
                Some((_, last)) if offset_bytes >= last.saturating_add(STEP_BYTES) => {
                    *last = offset_bytes;
                    marked.push((index, Progress { file, offset_bytes }));
                }
                Some(_) => {}
            }
        }
        sorting::sort_by_key(&mut marked, |(place, progress)| (*place, progress.file, progress.offset_bytes));
        for (index, (place, progress)) in marked.iter().enumerate() {
            let thread = within.get(&progress.file).and_then(|(first, _)| self.items[*first].thread);
            self.marks.push(Mark { place: *place, thread, is_expected: progress.offset_bytes == 0 });
            self.of_file.entry(progress.file).or_default().push(index);
        }
        self.events = marked.into_iter().map(|(_, progress)| progress).collect();
        for (item, piece) in self.items.iter_mut().zip(&self.pieces) {
            let Source::File(file) = piece.source else { continue };
            item.opened_by = self.of_file.get(&file).map(|marks| marks[0]);
        }
    }
}

/// When the milestones of each file came, microseconds since exec.
fn opened_us(profile: &Profile) -> HashMap<usize, u64> {
    let mut by_path: HashMap<&[u8], usize> = HashMap::new();
    for (index, file) in profile.files.iter().enumerate() {
        by_path.insert(&file.path, index);
        if let Some(seen) = &file.seen_path {
            by_path.entry(seen).or_insert(index);
        }
    }
    let mut opened: HashMap<usize, u64> = HashMap::new();
    for milestone in profile.milestones.iter().filter(|milestone| milestone.kind != MilestoneKind::Ready) {
        if let Some(file) = by_path.get(&milestone.path[..]) {
            let first = opened.entry(*file).or_insert(milestone.time_us);
            *first = milestone.time_us.min(*first);
        }
    }
    opened
}

/// When and by which thread extents were used.
struct Times<'a> {
    /// The extents of each source, by offset.
    extents: HashMap<Source, Vec<&'a Extent>>,
    /// The program's own timeline is known.
    is_warm: bool,
}

impl Times<'_> {
    fn new(profile: &Profile) -> Times<'_> {
        let metadata = profile.metadata.iter().enumerate();
        let metadata = metadata.map(|(index, device)| (Source::Metadata(index), &device.extents));
        let files = profile.files.iter().enumerate().map(|(index, file)| (Source::File(index), &file.extents));
        let mut by_source: HashMap<Source, Vec<&Extent>> = HashMap::new();
        for (source, extents) in metadata.chain(files) {
            let mut extents: Vec<&Extent> = extents.iter().collect();
            extents.sort_by_key(|extent| extent.offset_bytes);
            by_source.insert(source, extents);
        }
        Times { extents: by_source, is_warm: profile.timeline.is_some() }
    }

    /// The time and the thread of a piece. `None`: unknown.
    fn of(&self, piece: &Piece) -> (Option<u64>, Option<u32>) {
        if !self.is_warm {
            return (Some(piece.first_use_us), None);
        }
        let extents = &self.extents[&piece.source];
        let after = extents.partition_point(|extent| extent.offset_bytes <= piece.range.start);
        let warm = after.checked_sub(1).and_then(|index| extents[index].warm_use);
        (warm.map(|warm| warm.time_us), warm.map(|warm| warm.thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{File, Milestone, Timeline, WarmUse};

    const MIB: u64 = 1 << 20;
    const PAGE: u64 = 4096;

    fn extent(offset_bytes: u64, length_bytes: u64, first_use_us: u64) -> Extent {
        let warm_use = Some(WarmUse { time_us: first_use_us / 10, thread: 1, cpu_us: 0 });
        Extent { offset_bytes, length_bytes, first_use_us, runs: 1, warm_use, ..Extent::default() }
    }

    fn profile() -> Profile {
        let file = |path: &str, extents: Vec<Extent>| File {
            path: path.into(),
            size_bytes: 100 * MIB,
            extents,
            ..File::default()
        };
        let data = (0..8).map(|index| extent(index * MIB / 2, MIB / 2, 2000 + index)).collect();
        let mut profile = Profile {
            files: vec![file("/app", vec![extent(0, PAGE, 1000), extent(PAGE, PAGE, 5000)]), file("/data", data)],
            milestones: vec![Milestone { time_us: 900, kind: MilestoneKind::Exec, path: "/app".into(), warm_us: None }],
            timeline: Some(Box::new(Timeline::default())),
            ..Profile::default()
        };
        profile.recording.runs = 1;
        profile
    }

    fn flow(profile: &Profile, item_bytes: u64) -> Flow {
        let mut pieces = crate::pieces(profile, PAGE);
        pieces.sort_by_key(|piece| piece.first_use_us);
        Flow::new(profile, &pieces, item_bytes, PAGE)
    }

    #[test]
    fn items_are_short_and_have_times_and_threads() {
        let flow = flow(&profile(), MIB / 4);
        assert_eq!(flow.items.len(), 18);
        assert!(flow.items.iter().all(|item| item.bytes <= MIB / 4 && item.thread == Some(1)) && flow.has_times());
        assert_eq!((flow.items[0].time_us, flow.items[17].time_us), (100, 500));
        assert_eq!(flow.items.iter().map(|item| item.bytes).sum::<u64>(), 4 * MIB + 2 * PAGE);
    }

    #[test]
    fn files_are_marked_where_they_are_opened_and_large_ones_within() {
        let flow = flow(&profile(), MIB / 4);
        let marks: Vec<_> = flow.marks.iter().map(|mark| (mark.place, mark.is_expected)).collect();
        assert_eq!(marks, [(0, true), (1, true), (5, false), (9, false), (13, false)]);
        assert_eq!(flow.events[2], Progress { file: 1, offset_bytes: MIB });
        assert_eq!((&flow.of_file[&0], &flow.of_file[&1]), (&vec![0], &vec![1, 2, 3, 4]));
        assert_eq!((flow.items[1].opened_by, flow.items[17].opened_by), (Some(1), Some(0)));
    }

    #[test]
    fn seldom_used_pieces_come_last_and_have_no_marks() {
        let mut profile = profile();
        profile.recording.runs = 5;
        profile.files[1].extents.iter_mut().for_each(|extent| extent.runs = 5);
        let flow = flow(&profile, MIB);
        assert_eq!((flow.marks.len(), flow.items.len()), (4, 10));
        assert!(flow.pieces[8..].iter().all(|piece| piece.late && piece.source == Source::File(0)));
    }

    #[test]
    fn list_without_times_has_none() {
        let mut profile = profile();
        profile.timeline = None;
        profile.files.iter_mut().flat_map(|file| &mut file.extents).for_each(|extent| extent.first_use_us = 0);
        assert!(!flow(&profile, MIB).has_times());
    }
}
