//! Reads a file through a policy: by calls, or through a mapping.

use crate::bench::live::page_outcome::{PageOutcome, PageSeen};
use crate::bench::live::state::{Running, Shared};
use crate::bench::live::{Error, Result};
use ahead_policy::{Access, Advice, By, Call, Event, FileId, Found, OpenId, PAGE_BYTES, Page};
use ahead_sys::cache;
use ahead_sys::mapping::Mapping;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

/// Range after an evicted page in which other evicted pages are searched: 16 MiB, about 50 us.
const LOOK_PAGES: u64 = 4096;

/// A mapping of a file, and its mapped pages.
struct Mapped {
    mapping: Mapping,
    pages: Vec<bool>,
}

/// An open file that is read through a policy.
pub struct Reader {
    running: Arc<Running>,
    fd: Arc<File>,
    open: OpenId,
    file: FileId,
    size_bytes: u64,
    mapped: Option<Mapped>,
    /// Consecutive accessed pages of the mapping that are not reported to the policy yet.
    touched: Range<Page>,
    /// Whether the file system supports RWF_NOWAIT.
    can_look: bool,
}

impl Reader {
    pub(crate) fn new(running: Arc<Running>, fd: Arc<File>, open: OpenId, file: FileId, size_bytes: u64) -> Reader {
        Reader { running, fd, open, file, size_bytes, mapped: None, touched: 0..0, can_look: true }
    }

