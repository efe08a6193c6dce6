//! Plain lists: a path on each line, or before each NUL byte, with or without a range.
//!
//! ```text
//!     /usr/lib/libc.so.6                 the whole file
//!     /usr/lib/libc.so.6:0-64K           bytes 0 to 65535: END is exclusive
//!     /usr/lib/libc.so.6:1M-             from 1 MiB to the end
//!     /srv/a:1-2:0-                      the whole file with the name a:1-2
//!     /srv/a/:1-2                        bytes 1 to 2 of a, even if a file has the name a:1-2
//!     # comment                          not in lists with NUL bytes
//! ```
//!
//! A file that exists wins: `/srv/a:1-2` is the file of this name if there is one, as in the output of `find -print0`, and else a range of
//! `/srv/a`. The slash of a line that is always a range leads nowhere behind a regular file. What ends like a range and is none (`:8-8`) is an
//! error with its line, because it is a mistake of who wrote the line; in lists with NUL bytes, which programs write, it is a name.

use super::pattern::Pattern;
use super::{List, ListError, WHOLE};
use ahead_model::{RangeSet, quantity};
use ahead_profile::{Extent, File, MAX_FILE_BYTES, Profile};
use std::collections::HashSet;
use std::ops::Range;

/// How the entries of a list are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syntax {
    /// Entries end with a NUL byte instead of a line end; then there are no comments.
    pub nul: bool,
    /// The whole entry is the path, as in lists of readahead-list.
    pub paths_only: bool,
}

/// Parses a list.
///
/// Errors: with the number of the line.
pub fn parse(bytes: &[u8], syntax: Syntax) -> Result<List, ListError> {
    let mut list = List::default();
    for (place, line) in entries(bytes, syntax.nul)? {
        let failed = |reason| ListError::new(place.to_text(), reason);
        let split = match split_range(line) {
            _ if syntax.paths_only => (line, None),
            Ok((b"", _)) | Err(_) if syntax.nul => (line, None),
            split => split.map_err(failed)?,
        };
        match split {
            (path, None) => list.add(path, WHOLE),
            (path, Some(range)) => list.add_ranged(path, &line[path.len()..], range),
        }
        .map_err(failed)?;
    }
    Ok(list)
}

/// Patterns with the ranges of the files that match.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// One entry for each line: its number, the pattern, the range.
    pub lines: Vec<(u64, Pattern, Range<u64>)>,
}

/// Parses a template: a list whose paths are patterns.
///
/// Errors: with the number of the line.
pub fn parse_template(bytes: &[u8]) -> Result<Template, ListError> {
    let mut template = Template::default();
    for (place, line) in entries(bytes, false)? {
        let failed = |reason| ListError::new(place.to_text(), reason);
        let (pattern, range) = split_range(line).map_err(failed)?;
        let pattern = Pattern::parse(pattern).map_err(|reason| failed(reason.into()))?;
        template.lines.push((place.number, pattern, range.unwrap_or(WHOLE)));
        if template.lines.len() > MAX_PATTERNS {
            return Err(failed(format!("more than {MAX_PATTERNS} patterns")));
        }
    }
    Ok(template)
}

/// Maximum number of patterns: each may list whole trees.
const MAX_PATTERNS: usize = 1 << 16;

/// The place of an entry, for errors.
#[derive(Clone, Copy)]
struct PlainPlace {
    number: u64,
    nul: bool,
}

impl PlainPlace {
    fn to_text(self) -> String {
        format!("{} {}", if self.nul { "entry" } else { "line" }, self.number)
    }
}

/// The entries, without empty ones and comments.
fn entries(bytes: &[u8], nul: bool) -> Result<impl Iterator<Item = (PlainPlace, &[u8])>, ListError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ListError::new(format!("byte {MAX_FILE_BYTES}"), "a list has at most 256 MiB"));
    }
    let separator = if nul { 0 } else { b'\n' };
    let numbered = bytes.split(move |byte| *byte == separator).zip(1..);
    let counts = move |line: &[u8]| !line.is_empty() && (nul || line[0] != b'#');
    Ok(numbered.filter(move |(line, _)| counts(line)).map(move |(line, number)| (PlainPlace { number, nul }, line)))
}

