//! How much of the prefetched data was used: by one more run, recorded exactly, or else by the profile.

use super::ranges::{ByOwner, Owner, by_owner, common_bytes};
use crate::prefetch::{Account, Issued, Source};
use ahead_model::RangeSet;
use ahead_profile::Profile;
use ahead_sys::machine;
use std::ops::Range;

/// Bytes fetched, by what became of them. `prefetched = used + bridged + wasted`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All that was issued.
    pub prefetched_bytes: u64,
    /// Of these: used.
    pub used_bytes: u64,
    /// Of these: read only to join two ranges, and not used.
    pub bridged_bytes: u64,
    /// Of these: neither.
    pub wasted_bytes: u64,
    /// Used bytes of files that changed since the recording: not prefetched.
    pub stale_bytes: u64,
}

/// Judges one run's account by the pages that `reference` (a recording of the same command) says are used. The account needs its
/// [`Account::ranges`].
pub fn judge(profile: &Profile, reference: &Profile, account: &Account) -> Usage {
    let all = issued(profile, account);
    let bridged = owned(profile, account.ranges.iter().filter(|range| range.bridged));
    let used = used_of(reference);
    let prefetched_bytes = total(&all);
    let used_bytes = common_bytes(&all, &used);
    // What was bridged and turned out to be used has paid for itself: it counts as used.
    let bridged_bytes = total(&bridged) - common_bytes(&bridged, &used);
    Usage {
        prefetched_bytes,
        used_bytes,
        bridged_bytes,
        wasted_bytes: prefetched_bytes - used_bytes - bridged_bytes,
        stale_bytes: account.stale_bytes,
    }
}

/// All ranges that were issued.
pub fn issued(profile: &Profile, account: &Account) -> ByOwner {
    owned(profile, account.ranges.iter())
}

fn total(ranges: &ByOwner) -> u64 {
    ranges.values().map(RangeSet::count).sum()
}

fn owned<'a>(profile: &Profile, issued: impl Iterator<Item = &'a Issued>) -> ByOwner {
    let owner = |source| match source {
        Source::File(index) => Some(Owner::File(profile.files.get(index)?.path.clone())),
        Source::Metadata(index) => Some(Owner::Device(profile.metadata.get(index)?.mount_point.clone())),
    };
    by_owner(issued.filter_map(|issued| Some((owner(issued.source)?, whole_pages(&issued.range)))))
}

fn used_of(reference: &Profile) -> ByOwner {
    let files = reference.files.iter().map(|file| (Owner::File(file.path.clone()), &file.extents));
    let devices = reference.metadata.iter().map(|device| (Owner::Device(device.mount_point.clone()), &device.extents));
    let ranges = files.chain(devices).flat_map(|(owner, extents)| {
        extents.iter().map(move |extent| {
            let end = extent.offset_bytes.saturating_add(extent.length_bytes);
            (owner.clone(), whole_pages(&(extent.offset_bytes..end)))
        })
    });
    by_owner(ranges)
}

/// The cache holds whole pages: a file's last one counts in full on both sides.
fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let page = machine::page_size();
    range.start / page * page..range.end.div_ceil(page) * page
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, File, Metadata};

    fn profile(extents: &[(u64, u64)]) -> Profile {
        let extent =
            |&(offset_bytes, length_bytes): &(u64, u64)| Extent { offset_bytes, length_bytes, ..Extent::default() };
        let extents = extents.iter().map(extent).collect();
        Profile { files: vec![File { path: b"/a".to_vec(), extents, ..File::default() }], ..Profile::default() }
    }

    #[test]
    fn every_byte_is_used_bridged_or_wasted() {
        let page = machine::page_size();
        let issued =
            |from: u64, to: u64, bridged| Issued { source: Source::File(0), range: from * page..to * page, bridged };
        // 0-3 used, 3-5 bridged of which 4-5 turns out to be used, 5-8 used but for 7-8.
        let account = Account {
            ranges: vec![issued(0, 3, false), issued(3, 5, true), issued(5, 8, false)],
            ..Account::default()
        };
        let reference = profile(&[(0, 3 * page), (4 * page, 3 * page)]);
        let usage = judge(&profile(&[(0, 8 * page)]), &reference, &account);
        let pages = |bytes: u64| bytes / page;
        assert_eq!((pages(usage.prefetched_bytes), pages(usage.used_bytes)), (8, 6));
        assert_eq!((pages(usage.bridged_bytes), pages(usage.wasted_bytes)), (1, 1));
    }

    /// Regression: devices were distinguished by their nodes. If a disk's node had changed since the recording, all of its
    /// metadata counted as wasted; if the disk now had another disk's node, that disk's metadata counted as used.
    #[test]
    fn a_device_is_known_by_its_mount_point() {
        let page = machine::page_size();
        let device = |node: &str, mount_point: &str| Metadata {
            device_path: node.into(),
            mount_point: mount_point.into(),
            extents: vec![Extent { length_bytes: page, ..Extent::default() }],
            ..Metadata::default()
        };
        let profile = |metadata| Profile { metadata, ..Profile::default() };
        let recorded = profile(vec![device("/dev/loop2", "/a"), device("/dev/loop3", "/b")]);
        let issued = |index| Issued { source: Source::Metadata(index), range: 0..page, bridged: false };
        let account = Account { ranges: vec![issued(0), issued(1)], ..Account::default() };
        let judged = |reference| {
            let Usage { used_bytes, wasted_bytes, .. } = judge(&recorded, &profile(reference), &account);
            (used_bytes / page, wasted_bytes / page)
        };
        assert_eq!(judged(vec![device("/dev/loop3", "/a"), device("/dev/loop2", "/b")]), (2, 0));
        assert_eq!(judged(vec![device("/dev/loop2", "/c")]), (0, 2));
        // What has the path of a mount point is not what is mounted there.
        let file = File { path: b"/a".to_vec(), extents: device("", "").extents, ..File::default() };
        let reference = Profile { files: vec![file], ..Profile::default() };
        assert_eq!(judge(&recorded, &reference, &account).used_bytes, 0);
    }
}
