//! How much of the prefetched data was used: by one more run, recorded exactly, or else by the profile.

use crate::prefetch::{Account, Source};
use ahead_model::RangeSet;
use ahead_profile::Profile;
use ahead_sys::machine;
use std::collections::BTreeMap;
use std::ops::Range;

/// Judges one run's account by the pages that `reference` (a recording of the same command) says are used: every issued byte is then used,
/// bridged or wasted. The account needs its [`Account::ranges`]. Issued and bridged bytes are counted again, in whole pages, each page once.
pub fn judge(profile: &Profile, reference: &Profile, account: &mut Account) {
    let all = issued(profile, account);
    let bridged = account.ranges.iter().filter(|issued| issued.bridged);
    let bridged = by_path(profile, bridged.map(|issued| (issued.source, issued.range.clone())));
    let used = by_path(reference, used_of(reference));
    let used_bytes = common_bytes(&all, &used);
    account.issued_bytes = total(&all);
    // What was bridged and turned out to be used has paid for itself: it counts as used.
    account.bridged_bytes = total(&bridged) - common_bytes(&bridged, &used);
    account.used_bytes = Some(used_bytes);
    account.wasted_bytes = Some(account.issued_bytes - used_bytes - account.bridged_bytes);
}

/// All pages that were issued, by path, as bytes. True: of the block device that is mounted there. Its node does not identify it: another device
/// may have it by now.
pub fn issued<'a>(profile: &'a Profile, account: &Account) -> BTreeMap<(bool, &'a [u8]), RangeSet> {
    by_path(profile, account.ranges.iter().map(|issued| (issued.source, issued.range.clone())))
}

fn by_path(profile: &Profile, ranges: impl Iterator<Item = (Source, Range<u64>)>) -> BTreeMap<(bool, &[u8]), RangeSet> {
    // The cache holds whole pages: a file's last one counts in full on both sides.
    let page = machine::page_size();
    let mut gathered: BTreeMap<(bool, &[u8]), RangeSet> = BTreeMap::new();
    for (source, range) in ranges {
        let path = match source {
            Source::File(index) => profile.files.get(index).map(|file| &file.path),
            Source::Metadata(index) => profile.metadata.get(index).map(|device| &device.mount_point),
        };
        if let Some(path) = path {
            let pages = range.start / page * page..range.end.div_ceil(page) * page;
            gathered.entry((source.is_metadata(), path)).or_default().insert(pages);
        }
    }
    gathered
}

fn used_of(reference: &Profile) -> impl Iterator<Item = (Source, Range<u64>)> {
    let files = reference.files.iter().enumerate().map(|(index, file)| (Source::File(index), &file.extents));
    let devices = reference.metadata.iter().enumerate();
    let devices = devices.map(|(index, device)| (Source::Metadata(index), &device.extents));
    files.chain(devices).flat_map(|(source, extents)| extents.iter().map(move |extent| (source, extent.range())))
}

fn total(ranges: &BTreeMap<(bool, &[u8]), RangeSet>) -> u64 {
    ranges.values().map(RangeSet::count).sum()
}

/// Bytes that are in both, over all files and devices.
fn common_bytes(a: &BTreeMap<(bool, &[u8]), RangeSet>, b: &BTreeMap<(bool, &[u8]), RangeSet>) -> u64 {
    a.iter().filter_map(|(path, ranges)| Some(ranges.count_common(b.get(path)?))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefetch::Issued;
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
        let mut account = Account {
            ranges: vec![issued(0, 3, false), issued(3, 5, true), issued(5, 8, false)],
            ..Account::default()
        };
        let reference = profile(&[(0, 3 * page), (4 * page, 3 * page)]);
        judge(&profile(&[(0, 8 * page)]), &reference, &mut account);
        assert_eq!((account.issued_bytes, account.used_bytes), (8 * page, Some(6 * page)));
        assert_eq!((account.bridged_bytes, account.wasted_bytes), (page, Some(page)));
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
        let judged = |reference: Profile| {
            let mut account = account.clone();
            judge(&recorded, &reference, &mut account);
            (account.used_bytes, account.wasted_bytes)
        };
        let pages = |used, wasted| (Some(used * page), Some(wasted * page));
        assert_eq!(judged(profile(vec![device("/dev/loop3", "/a"), device("/dev/loop2", "/b")])), pages(2, 0));
        assert_eq!(judged(profile(vec![device("/dev/loop2", "/c")])), pages(0, 2));
        // What has the path of a mount point is not what is mounted there.
        let file = File { path: b"/a".to_vec(), extents: device("", "").extents, ..File::default() };
        assert_eq!(judged(Profile { files: vec![file], ..Profile::default() }), pages(0, 2));
    }
}
