//! Which files of a profile may be moved, and where they lie.

use super::reason::Reason;
use ahead::Result;
use ahead_model::mounts::Mount;
use ahead_plan::relocation::{Candidate, PackedFile, Run, Used, runs_of};
use ahead_plan::{Piece, Source, pieces};
use ahead_profile::{File, Profile};
use ahead_sys::ext4::FileProperties;
use ahead_sys::openat::{self, Handle, Identity};
use ahead_sys::{ext4, fiemap, generation, machine};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The files of a profile.
#[derive(Debug)]
pub struct Survey {
    /// The files that may be moved, by device.
    pub by_device: BTreeMap<u64, Vec<usize>>,
    /// The used ranges of the whole profile.
    pub pieces: Vec<Piece>,
    /// Where the files lie that are what was recorded, by index: also those that are not moved.
    pub runs: HashMap<usize, Vec<Run>>,
    identities: HashMap<usize, (Identity, u32)>,
    /// Why the others are not moved.
    pub refused: BTreeMap<usize, Reason>,
}

/// Looks at every file of the profile.
///
/// # Errors
/// The mount table or the table of swap files cannot be read.
pub fn survey(profile: &Profile, table: &[Mount]) -> Result<Survey> {
    let checks = Checks {
        boot_devices: boot_devices(table),
        swap_files: ext4::swap_files()?,
        ext4: table.iter().filter(|mount| mount.fs_type == "ext4").map(|mount| mount.device.key()).collect(),
    };
    let pieces = pieces(profile, machine::page_size());
    let mut survey = Survey {
        by_device: BTreeMap::new(),
        runs: HashMap::new(),
        identities: HashMap::new(),
        refused: BTreeMap::new(),
        pieces,
    };
    let used: HashSet<usize> = survey.pieces.iter().filter_map(|piece| file_of(piece.source)).collect();
    for (index, file) in profile.files.iter().enumerate() {
        if file.deleted && !file.extents.is_empty() {
            survey.refused.insert(index, Reason::Deleted);
        }
        if !used.contains(&index) {
            continue;
        }
        match checks.look_at(file, &mut survey, index) {
            Ok(device) => survey.by_device.entry(device).or_default().push(index),
            Err(reason) => drop(survey.refused.insert(index, reason)),
        }
    }
    Ok(survey)
}

fn file_of(source: Source) -> Option<usize> {
    match source {
        Source::File(index) => Some(index),
        Source::Metadata(_) => None,
    }
}

/// File systems that the firmware or the boot loader reads: it may know files by their blocks.
fn boot_devices(table: &[Mount]) -> Vec<u64> {
    let root = table.iter().find(|mount| mount.mount_point == b"/").map(|mount| mount.device);
    let is_boot = |mount: &&Mount| is_boot_path(&mount.mount_point) && Some(mount.device) != root;
    table.iter().filter(is_boot).map(|mount| mount.device.key()).collect()
}

fn is_boot_path(path: &[u8]) -> bool {
    [&b"/boot"[..], b"/efi"]
        .iter()
        .any(|boot| path.strip_prefix(*boot).is_some_and(|rest| rest.is_empty() || rest[0] == b'/'))
}

struct Checks {
    boot_devices: Vec<u64>,
    swap_files: Vec<(u64, u64)>,
    /// Devices that have an ext4. On ext4, stat(2) reports the device of the superblock.
    ext4: HashSet<u64>,
}

impl Checks {
    /// Adds where the file lies to the survey, and returns its device if its blocks may be moved.
    fn look_at(&self, file: &File, survey: &mut Survey, index: usize) -> std::result::Result<u64, Reason> {
        let handle = openat::handle(Path::new(OsStr::from_bytes(&file.path))).map_err(|_| Reason::Missing)?;
        let identity = handle.identity();
        if !handle.is_regular_file() {
            return Err(Reason::NotRegular);
        }
        if !file.is_recorded(identity.size_bytes, identity.mtime_ns, identity.inode) {
            return Err(Reason::Changed);
        }
        if !self.ext4.contains(&identity.device) {
            return Err(Reason::NotExt4);
        }
        let reader = handle.reopen().map_err(|_| Reason::NotReadable)?;
        survey.runs.insert(index, runs_now(&reader, &identity)?);
        if is_boot_path(&file.path) || self.boot_devices.contains(&identity.device) {
            return Err(Reason::Boot);
        }
        if self.swap_files.contains(&(identity.device, identity.inode)) {
            return Err(Reason::SwapFile);
        }
        check_properties(&reader)?;
        let generation = generation::of(&reader).ok_or(Reason::NotExt4)?;
        check_idle(&handle, &reader)?;
        survey.identities.insert(index, (identity, generation));
        Ok(identity.device)
    }
}

/// Refuses files whose blocks must not or cannot be exchanged.
pub fn check_properties(reader: &OwnedFd) -> std::result::Result<(), Reason> {
    let properties = ext4::properties(reader).map_err(|_| Reason::NotExt4)?;
    refusal_of(properties).map_or(Ok(()), Err)
}

