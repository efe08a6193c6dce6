//! Words of a command and paths in JSON; they need not be UTF-8.

use crate::text::percent;
use serde_json::Value;

/// The words of a command for JSON, with U+FFFD for what is not UTF-8.
pub fn lossy(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The same words, exactly, where one of them is not UTF-8.
pub fn percent_where_needed(words: &[Vec<u8>]) -> Option<Vec<String>> {
    let is_needed = words.iter().any(|word| str::from_utf8(word).is_err());
    is_needed.then(|| words.iter().map(|word| percent(word)).collect())
}

/// Adds a path under its name; a path that is not UTF-8 is added as `NAME_percent`, too.
pub fn add_path(object: &mut Value, name: &str, path: &[u8]) {
    match str::from_utf8(path) {
        Ok(text) => object[name] = text.into(),
        Err(_) => {
            object[name] = String::from_utf8_lossy(path).into();
            object[format!("{name}_percent")] = percent(path).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_not_utf_8_are_given_exactly_besides() {
        let words = [b"a b".to_vec(), b"\xff".to_vec()];
        assert_eq!(lossy(&words), ["a b", "\u{fffd}"]);
        assert_eq!(percent_where_needed(&words).unwrap(), ["a%20b", "%FF"]);
        assert_eq!(percent_where_needed(&words[..1]), None);
    }
}