/// Splits a range from the end of an entry, and the slash before it.
fn split_range(entry: &[u8]) -> Result<(&[u8], Option<Range<u64>>), String> {
    let Some(colon) = entry.iter().rposition(|byte| *byte == b':') else { return Ok((entry, None)) };
    let Some((start, end)) = as_range(&entry[colon + 1..]) else { return Ok((entry, None)) };
    let start = quantity::parse_size(start)?;
    let end = if end.is_empty() { WHOLE.end } else { quantity::parse_size(end)? };
    if start >= end {
        return Err(format!(
            "the range {start}-{end} is empty, its end is exclusive; after a name that ends like a range write :0-"
        ));
    }
    let path = &entry[..colon];
    let path = path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(path);
    Ok((path, Some(start..end)))
}

/// `4K-1M` or `4K-` as its two sizes; `None`: it is a part of a name.
fn as_range(text: &[u8]) -> Option<(&str, &str)> {
    let (start, end) = str::from_utf8(text).ok()?.split_once('-')?;
    (is_size(start) && (end.is_empty() || is_size(end))).then_some((start, end))
}

/// Whether a text is digits, with or without a unit of [`quantity::parse_size`].
fn is_size(text: &str) -> bool {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let scale = unit.strip_suffix("iB").or(unit.strip_suffix('B')).unwrap_or(unit);
    unit.len() < text.len() && (scale.is_empty() || matches!(scale, "k" | "K" | "m" | "M" | "g" | "G" | "t" | "T"))
}