/// The first property that forbids or prevents the exchange of blocks.
fn refusal_of(properties: FileProperties) -> Option<Reason> {
    let refusals = [
        (properties.immutable, Reason::Immutable),
        (properties.append_only, Reason::AppendOnly),
        (properties.encrypted, Reason::Encrypted),
        (properties.verity, Reason::Verity),
        (properties.inline_data, Reason::InlineData),
        (properties.dax, Reason::Dax),
        (properties.journals_data, Reason::JournalsData),
        (!properties.has_extents, Reason::NoExtents),
    ];
    refusals.into_iter().find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
}

/// Refuses a file that another process writes or executes: the kernel permits the exchange only through a descriptor for writing, which it
/// does not give while the file is executed.
pub fn check_idle(handle: &Handle, reader: &OwnedFd) -> std::result::Result<(), Reason> {
    match ext4::has_writers(reader.as_fd()) {
        Ok(false) => {}
        Ok(true) | Err(_) => return Err(Reason::BeingWritten),
    }
    match ext4::open_for_exchange(handle).map_err(|error| error.raw_os_error()) {
        Ok(_) => Ok(()),
        Err(Some(number)) if number == rustix::io::Errno::TXTBSY.raw_os_error() => Err(Reason::Executing),
        // The whole file system is refused for that.
        Err(Some(number)) if number == rustix::io::Errno::ROFS.raw_os_error() => Ok(()),
        Err(_) => Err(Reason::NotWritable),
    }
}

/// Where a file lies now. Data that has no place yet gets one.
fn runs_now(reader: &OwnedFd, identity: &Identity) -> std::result::Result<Vec<Run>, Reason> {
    let ask = || fiemap::extents(reader, 0, identity.size_bytes.max(1)).map_err(|_| Reason::NotReadable);
    let mut extents = ask()?;
    if extents.iter().any(|extent| extent.delayed) {
        rustix::fs::fsync(reader).map_err(|_| Reason::NotReadable)?;
        extents = ask()?;
    }
    if extents.len() >= fiemap::MAX_EXTENTS {
        return Err(Reason::TooFragmented);
    }
    Ok(runs_of(&extents, false))
}

impl Survey {
    /// The files of one file system, with their used ranges.
    pub fn candidates(&self, files: &[usize]) -> Vec<Candidate> {
        let mut used: HashMap<usize, Vec<Used>> = HashMap::new();
        for piece in &self.pieces {
            if let Some(file) = file_of(piece.source) {
                let used = used.entry(file).or_default();
                used.push(Used { range: piece.range.clone(), first_use_us: piece.first_use_us, late: piece.late });
            }
        }
        let candidate = |file: &usize| {
            let mut used = used.remove(file).unwrap_or_default();
            used.sort_by_key(|used| used.range.start);
            Candidate { file: *file, used, runs: self.runs[file].clone() }
        };
        files.iter().map(candidate).collect()
    }

    /// The entry of a file in the record.
    pub fn packed_file(&self, profile: &Profile, file: usize) -> PackedFile {
        let (identity, generation) = &self.identities[&file];
        PackedFile {
            path: profile.files[file].path.clone(),
            inode: identity.inode,
            generation: *generation,
            size_bytes: identity.size_bytes,
            mtime_ns: identity.mtime_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_property_is_refused_with_its_reason() {
        let plain = FileProperties { has_extents: true, ..FileProperties::default() };
        let cases = [
            (plain, None),
            (FileProperties { immutable: true, ..plain }, Some(Reason::Immutable)),
            (FileProperties { append_only: true, ..plain }, Some(Reason::AppendOnly)),
            (FileProperties { encrypted: true, ..plain }, Some(Reason::Encrypted)),
            (FileProperties { verity: true, ..plain }, Some(Reason::Verity)),
            (FileProperties { inline_data: true, ..plain }, Some(Reason::InlineData)),
            (FileProperties { dax: true, ..plain }, Some(Reason::Dax)),
            (FileProperties { journals_data: true, ..plain }, Some(Reason::JournalsData)),
            (FileProperties { has_extents: false, ..plain }, Some(Reason::NoExtents)),
            // A file with inline data has no extents: the more precise reason is reported.
            (FileProperties { inline_data: true, has_extents: false, ..plain }, Some(Reason::InlineData)),
            (FileProperties { encrypted: true, dax: true, ..plain }, Some(Reason::Encrypted)),
        ];
        for (properties, reason) in cases {
            assert_eq!(refusal_of(properties), reason, "{properties:?}");
        }
    }

    #[test]
    fn boot_is_a_whole_component() {
        assert!(is_boot_path(b"/boot") && is_boot_path(b"/boot/vmlinuz") && is_boot_path(b"/efi"));
        assert!(!is_boot_path(b"/bootstrap") && !is_boot_path(b"/usr/boot"));
    }
}
