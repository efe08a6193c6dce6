//! Escapes bytes from outside, for display and for storage.

use std::fmt::Write;

/// Escapes for a terminal or a page. Printable characters stay. A character that could move the cursor, change the text
/// direction or be invisible becomes `\n`, `\xff` or `\u{202e}`. A backslash becomes `\\`, so the result is unambiguous.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                hidden if hidden.is_control() || is_format(hidden) => {
                    write!(text, "\\u{{{:x}}}", u32::from(hidden)).expect("a string takes every character");
                }
                shown => text.push(shown),
            }
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a string takes every character");
        }
    }
    text
}

/// Escapes for a message: like [`printable`], but backslashes stay single, because messages are not parsed.
pub fn one_line(text: &str) -> String {
    printable(text.as_bytes()).replace("\\\\", "\\")
}

/// Invisible characters that change how others are shown: joiners, text direction, separators, byte order mark.
pub(crate) fn is_format(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A command line that a POSIX shell would split into the same arguments, if these are printable.
pub fn command_line(arguments: &[Vec<u8>]) -> String {
    let words = arguments.iter().map(|argument| {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(byte) || *byte >= 0x80;
        let shown = printable(argument);
        if !argument.is_empty() && argument.iter().all(plain) {
            shown
        } else {
            format!("'{}'", shown.replace('\'', r"'\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Encodes every byte except letters, digits and `/._-~` as `%XX`: exact for any bytes, as in the path of a URL.
pub fn percent(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "%{byte:02X}").expect("a string takes every character");
        }
    }
    text
}

/// One sign for the share of a part that is there, from 0 to 1: the larger, the higher. The smallest one shows.
pub fn height(share: f64) -> char {
    const HEIGHTS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    HEIGHTS[(share * 8.0).ceil().clamp(0.0, 8.0) as usize]
}

/// Shortens a path to `width` columns by removing its beginning: `…/numpy/core/umath.so`.
pub fn shorten(path: &str, width: usize) -> String {
    if console::measure_text_width(path) <= width {
        return path.to_owned();
    }
    let mut used = 1;
    let mut start = path.len();
    for (at, character) in path.char_indices().rev() {
        used += console::measure_text_width(character.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        start = at;
    }
    format!("…{}", &path[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable(b"/a b/\xc3\xa9.so"), "/a b/é.so");
        assert_eq!(printable(b"/\x1b[2Jx\n"), "/\\u{1b}[2Jx\\n");
        assert_eq!(printable(b"/\xff\xfe"), "/\\xff\\xfe");
        assert_eq!(printable("/\u{202e}cod.exe".as_bytes()), "/\\u{202e}cod.exe");
        assert_eq!(printable(br"/a\b"), r"/a\\b");
        assert_eq!(one_line("a\\d:\nno\x1b"), r"a\d:\nno\u{1b}");
    }

    #[test]
    fn arguments_are_quoted_if_needed() {
        let words =
            |words: &[&str]| command_line(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(words(&["python3", "-c", "import numpy"]), "python3 -c 'import numpy'");
        assert_eq!(words(&["echo", "it's", ""]), r"echo 'it'\''s' ''");
    }

    #[test]
    fn percent_encoding_is_exact() {
        assert_eq!(percent(b"/a b\xff%"), "/a%20b%FF%25");
    }

    #[test]
    fn paths_are_shortened_at_their_beginning() {
        assert_eq!(shorten("/usr/lib/x.so", 20), "/usr/lib/x.so");
        assert_eq!(shorten("/usr/lib/x.so", 6), "…/x.so");
        assert_eq!(shorten("/日本語", 5), "…本語");
        assert_eq!(shorten("/usr", 0), "…");
    }
}