    /// Length of the file, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn shared(&self) -> &Shared {
        &self.running.shared
    }

    /// Reads from `offset_bytes` on until the buffer is full or the file ends; returns 0 at the end.
    ///
    /// Errors: those of the disk.
    pub fn read_at(&mut self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        let wanted = buffer.len() as u64;
        let end = offset_bytes.saturating_add(wanted).min(self.size_bytes);
        if offset_bytes >= end {
            return Ok(0);
        }
        let call = Call { offset_bytes, length_bytes: end - offset_bytes };
        let wanted_end = offset_bytes.saturating_add(wanted).div_ceil(PAGE_BYTES);
        let (mut at, mut begins) = (offset_bytes, true);
        while at < end {
            let page = at / PAGE_BYTES;
            let access = Access { call, begins, ..self.access(By::Read, page, wanted_end - page) };
            let part = &mut buffer[(at - offset_bytes) as usize..(end - offset_bytes) as usize];
            let read = self.read_next(&access, end.div_ceil(PAGE_BYTES), part, at)?;
            if read == 0 {
                // Another process truncated the file.
                break;
            }
            (at, begins) = (at + read as u64, false);
        }
        Ok((at - offset_bytes) as usize)
    }

    fn access(&self, by: By, page: Page, wanted: u64) -> Access {
        let (open, file, found) = (self.open, self.file, Found::Absent);
        Access { open, file, by, ..Access::read(page, wanted, found) }
    }

    /// Reads bytes to the beginning of `part`, from the page of `access` on.
    fn read_next(&mut self, access: &Access, end: Page, part: &mut [u8], at: u64) -> Result<usize> {
        let mut access = *access;
        loop {
            match self.lookup_page(&access, end)? {
                PageOutcome::Use(pages) => {
                    let room = ((pages.end * PAGE_BYTES - at) as usize).min(part.len());
                    let read = self.read_present(&mut part[..room], at)?;
                    let whole = (at + read as u64).div_ceil(PAGE_BYTES);
                    if read > 0 {
                        self.shared().used(self.file, access.page..whole);
                        return Ok(read);
                    }
                    self.gone(access.page);
                    // The policy has received the call already.
                    access.begins = false;
                }
                PageOutcome::Wait { missed, request } => {
                    let room = (((access.page + 1) * PAGE_BYTES - at) as usize).min(part.len());
                    let began = Instant::now();
                    let read = retry(|| self.fd.read_at(&mut part[..room], at));
                    let wait_ns = began.elapsed().as_nanos() as u64;
                    self.settle(access.page, request, read.is_ok());
                    let read = read?;
                    self.shared().waited(&access, missed, wait_ns);
                    return Ok(read);
                }
                PageOutcome::Look => unreachable!("the reader has looked"),
            }
        }
    }

    /// The next step for a page. Probes the page cache if the book does not know whether the page has arrived.
    fn lookup_page(&mut self, access: &Access, end: Page) -> Result<PageOutcome> {
        match self.shared().lookup_page(*access, end, PageSeen::Not) {
            PageOutcome::Look => {
                let seen = if self.is_there(access.page)? { PageSeen::There } else { PageSeen::Coming };
                Ok(self.shared().lookup_page(*access, end, seen))
            }
            outcome => Ok(outcome),
        }
    }

    /// Reports the request that has brought `page`. If its other end has not arrived with it, or reading failed, the reapers wait for
    /// the request.
    fn settle(&mut self, page: Page, request: Option<Range<Page>>, is_there: bool) {
        let Some(pages) = request else { return };
        let mut ends = [pages.start, pages.end - 1].into_iter().filter(|end| *end != page);
        let is_whole = is_there && ends.all(|end| self.is_there(end).unwrap_or(false));
        self.shared().ended(self.file, pages, is_whole);
    }

    /// Whether a requested page has arrived. If the file system cannot be probed, the reapers report the arrival.
    fn is_there(&mut self, page: Page) -> Result<bool> {
        match cache::probe(&*self.fd, page * PAGE_BYTES) {
            Err(error) if error.is_unavailable() => {
                self.can_look = false;
                Ok(false)
            }
            seen => Ok(seen?),
        }
    }

    /// Reports an absent page that should be present. The kernel seldom evicts one page alone: the policy should ask for all absent
    /// pages in front of the reader together, and not page by page.
    fn gone(&self, page: Page) {
        let end = (page + 1 + LOOK_PAGES).min(self.size_bytes.div_ceil(PAGE_BYTES));
        let (first, length) = ((page + 1) * PAGE_BYTES, (end - page - 1) * PAGE_BYTES);
        // If this process may not read residency, later uses find the absent pages.
        let there = cache::resident(&*self.fd, first, length).unwrap_or_else(|_| vec![first..first + length]);
        let is_there = |page: &Page| there.iter().any(|range| range.contains(&(page * PAGE_BYTES)));
        self.shared().gone(self.file, page, (page + 1..end).filter(|page| !is_there(page)));
    }

    /// Reads cached pages without waiting; returns 0 if the first page is absent.
    fn read_present(&mut self, part: &mut [u8], at: u64) -> Result<usize> {
        if self.can_look {
            match preadv2(&*self.fd, &mut [IoSliceMut::new(part)], at, ReadWriteFlags::NOWAIT) {
                Ok(read) => return Ok(read),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.can_look = false,
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        retry(|| self.fd.read_at(part, at))
    }

    /// Copies a page of the mapping, which faults if it is not mapped yet. Returns its length up to the file's end.
    ///
    /// No process may truncate the file meanwhile (SIGBUS).
    ///
    /// Errors: the file cannot be mapped; the page is beyond its end.
    pub fn copy_mapped(&mut self, page: Page, bucket: &mut [u8]) -> Result<usize> {
        let beyond_end = || Error::from(io::Error::from(io::ErrorKind::UnexpectedEof));
        if page >= self.size_bytes.div_ceil(PAGE_BYTES) {
            return Err(beyond_end());
        }
        if self.mapped.is_none() {
            let mapping = Mapping::new(&*self.fd, self.size_bytes as usize)?;
            mapping.exact_faults()?;
            let pages = vec![false; self.size_bytes.div_ceil(PAGE_BYTES) as usize];
            self.mapped = Some(Mapped { mapping, pages });
        }
        if !self.is_mapped(page) {
            self.fault(page)?;
        } else if self.touched.end == page {
            self.touched.end += 1;
        } else {
            self.tell_touched();
            self.touched = page..page + 1;
        }
        let mapped = self.mapped.as_ref().map(|mapped| &mapped.mapping);
        let room = bucket.len().min(PAGE_BYTES as usize);
        let copied = mapped.and_then(|mapping| mapping.copy((page * PAGE_BYTES) as usize, &mut bucket[..room]));
        copied.ok_or_else(beyond_end)
    }

    fn is_mapped(&self, page: Page) -> bool {
        let is_mapped = |mapped: &Mapped| mapped.pages.get(page as usize).copied().unwrap_or(true);
        self.mapped.as_ref().is_some_and(is_mapped)
    }

    fn tell_touched(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        self.shared().used(self.file, touched);
    }

    /// Accesses a page that is not mapped yet.
    fn fault(&mut self, page: Page) -> Result<()> {
        self.tell_touched();
        let by = By::Fault {
            advice: Advice::Normal,
            huge: false,
            executable: false,
            first: 0,
            end: self.size_bytes.div_ceil(PAGE_BYTES),
        };
        let access = self.access(by, page, 1);
        loop {
            match self.lookup_page(&access, page + 1)? {
                PageOutcome::Use(_) if self.can_look && !self.is_there(page)? => self.gone(page),
                PageOutcome::Use(_) => {
                    self.touch(page);
                    self.shared().used(self.file, page..page + 1);
                    break;
                }
                PageOutcome::Wait { missed, request } => {
                    let began = Instant::now();
                    // By a call, so that a disk error is an error number and not a signal.
                    let waited = cache::wait_for(&*self.fd, page * PAGE_BYTES);
                    self.settle(page, request, waited.is_ok());
                    waited?;
                    self.touch(page);
                    self.shared().waited(&access, missed, began.elapsed().as_nanos() as u64);
                    break;
                }
                PageOutcome::Look => unreachable!("the reader has looked"),
            }
        }
        let around = self.shared().mapped(&access);
        if let Some(mapped) = &mut self.mapped {
            around.into_iter().for_each(|page| mapped.pages[page as usize] = true);
        }
        Ok(())
    }

    fn touch(&self, page: Page) {
        if let Some(mapped) = &self.mapped {
            mapped.mapping.touch((page * PAGE_BYTES) as usize);
        }
    }

    /// Writes to the page cache.
    ///
    /// Errors: the file was not opened for writing; errors of the write.
    pub fn write_at(&mut self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        self.fd.write_all_at(bytes, offset_bytes)?;
        let end = offset_bytes + bytes.len() as u64;
        self.size_bytes = self.size_bytes.max(end);
        // Before a partial write, the kernel has read the page if it is within the file.
        self.shared().wrote(self.file, self.size_bytes, offset_bytes / PAGE_BYTES..end.div_ceil(PAGE_BYTES));
        Ok(())
    }

    /// Waits until all written data is on the disk (fsync).
    ///
    /// Errors: those of the write.
    pub fn sync(&self) -> Result<()> {
        Ok(self.fd.sync_data()?)
    }

    /// The program has set its file position (`lseek`).
    pub fn sought(&self, offset_bytes: u64) {
        let event = Event::Sought { open: self.open, file: self.file, offset_bytes };
        drop(self.shared().tell(self.shared().lock(), &event));
    }

    /// The program's advice on its use of the file (`posix_fadvise`).
    pub fn advise(&self, advice: Advice) {
        let event = Event::Advised { open: self.open, file: self.file, advice };
        drop(self.shared().tell(self.shared().lock(), &event));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.tell_touched();
        self.shared().close(self.open, self.file);
    }
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> std::result::Result<usize, Error> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return Ok(read?),
        }
    }
}
