//! Index scan of an SQLite database: the rows of a table in the order of an index.
//!
//! The index has the rowids in the order of its column, so the rows are at random pages of the table. The kernel sees random reads, and the
//! disk serves one at a time. But the program knows every page that it will read: the rowids are the keys, and the interior pages of the
//! table, one for some hundred rows' pages, have the page of each rowid.
//!
//! ```text
//!     index    a→17  b→3  c→90  d→4 ...            rowids: the keys
//!     resolver 17 → page 212, 3 → page 7, ...      pages: from the interior pages of the table, in memory
//!     ahead::Prefetcher::of_keys(keys, resolver)   requests the pages of the next keys while this row is used
//! ```
//!
//! The program parses the file format itself, so that the example needs no C library. With SQLite the loop is the same: the resolver works
//! on the file, and the row comes from `SELECT ... WHERE rowid = ?`.

use ahead::{Item, Prefetcher, PrefetcherOptions};
use ahead_examples::sqlite::{Entry, HEADER_BYTES, Header, Value, entries, values};
use ahead_examples::{Compute, Report, Stopwatch, finish, late_items};
use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Most levels of a b-tree, as in SQLite (`BTCURSOR_MAX_DEPTH`): a damaged file may have a page that is its own descendant.
const MOST_LEVELS: usize = 20;

/// Reads the rows of an SQLite table in the order of an index
#[derive(Parser)]
#[command(name = "ahead-index-scan", version)]
struct Options {
    /// The database
    database: PathBuf,
    /// The index
    #[arg(long, value_name = "NAME")]
    index: String,
    /// How pages are read
    #[arg(long, value_enum, default_value = "ahead")]
    reader: Reader,
    /// Read only the first N rows
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
    /// Processor time to spend on each MiB of rows, microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    compute_us_per_mib: u64,
    /// Print times and counters as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reader {
    /// pread(2) under the kernel's read-ahead
    Plain,
    /// The same, with the pages requested by ahead::Prefetcher
    Ahead,
}

#[derive(Serialize)]
struct Details {
    /// Rows read.
    rows: u64,
    /// Bytes of their texts and blobs.
    text_bytes: u64,
    /// CRC-32 of their texts and blobs in the order of the index, hexadecimal.
    checksum: String,
    /// Time until the rowids and the interior pages of the table were read, seconds.
    keys_s: f64,
    /// Rows per second after that.
    rows_per_s: f64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let name = options.database.display().to_string();
    finish("ahead-index-scan", run(&options).context(name))
}

fn run(options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let mut database = Database::open(&options.database, options.reader)?;
    let (index_root, table_root) = database.roots(&options.index)?;
    let mut keys = database.rowids(index_root)?;
    keys.truncate(options.limit);
    let leaves = Arc::new(database.leaves(table_root)?);
    let keys_s = watch.elapsed_s();
    let mut scan = Scan { compute: Compute::new(options.compute_us_per_mib), ..Scan::default() };
    match options.reader {
        Reader::Plain => keys.into_iter().try_for_each(|rowid| scan.row(&mut database, &leaves, rowid))?,
        Reader::Ahead => {
            let (path, header, table) = (options.database.clone(), database.header, leaves.clone());
            let resolve =
                move |rowid: &i64| Some(Item::from((path.clone(), range_of(&header, leaf_of(&table, *rowid)?))));
            let mut prefetcher = Prefetcher::of_keys(keys, resolve, PrefetcherOptions::default());
            prefetcher.by_ref().try_for_each(|rowid| scan.row(&mut database, &leaves, rowid))?;
            database.waits = Some(database.waits.unwrap_or(0) + late_items(&prefetcher));
        }
    }
    let details = Details {
        rows: scan.rows,
        text_bytes: scan.text_bytes,
        checksum: format!("{:08x}", scan.hasher.finalize()),
        keys_s,
        rows_per_s: scan.rows as f64 / (watch.elapsed_s() - keys_s).max(1e-9),
    };
    if options.json {
        let way = options.reader.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        return Report::new(way, &watch, database.bytes, database.waits, details).print();
    }
    println!("{}  {} rows, {} bytes of text", details.checksum, details.rows, details.text_bytes);
    Ok(())
}

/// What the scan has found so far.
#[derive(Default)]
struct Scan {
    rows: u64,
    text_bytes: u64,
    hasher: crc32fast::Hasher,
    compute: Compute,
}

impl Scan {
    fn row(&mut self, database: &mut Database, leaves: &[(i64, u32)], rowid: i64) -> Result<()> {
        let page = leaf_of(leaves, rowid).with_context(|| format!("no page has the row {rowid}"))?;
        let found = database.entries(page)?.into_iter().find_map(|entry| match entry {
            Entry::Row(number, record) if number == rowid => Some(record),
            _ => None,
        });
        let record = found.with_context(|| format!("page {page} lacks the row {rowid}"))?;
        for value in values(&record)? {
            if let Value::Bytes(bytes) = value {
                self.hasher.update(bytes);
                self.compute.spend(bytes);
                self.text_bytes += bytes.len() as u64;
            }
        }
        self.rows += 1;
        Ok(())
    }
}

/// The leaf page of a rowid. The list has the last rowid of each leaf page, in ascending order.
fn leaf_of(leaves: &[(i64, u32)], rowid: i64) -> Option<u32> {
    leaves.get(leaves.partition_point(|(last, _)| *last < rowid)).map(|(_, page)| *page)
}

/// The bytes of a page in the file.
fn range_of(header: &Header, page: u32) -> Range<u64> {
    let start = (u64::from(page) - 1) * header.page_bytes as u64;
    start..start + header.page_bytes as u64
}

