//! The `format` files of tracefs: the layout of events and of buffer pages.
//!
//! ```text
//!     name: mm_filemap_fault
//!     ID: 597
//!     format:
//!             field:unsigned long i_ino;      offset:8;       size:8; signed:0;
//! ```
//!
//! Offsets and sizes differ between kernels and architectures. Fields are found by their names.

/// The place of a field in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub offset: usize,
    pub size: usize,
}

/// The layout of one type of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The type, as in each event's first field.
    pub(crate) id: u16,
    fields: Vec<(String, Field)>,
}

/// Why a text is not a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The line with the type is missing.
    #[error("no line \"ID: NUMBER\"")]
    NoId,
    /// A field that is needed is missing.
    #[error("no field {0}")]
    NoField(String),
    /// A field has an impossible place or size.
    #[error("field {0} has an impossible place or size")]
    Impossible(String),
}

/// Maximum end of a field in an event or page, bytes: sub-buffers have at most this size (`buffer_subbuf_size_kb`).
const PAGE_MOST_BYTES: usize = 1 << 20;

impl Format {
    /// Parses the format file of an event.
    ///
    /// # Errors
    /// It has no type.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:")).and_then(|number| number.trim().parse().ok());
        Ok(Format { id: id.ok_or(FormatError::NoId)?, fields: fields(text) })
    }

    /// The place of a number of one of these sizes.
    pub(crate) fn number(&self, name: &str, sizes: &[usize]) -> Result<Field, FormatError> {
        let field = find(&self.fields, name)?;
        if sizes.contains(&field.size) { Ok(field) } else { Err(FormatError::Impossible(name.into())) }
    }

    /// As [`Self::number`], for a field that older kernels lack.
    pub(crate) fn optional_number(&self, name: &str, sizes: &[usize]) -> Result<Option<Field>, FormatError> {
        match self.number(name, sizes) {
            Err(FormatError::NoField(_)) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// The layout of a page that `trace_pipe_raw` returns (`events/header_page`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    pub(crate) timestamp: Field,
    pub(crate) commit: Field,
    /// Where the events begin.
    pub(crate) data: usize,
    /// The size of a page, bytes.
    pub(crate) bytes: usize,
}

impl PageLayout {
    /// Parses `events/header_page`.
    ///
    /// # Errors
    /// A field is missing or impossible.
    pub fn parse(text: &str) -> Result<PageLayout, FormatError> {
        let fields = fields(text);
        let (timestamp, commit, data) = (find(&fields, "timestamp")?, find(&fields, "commit")?, find(&fields, "data")?);
        if timestamp.size != 8 {
            return Err(FormatError::Impossible("timestamp".into()));
        }
        if commit.size != 4 && commit.size != 8 {
            return Err(FormatError::Impossible("commit".into()));
        }
        let is_before = |field: Field| field.offset + field.size <= data.offset;
        if !is_before(timestamp) || !is_before(commit) || data.size == 0 {
            return Err(FormatError::Impossible("data".into()));
        }
        Ok(PageLayout { timestamp, commit, data: data.offset, bytes: data.offset + data.size })
    }
}

fn find(fields: &[(String, Field)], name: &str) -> Result<Field, FormatError> {
    let (_, field) = fields.iter().find(|(own, _)| own == name).ok_or_else(|| FormatError::NoField(name.into()))?;
    let end = field.offset.checked_add(field.size);
    if end.is_some_and(|end| end <= PAGE_MOST_BYTES) { Ok(*field) } else { Err(FormatError::Impossible(name.into())) }
}

fn fields(text: &str) -> Vec<(String, Field)> {
    text.lines().filter_map(field).collect()
}

/// `field:unsigned long i_ino; offset:8; size:8; signed:0;`
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let number = |part: Option<&str>, key: &str| part?.strip_prefix(key)?.trim().parse().ok();
    let offset = number(parts.next(), "offset:")?;
    let size = number(parts.next(), "size:")?;
    // `char comm[16]`, `__data_loc char[] filename`.
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    Some((name.to_owned(), Field { offset, size }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    /// The format file of an event of Linux 6.18 with these fields: type, name, offset and size.
    pub(crate) fn format_of(id: u16, fields: &[(&str, &str, usize, usize)]) -> String {
        let own = fields.iter().map(|(kind, name, offset, size)| {
            format!("\tfield:{kind} {name};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
        });
        format!("name: x\nID: {id}\nformat:\n{COMMON}{}\nprint fmt: \"x\"\n", own.collect::<String>())
    }

    #[test]
    fn fields_are_found_by_their_names() {
        let text = format_of(
            365,
            &[
                ("__data_loc char[]", "filename", 8, 4),
                ("pid_t", "pid", 12, 4),
                ("char", "comm[16]", 16, 16),
                ("struct file *", "file", 32, 8),
            ],
        );
        let format = Format::parse(&text).unwrap();
        assert_eq!(format.id, 365);
        let place = |name, size| format.number(name, &[size]).map(|field| field.offset);
        assert_eq!((place("common_pid", 4), place("filename", 4), place("comm", 16)), (Ok(4), Ok(8), Ok(16)));
        assert_eq!(place("file", 8), Ok(32));
        assert_eq!(place("file", 4), Err(FormatError::Impossible("file".into())));
        assert_eq!(format.optional_number("order", &[1]), Ok(None));
    }

    #[test]
    fn page_layout_is_that_of_the_kernel() {
        let layout = PageLayout::parse(HEADER_PAGE).unwrap();
        assert_eq!((layout.timestamp.offset, layout.commit.offset, layout.data, layout.bytes), (0, 8, 16, 4096));
        assert!(PageLayout::parse("").is_err());
        assert!(PageLayout::parse(&HEADER_PAGE.replace("size:4080", "size:99999999")).is_err());
    }

    proptest! {
        #[test]
        fn any_text_gives_a_layout_or_an_error(text in ".{0,200}", number in any::<u64>()) {
            let _ = Format::parse(&format!("ID: 7\n\tfield:{text};\toffset:{number};\tsize:{number};\n"));
            let _ = PageLayout::parse(&HEADER_PAGE.replace("4080", &text));
            let _ = PageLayout::parse(&HEADER_PAGE.replace("16", &number.to_string()));
        }
    }
}
