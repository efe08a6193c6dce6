//! A reader of single pages and the policy that requests pages for it (sections 2 and 3).

use crate::PaperError;
use crate::claims::runs::Setup;
use crate::claims::value::{List, Number, Value, wrong};
use ahead_policy::testing::Cache;
use ahead_policy::{Access, Advice, Event, FileId, OpenId, PAGE_BYTES, Policy, Request, Requests};

/// Largest window, pages: the default of `read_ahead_kb`.
const MOST_PAGES: u64 = 32;
const FILE_PAGES: u64 = 4096;
const OPEN: OpenId = OpenId(0);
const FILE: FileId = FileId(0);

struct KernelReader {
    policy: Box<dyn Policy>,
    cache: Cache,
    at: u64,
    /// Whether requested pages are in the cache when the reader needs them.
    keeps: bool,
}

/// The requests of each step: `read` reads N pages, `seeks` seeks N times to pages that are not adjacent and reads one page each time, `will_need` and
/// `advise` give advice, `fill` has the whole file cached, `evict` has each requested page evicted before it is needed.
pub(super) fn run(setup: &Setup) -> Result<Value, PaperError> {
    let policy = ahead_policy::named(&setup.policy)?.build(&Default::default())?;
    let mut reader = KernelReader { policy, cache: Cache::new(FILE_PAGES, MOST_PAGES), at: 0, keeps: true };
    let steps = setup.argument("steps")?.list()?.iter().map(|step| reader.step(step));
    Ok(Value::record([("steps", List(steps.collect::<Result<_, PaperError>>()?))]))
}

impl KernelReader {
    fn step(&mut self, step: &Value) -> Result<Value, PaperError> {
        let number = |name: &str| step.field(name).and_then(|value| value.whole()).ok();
        let mut requests = Vec::new();
        if let Some(pages) = number("read") {
            (0..pages).for_each(|_| requests.extend(self.read()));
        } else if let Some(seeks) = number("seeks") {
            for seek in 0..seeks {
                // None of these pages is near the first half of the file.
                self.at = FILE_PAGES / 2 + (seeks - seek) * MOST_PAGES;
                self.event(&Event::Sought { open: OPEN, file: FILE, offset_bytes: self.at * PAGE_BYTES });
                requests.extend(self.read());
            }
        } else if let Some(first) = number("will_need") {
            let pages = number("pages").unwrap_or(1);
            requests.extend(self.event(&Event::WillNeed { open: OPEN, file: FILE, first, pages }));
        } else if let Ok(advice) = step.field("advise") {
            let advice = match advice.show(Default::default()).as_str() {
                "sequential" => Advice::Sequential,
                "random" => Advice::Random,
                _ => Advice::Normal,
            };
            self.event(&Event::Advised { open: OPEN, file: FILE, advice });
        } else if step.field("fill").is_ok() {
            self.cache.fill(&Request { pages: FILE_PAGES, ..Request::of(FILE) });
        } else if step.field("evict").is_ok() {
            self.keeps = false;
        } else {
            return Ok(wrong("unknown step of a reader")?);
        }
        let shown = |request: Request| {
            Value::record([("first", Number(request.first as f64)), ("pages", Number(request.pages as f64))])
        };
        Ok(List(requests.into_iter().map(shown).collect()))
    }

    /// Reads one page; returns the requests.
    fn read(&mut self) -> Vec<Request> {
        let mut requests = Requests::default();
        let access = Access::read(self.at, 1, self.cache.found(self.at));
        self.policy.access(&access, &self.cache, &mut requests);
        self.at += 1;
        let list: Vec<Request> = requests.take();
        list.iter().filter(|_| self.keeps).for_each(|request| self.cache.fill(request));
        list
    }

    fn event(&mut self, event: &Event) -> Vec<Request> {
        let mut requests = Requests::default();
        self.policy.event(event, &self.cache, &mut requests);
        requests.take()
    }
}