/// An open database.
struct Database {
    file: File,
    path: PathBuf,
    reader: Reader,
    header: Header,
    page: Vec<u8>,
    bytes: u64,
    waits: Option<u64>,
}

impl Database {
    fn open(path: &Path, reader: Reader) -> Result<Database> {
        let file = File::open(path)?;
        let mut first = [0; HEADER_BYTES];
        file.read_exact_at(&mut first, 0).context("not an SQLite database")?;
        let header = Header::parse(&first)?;
        let page = vec![0; header.page_bytes];
        Ok(Database { file, path: path.into(), reader, header, page, bytes: 0, waits: None })
    }

    /// The entries of one page.
    fn entries(&mut self, number: u32) -> Result<Vec<Entry>> {
        let range = range_of(&self.header, number.max(1));
        self.file.read_exact_at(&mut self.page, range.start).with_context(|| format!("cannot read page {number}"))?;
        self.bytes += self.page.len() as u64;
        entries(&self.header, number, &self.page)
    }

    /// The entries of all pages, in their order. The pages of one level of a tree are known before the first of them is read.
    fn level(&mut self, pages: &[u32], mut each: impl FnMut(usize, Vec<Entry>)) -> Result<()> {
        let ranges: Vec<_> = pages.iter().map(|page| range_of(&self.header, (*page).max(1))).collect();
        let path = self.path.clone();
        let items = ranges.into_iter().map(move |range| Item::from((path.clone(), range)));
        let mut prefetcher = (self.reader == Reader::Ahead).then(|| Prefetcher::new(items));
        for (index, page) in pages.iter().enumerate() {
            prefetcher.as_mut().and_then(Iterator::next);
            each(index, self.entries(*page)?);
        }
        if let Some(prefetcher) = prefetcher {
            self.waits = Some(self.waits.unwrap_or(0) + late_items(&prefetcher));
        }
        Ok(())
    }

    /// The root pages of an index and of its table, by the schema: rows of (type, name, table, root page, SQL).
    fn roots(&mut self, index: &str) -> Result<(u32, u32)> {
        let mut objects = Vec::new();
        let mut pages = vec![1];
        for _ in 0..MOST_LEVELS {
            let mut next = Vec::new();
            self.level(&pages, |_, entries| {
                for entry in entries {
                    match entry {
                        Entry::Child { page, .. } => next.push(page),
                        Entry::Row(_, record) => objects.push(record),
                        Entry::Key(_) => (),
                    }
                }
            })?;
            pages = next;
        }
        let objects: Vec<Vec<Value<'_>>> = objects.iter().map(|record| values(record)).collect::<Result<_>>()?;
        let root_of = |kind: &str, name: &[u8]| {
            objects.iter().find_map(|object| match object[..] {
                [Value::Bytes(is), Value::Bytes(named), Value::Bytes(table), Value::Integer(root), ..]
                    if is == kind.as_bytes() && named == name =>
                {
                    Some((u32::try_from(root).ok()?, table))
                }
                _ => None,
            })
        };
        let (index_root, table) = root_of("index", index.as_bytes()).with_context(|| format!("no index {index:?}"))?;
        let (table_root, _) = root_of("table", table).context("the index has no table")?;
        Ok((index_root, table_root))
    }

    /// The rowids of an index in its order.
    fn rowids(&mut self, root: u32) -> Result<Vec<i64>> {
        // Each pass replaces the pages among the entries by their entries.
        let mut row = vec![Entry::Child { page: root, last_rowid: i64::MAX }];
        for _ in 0..MOST_LEVELS {
            let pages: Vec<u32> = row.iter().filter_map(child).collect();
            if pages.is_empty() {
                break;
            }
            let mut expanded = Vec::with_capacity(pages.len());
            self.level(&pages, |_, entries| expanded.push(entries))?;
            let mut expanded = expanded.into_iter();
            row = row
                .into_iter()
                .flat_map(|entry| match entry {
                    Entry::Child { .. } => expanded.next().unwrap_or_default(),
                    other => vec![other],
                })
                .collect();
        }
        let rowid = |entry| match entry {
            Entry::Key(record) => match values(&record)?.last() {
                Some(Value::Integer(rowid)) => Ok(*rowid),
                _ => bail!("the index has no rowids (a table WITHOUT ROWID?)"),
            },
            _ => bail!("the tree of page {root} is no index"),
        };
        row.into_iter().map(rowid).collect()
    }

    /// The last rowid and the page of each leaf of a table, in the order of the rowids.
    fn leaves(&mut self, root: u32) -> Result<Vec<(i64, u32)>> {
        let mut level = vec![(i64::MAX, root)];
        for _ in 0..MOST_LEVELS {
            // All leaves are at the same depth: the first page of a level represents the others.
            if !matches!(self.entries(level[0].1)?.first(), Some(Entry::Child { .. })) {
                return Ok(level);
            }
            let pages: Vec<u32> = level.iter().map(|(_, page)| *page).collect();
            let mut below = Vec::new();
            self.level(&pages, |index, entries| {
                // The last child of a page has no rowid there; that of the page is its limit.
                let limit = level[index].0;
                below.extend(entries.iter().filter_map(|entry| match entry {
                    Entry::Child { page, last_rowid } => Some(((*last_rowid).min(limit), *page)),
                    _ => None,
                }));
            })?;
            level = below;
        }
        bail!("the tree of page {root} has more than {MOST_LEVELS} levels")
    }
}

fn child(entry: &Entry) -> Option<u32> {
    match entry {
        Entry::Child { page, .. } => Some(*page),
        _ => None,
    }
}
