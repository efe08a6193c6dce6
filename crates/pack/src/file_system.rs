//! A file system whose files are packed: what refuses it as a whole, its room, and what the relocation brings there.

use super::survey::Survey;
use ahead::Result;
use ahead::device_store::Descriptions;
use ahead_model::mounts::Mount;
use ahead_model::{DeviceDescription, DeviceNumber};
use ahead_plan::relocation::{
    Layout, Move, Run, Timing, Where, donor_bytes, fragments, overlay, place, replay_seconds, runs_of,
};
use ahead_plan::{Piece, Source, from_recording};
use ahead_profile::Profile;
use ahead_sys::{block, ext4, fiemap, machine};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The share of the file system that stays free: with less, ext4 scatters new files. mke2fs reserves the same share for root.
const RESERVE_SHARE: f64 = 0.05;

/// Why the file system cannot be packed now, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotNow(pub String);

/// A file system with files of the profile.
#[derive(Debug)]
pub struct FileSystem {
    /// The root of the file system.
    pub mount_point: PathBuf,
    /// Its device, `8:1`.
    pub device: DeviceNumber,
    /// Files that may be moved, indices in the profile.
    pub files: Vec<usize>,
    /// Why none of them is moved.
    pub refused: Option<String>,
    /// What computes times on its disk.
    pub timing: Timing,
    /// Size of a block, bytes.
    pub block_bytes: u64,
}

/// The times and the fragments of a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Planned {
    /// Seconds of a replay with the places of now.
    pub before_s: f64,
    /// The same with the new places.
    pub after_s: f64,
    /// Fragments that the moved files get in addition; negative: they have fewer.
    pub fragments_added: i64,
    /// Contiguous pieces of the new place; 1 if it is only planned.
    pub runs: u64,
}

/// Opens the file system of a device for packing these files.
pub fn open(
    profile: &Profile,
    device: u64,
    files: Vec<usize>,
    table: &[Mount],
    descriptions: &Descriptions,
) -> FileSystem {
    let number = DeviceNumber::from_key(device);
    let whole = table.iter().find(|mount| mount.device == number && mount.fs_type == "ext4" && mount.root == b"/");
    let any = whole.or_else(|| table.iter().find(|mount| mount.device == number));
    let mount_point = any.map_or(PathBuf::new(), |mount| PathBuf::from(OsStr::from_bytes(&mount.mount_point)));
    let (timing, known) = timing_of(profile, device, &files, descriptions);
    let mut opened =
        FileSystem { mount_point, device: number, files, refused: None, timing, block_bytes: machine::page_size() };
    opened.refused = match whole {
        None => Some("the root of the file system is not mounted: only there the donor can be kept".into()),
        Some(mount) => opened.refusal(mount, known),
    };
    opened
}

/// What computes times on the device of these files, and whether anything is known about it.
fn timing_of(profile: &Profile, device: u64, files: &[usize], descriptions: &Descriptions) -> (Timing, bool) {
    let number = DeviceNumber::from_key(device);
    if let Some(known) = descriptions.of(Some(number)) {
        return (Timing::Description(known.description), true);
    }
    let emulated = ahead_disk::find_by_device(number);
    if let Some((disk, model)) = emulated.and_then(|disk| disk.model().ok().map(|model| (disk, model))) {
        return (Timing::Model(Box::new(model), disk.capacity_bytes), true);
    }
    let rotates = block::disk_setting(number, "rotational").map(|setting| setting == "1");
    let recorded: Vec<u64> = files.iter().map(|file| profile.files[*file].device).collect();
    let metadata = (0..profile.metadata.len()).filter(|index| recorded.contains(&profile.metadata[*index].device));
    let metadata: Vec<usize> = metadata.collect();
    match from_recording::description(profile, files, &metadata, rotates) {
        Some(description) => (Timing::Description(description), true),
        None if rotates == Some(true) => (Timing::Description(DeviceDescription::ROTATING), true),
        None => (Timing::Description(DeviceDescription::FLASH), rotates.is_some()),
    }
}

impl FileSystem {
    fn refusal(&mut self, mount: &Mount, known: bool) -> Option<String> {
        if !self.timing.description().seeks() {
            let remedy = "a description of the disk can be given with --device, or kept with `sudo ahead probe --save`";
            return Some(match known {
                true => "its device does not seek (flash, or a network volume): places do not matter there".into(),
                false => format!("nothing shows that its device is a rotating disk; {remedy}"),
            });
        }
        let is_read_only = |options: &[u8]| options.split(|byte| *byte == b',').any(|option| option == b"ro");
        if is_read_only(&mount.options) || is_read_only(&mount.super_options) {
            return Some("it is mounted read-only".into());
        }
        if mount.super_options.windows(12).any(|text| text == b"data=journal") {
            return Some("it journals data (data=journal), and then the kernel exchanges no blocks".into());
        }
        let superblock = match ext4::superblock_of(self.device.key()) {
            Ok(superblock) => superblock,
            Err(error) => return Some(error.to_string()),
        };
        self.block_bytes = superblock.block_bytes;
        if superblock.has_errors {
            return Some("the kernel has found errors in it: check it with e2fsck first".into());
        }
        if superblock.has_clusters {
            return Some("it allocates clusters (bigalloc), whose blocks the kernel does not exchange".into());
        }
        if superblock.block_bytes > machine::page_size() {
            return Some("its blocks are larger than a page".into());
        }
        None
    }

