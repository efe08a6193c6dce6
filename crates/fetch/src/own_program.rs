//! Reads the program of this process ahead, which the kernel reads fault by fault, in windows.

use crate::calls;
use ahead_model::DeviceNumber;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Bytes of the functions that the linker puts first, for they are used at each start (`functions.ld` of the command).
const FIRST_FUNCTIONS_BYTES: u64 = 512 << 10;

/// Reads the whole program ahead. Without an effect where that is not possible.
pub fn read_whole() {
    let _ = read(|program| Some(vec![0..program.metadata().ok()?.len()]));
}

/// Reads ahead what a start uses, in a few large requests: the constants, and the functions that the linker puts first. Without an effect where
/// the program has another layout.
pub fn read_first() {
    let _ = read(|program| {
        let mut header = [0; 4096];
        let length = program.read_at(&mut header, 0).ok()?;
        first_ranges(&header[..length])
    });
}

fn read(ranges: impl FnOnce(&File) -> Option<Vec<Range<u64>>>) -> Option<()> {
    let program = File::open("/proc/self/exe").ok()?;
    let device = DeviceNumber::from_stat(program.metadata().ok()?.dev());
    let longest = calls::cap_bytes(device);
    for piece in ranges(&program)?.iter().flat_map(|range| calls::pieces(range, longest)) {
        calls::read_ahead(device, &program, &piece).ok()?;
    }
    Some(())
}

/// The parts of an ELF file of 64 bits that a start uses, from its first bytes: up to the tables for unwinding, which follow the constants, and
/// from the first byte of code. `None`: it is no such file.
fn first_ranges(header: &[u8]) -> Option<Vec<Range<u64>>> {
    // Offsets of the fields: elf(5), Elf64_Ehdr and Elf64_Phdr.
    const CLASS_64: u8 = 2;
    const PF_X: u64 = 1;
    const PT_LOAD: u64 = 1;
    const PT_GNU_EH_FRAME: u64 = 0x6474_e550;
    let number = |at: u64, bytes: u64| {
        let at = usize::try_from(at).ok()?;
        let field = header.get(at..at.checked_add(bytes as usize)?)?;
        let mut number = [0; 8];
        number[..field.len()].copy_from_slice(field);
        Some(u64::from_le_bytes(number))
    };
    if !header.starts_with(b"\x7fELF") || header.get(4) != Some(&CLASS_64) {
        return None;
    }
    let (table, entry_bytes, entries) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let (mut constants, mut functions) = (None, None);
    for at in (0..entries).map(|entry| table.checked_add(entry * entry_bytes)) {
        let at = at?;
        let (kind, flags, offset, length) =
            (number(at, 4)?, number(at + 4, 4)?, number(at + 8, 8)?, number(at + 32, 8)?);
        match kind {
            PT_GNU_EH_FRAME => constants = Some(0..offset),
            PT_LOAD if flags & PF_X != 0 => {
                functions = Some(offset..offset.checked_add(length.min(FIRST_FUNCTIONS_BYTES))?)
            }
            _ => {}
        }
    }
    Some(vec![constants?, functions?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn constants_and_first_functions_of_this_program_are_found() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let ranges = first_ranges(&program[..4096]).expect("a test is an ELF program of 64 bits");
        let [constants, functions] = &ranges[..] else { panic!("{ranges:?}") };
        assert!(constants.start == 0 && constants.end <= program.len() as u64, "{constants:?}");
        assert!(
            functions.end <= program.len() as u64 && functions.end - functions.start == FIRST_FUNCTIONS_BYTES,
            "{functions:?}"
        );
        read_first();
        read_whole();
    }

    #[test]
    fn other_files_have_no_such_ranges() {
        assert_eq!(first_ranges(b""), None);
        assert_eq!(first_ranges(b"#!/bin/sh\n"), None);
        assert_eq!(first_ranges(b"\x7fELF\x02"), None);
    }

    proptest! {
        #[test]
        fn hostile_headers_end_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            for (byte, magic) in bytes.iter_mut().zip(*b"\x7fELF\x02") {
                *byte = magic;
            }
            for range in first_ranges(&bytes).into_iter().flatten() {
                prop_assert!(range.start <= range.end);
            }
        }
    }
}