/// Writes the used ranges of a profile as a plain list, by file, in order of first use. Deleted files are left out. A file of which
/// everything was used has no range, so that the list stays right if it grows. `exists`: whether a file has this path; a range is then
/// written so that it does not mean that file.
///
/// Errors: a path has a line end, and the list has lines.
pub fn write(profile: &Profile, nul: bool, exists: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, ListError> {
    let names: HashSet<&[u8]> = profile.files.iter().map(|file| &file.path[..]).collect();
    let add = |out: &mut Vec<u8>, file: &File, range: &str| {
        let entry = [&file.path, range.as_bytes()].concat();
        let slash = if names.contains(&entry[..]) || exists(&entry) { "/" } else { "" };
        push(out, file, &format!("{slash}{range}"), nul)
    };
    let mut out = Vec::new();
    for file in listed(profile) {
        let used: RangeSet = file.extents.iter().map(Extent::range).collect();
        if used.gaps(&(0..file.size_bytes)).next().is_none() {
            match split_range(&file.path) {
                Ok((_, None)) => push(&mut out, file, "", nul)?,
                // A name that ends like a range would lose that part.
                _ => add(&mut out, file, ":0-")?,
            }
            continue;
        }
        for range in used.iter() {
            add(&mut out, file, &format!(":{}-{}", range.start, range.end))?;
        }
    }
    Ok(out)
}

/// Writes the files of a profile as a list for readahead-list: paths without ranges.
///
/// Errors: a path has a line end, and the list has lines.
pub fn write_paths(profile: &Profile, nul: bool) -> Result<Vec<u8>, ListError> {
    let mut out = Vec::new();
    for file in listed(profile) {
        push(&mut out, file, "", nul)?;
    }
    Ok(out)
}

/// The files that a list can name.
pub(super) fn listed(profile: &Profile) -> impl Iterator<Item = &File> {
    profile.files.iter().filter(|file| !file.deleted && !file.extents.is_empty())
}

fn push(out: &mut Vec<u8>, file: &File, range: &str, nul: bool) -> Result<(), ListError> {
    if !nul && file.path.contains(&b'\n') {
        let path = String::from_utf8_lossy(&file.path).escape_debug().to_string();
        return Err(ListError::new(path, "the path has a line end; write the list with -0"));
    }
    out.extend_from_slice(&file.path);
    out.extend_from_slice(range.as_bytes());
    out.push(if nul { 0 } else { b'\n' });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::Extent;
    use proptest::prelude::*;

    const NUL: Syntax = Syntax { nul: true, paths_only: false };

    fn ranges(text: &str) -> Vec<(String, Vec<Range<u64>>)> {
        let list = parse(text.as_bytes(), Syntax::default()).unwrap();
        let ranges = |listed: &super::super::Listed| listed.everything().iter().cloned().collect();
        list.files().iter().map(|file| (String::from_utf8(file.path.clone()).unwrap(), ranges(file))).collect()
    }

    fn error(text: &[u8], syntax: Syntax) -> String {
        parse(text, syntax).unwrap_err().to_string()
    }

    #[test]
    fn lines_have_paths_with_and_without_ranges() {
        let text = "# comment\n/a\n\n/b:4K-8K\nc:8KiB-1M\n/b:0-4096\n/d:1M-\n/e:x\n/f:\n/g:4K\n/h:1-2x";
        let expected = [
            ("/a", vec![WHOLE]),
            ("/b", vec![0..8192]),
            ("c", vec![8192..1 << 20]),
            ("/d", vec![1 << 20..u64::MAX]),
            ("/e:x", vec![WHOLE]),
            ("/f:", vec![WHOLE]),
            ("/g:4K", vec![WHOLE]),
            ("/h:1-2x", vec![WHOLE]),
        ];
        assert_eq!(ranges(text), expected.map(|(path, ranges)| (path.to_owned(), ranges)));
    }

    #[test]
    fn name_that_ends_like_a_range_gets_an_explicit_range() {
        assert_eq!(ranges("/a:1-2:0-\n"), [("/a:1-2".to_owned(), vec![WHOLE])]);
        assert_eq!(ranges("/a:1-2\n"), [("/a".to_owned(), vec![1..2])]);
        let only = Syntax { paths_only: true, ..Syntax::default() };
        assert_eq!(parse(b"/a:1-2", only).unwrap().files()[0].path, b"/a:1-2");
    }

    #[test]
    fn nul_separates_names_with_line_ends_and_number_signs() {
        let list = parse(b"#a\nb\0/c:0-4K\0\0", NUL).unwrap();
        let paths: Vec<&[u8]> = list.files().iter().map(|file| &file.path[..]).collect();
        assert_eq!(paths, [&b"#a\nb"[..], b"/c"]);
    }

    #[test]
    fn entry_that_ends_like_a_range_may_be_a_name() {
        let list = parse(b"/a:0-4K\0/b:8-8\0:1-2\0/c/:1-2\0", NUL).unwrap();
        let listed: Vec<(&[u8], bool, usize)> =
            list.files().iter().map(|file| (&file.path[..], file.wanted.is_empty(), file.ranged.len())).collect();
        assert_eq!(listed, [(&b"/a"[..], true, 1), (b"/b:8-8", false, 0), (b":1-2", false, 0), (b"/c", true, 1)]);
        assert_eq!(
            (&list.files()[0].ranged[0].suffix[..], &list.files()[3].ranged[0].suffix[..]),
            (&b":0-4K"[..], &b"/:1-2"[..])
        );
    }

    #[test]
    fn range_is_written_so_that_it_means_no_file() {
        let files = vec![file("/a", 9000, &[0..4096]), file("/a:0-4096", 100, &[0..100]), file("/b", 9000, &[0..4096])];
        let profile = Profile { files, ..Profile::default() };
        let text = write(&profile, true, |path| path == b"/b:0-4096" || path == b"/a:0-4096:0-").unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "/a/:0-4096\0/a:0-4096/:0-\0/b/:0-4096\0");
    }

    #[test]
    fn errors_have_the_number_of_the_line() {
        let lines = Syntax::default();
        assert!(error(b"/a\n# x\n/b:8-8\n", lines).starts_with("line 3: the range 8-8 is empty"));
        assert!(error(b"/a:9-8", lines).starts_with("line 1: the range 9-8 is empty"));
        assert!(error(b"/a\0/b\n", lines).starts_with("line 1: the path contains a NUL byte"));
        assert!(error(b"/a\n:0-4K\n", lines).starts_with("line 2: there is no path"));
        assert!(
            error(b"/a:0-99999999999999999999", lines).starts_with("line 1: \"99999999999999999999\" is not a size")
        );
        let long = [&b"/a\n"[..], &[b'x'; 4097]].concat();
        assert_eq!(error(&long, lines), "line 2: the path is longer than 4096 bytes");
    }

    fn file(path: &str, size_bytes: u64, extents: &[Range<u64>]) -> File {
        let extent = |range: &Range<u64>| Extent {
            offset_bytes: range.start,
            length_bytes: range.end - range.start,
            runs: 1,
            ..Extent::default()
        };
        let extents = extents.iter().map(extent).collect();
        File { path: path.into(), size_bytes, extents, ..File::default() }
    }

    #[test]
    fn profile_is_written_as_a_list_that_is_read_again() {
        let files = vec![
            file("/whole", 5000, &[4096..5000, 0..4096]),
            file("/part", 9000, &[8192..9000, 0..4096]),
            file("/a:1-2", 100, &[0..100]),
            File { deleted: true, ..file("/gone", 100, &[0..100]) },
            file("/opened", 100, &[]),
        ];
        let profile = Profile { files, ..Profile::default() };
        let text = String::from_utf8(write(&profile, false, |_| false).unwrap()).unwrap();
        assert_eq!(text, "/whole\n/part:0-4096\n/part:8192-9000\n/a:1-2:0-\n");
        assert_eq!(ranges(&text)[1], ("/part".into(), vec![0..4096, 8192..9000]));
        assert_eq!(ranges(&text)[2], ("/a:1-2".into(), vec![WHOLE]));
        assert_eq!(write_paths(&profile, true).unwrap(), b"/whole\0/part\0/a:1-2\0");
        let profile = Profile { files: vec![file("/a\nb", 1, &[0..1])], ..Profile::default() };
        assert!(
            write(&profile, false, |_| false).unwrap_err().to_string().starts_with("/a\\nb: the path has a line end")
        );
        assert_eq!(write(&profile, true, |_| false).unwrap(), b"/a\nb\0");
    }

    proptest! {
        /// Names of the bytes that have a meaning in lists.
        #[test]
        fn every_name_survives_a_list(
            names in prop::collection::btree_set("/[-a:0-9KM#\n ]{1,12}", 1..6),
            whole in any::<bool>(),
        ) {
            let used = if whole { 0..8192 } else { 4096..8192 };
            let files = names.iter().map(|name| file(name, 8192, std::slice::from_ref(&used))).collect();
            let profile = Profile { files, ..Profile::default() };
            let read = parse(&write(&profile, true, |_| false).unwrap(), NUL).unwrap();
            let expected: RangeSet = [if whole { WHOLE } else { used }].into_iter().collect();
            let expected: Vec<(&[u8], RangeSet)> = names.iter().map(|name| (name.as_bytes(), expected.clone())).collect();
            let found: Vec<(&[u8], RangeSet)> = read.files().iter().map(|file| (&file.path[..], file.everything())).collect();
            prop_assert_eq!(found, expected);
            // No entry of a range has the name of a file.
            for listed in read.files() {
                for ranged in &listed.ranged {
                    let entry = [&listed.path[..], &ranged.suffix].concat();
                    prop_assert!(!names.iter().any(|name| name.as_bytes() == entry));
                }
            }
        }

        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), nul in any::<bool>()) {
            drop(parse(&bytes, Syntax { nul, paths_only: false }));
            drop(parse_template(&bytes));
        }
    }
}