    /// Whether there is room for the donor and a reserve.
    pub fn check_room(&self, layout: &Layout) -> std::result::Result<(), NotNow> {
        let needed = donor_bytes(layout, machine::page_size());
        let stat = rustix::fs::statvfs(&self.mount_point).map_err(|error| NotNow(format!("statvfs: {error}")))?;
        let free = stat.f_bfree.saturating_mul(stat.f_frsize);
        let reserve = (stat.f_blocks.saturating_mul(stat.f_frsize) as f64 * RESERVE_SHARE) as u64;
        if needed.saturating_add(reserve) <= free {
            return Ok(());
        }
        Err(NotNow(format!(
            "too little room: {needed} bytes are moved and {reserve} bytes (5 %) stay free, but only {free} bytes are free"
        )))
    }

    /// Assigns the donor's blocks, and computes what that brings.
    ///
    /// # Errors
    /// The places of the donor cannot be read. Inner: the donor is in too many pieces.
    pub fn placed(
        &self,
        profile: &Profile,
        survey: &Survey,
        layout: &Layout,
        donor: &File,
    ) -> Result<std::result::Result<(Vec<Move>, Planned), NotNow>> {
        let page = machine::page_size();
        let runs = runs_of(&fiemap::extents(donor, 0, donor_bytes(layout, page))?, true);
        let moves = match place(layout, &runs, &survey.runs, page, self.block_bytes) {
            Ok(moves) => moves,
            Err(refused) => {
                return Ok(Err(NotNow(format!(
                    "no contiguous room: the new place is in {} pieces, and at most {} are of use",
                    refused.runs, refused.allowed
                ))));
            }
        };
        let planned = self.brings(profile, survey, &moves, runs.len() as u64);
        Ok(Ok((moves, planned)))
    }

    /// What the layout brings if its new place is contiguous.
    pub fn expected(&self, profile: &Profile, survey: &Survey, layout: &Layout) -> Planned {
        let page = machine::page_size();
        // The allocator prefers the start of the disk, near the donor's directory: about where the first of the files lies.
        let first = layout.segments.iter().filter_map(|segment| survey.runs[&segment.file].first());
        let physical_bytes = first.map(|run| run.physical_bytes).min().unwrap_or(0);
        let length_bytes = donor_bytes(layout, page);
        let donor = [Run { offset_bytes: 0, physical_bytes, length_bytes }];
        match place(layout, &donor, &survey.runs, page, self.block_bytes) {
            Ok(moves) => self.brings(profile, survey, &moves, 1),
            Err(_) => Planned::default(),
        }
    }

    fn brings(&self, profile: &Profile, survey: &Survey, moves: &[Move], runs: u64) -> Planned {
        let mut after: HashMap<usize, Vec<Run>> = HashMap::new();
        let mut moved: HashMap<usize, Vec<Run>> = HashMap::new();
        for one in moves {
            moved.entry(one.file).or_default().push(one.after());
        }
        let mut fragments_added = 0;
        for (file, mut new) in moved {
            new.sort_by_key(|run| run.offset_bytes);
            let runs = overlay(&survey.runs[&file], &new);
            fragments_added += fragments(&runs) as i64 - fragments(&survey.runs[&file]) as i64;
            after.insert(file, runs);
        }
        let is_here = |piece: &&Piece| match piece.source {
            Source::File(index) => {
                self.files.contains(&index) || survey.runs.contains_key(&index) && self.has(profile, index)
            }
            Source::Metadata(index) => self.is_of(profile, index),
        };
        let pieces: Vec<Piece> = survey.pieces.iter().filter(is_here).cloned().collect();
        let before_s = replay_seconds(&pieces, Where { files: &survey.runs }, &self.timing);
        let mut places = survey.runs.clone();
        places.extend(after);
        let after_s = replay_seconds(&pieces, Where { files: &places }, &self.timing);
        Planned { before_s, after_s, fragments_added, runs }
    }

    /// Whether a file that is not moved lies in this file system, too: on the device that was recorded for one that is moved.
    fn has(&self, profile: &Profile, file: usize) -> bool {
        self.files.first().is_some_and(|moved| profile.files[*moved].device == profile.files[file].device)
    }

    fn is_of(&self, profile: &Profile, metadata: usize) -> bool {
        let metadata = &profile.metadata[metadata];
        let is_device = |file: &usize| profile.files[*file].device == metadata.device;
        self.files.first().is_some_and(is_device)
            || Path::new(OsStr::from_bytes(&metadata.mount_point)) == self.mount_point
    }
}
