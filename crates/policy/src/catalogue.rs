//! The policies by name: `linux-6.18`, `fixed(32)`, `true-readahead(64, adaptive)`.

use crate::policies::true_readahead::{PERIOD, Period, TrueReadahead};
use crate::policies::{
    advise::Advise, ahead::Ahead, amp::Amp, competitive::Competitive, fixed::Fixed, linux_1_3::Linux13, linux_2_2,
    linux_2_4, linux_2_6::Linux26, linux_2_6_23::Linux2623, linux_6_12, linux_6_18, linux_7_2,
    mapped_reader::MappedReaders, none, oracle::Oracle, prefetcher::ListedFiles, read_stream::ReadStream,
    reader::Readers, roudier::Roudier, steer::Steer, wu_adaptive, wu_adaptive::WuAdaptive, zfetch::Zfetch,
};
use crate::{Parameters, Policy};

/// A policy of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    pub name: &'static str,
    /// Its arguments, in parentheses after the name.
    pub arguments: &'static [Argument],
    /// Its function, in one line.
    pub summary: &'static str,
    /// Its source: a paper, a kernel, or a program.
    pub source: &'static str,
    build: fn(&[CatalogueValue], &Parameters) -> Box<dyn Policy>,
}

/// An argument of a policy: a number from [`Argument::LEAST`] to [`Argument::MOST`], or one of some words.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name in the description.
    pub name: &'static str,
    pub unit: &'static str,
    /// Its purpose, in one line.
    pub summary: &'static str,
    /// Its value if it is omitted; `None`: it is required.
    pub default: Option<u64>,
    /// Words that are accepted besides numbers.
    pub words: &'static [&'static str],
}

impl Argument {
    /// Smallest number of an argument.
    pub const LEAST: u64 = 1;
    /// Largest number of an argument: of pages, 64 GiB.
    pub const MOST: u64 = 1 << 24;

    /// The accepted values: `a number of pages from 1 to 16777216`.
    pub fn accepts(&self) -> String {
        let words = self.words.iter().map(|known| format!(" or {known}")).collect::<String>();
        format!("a number of {} from {} to {}{words}", self.unit, Argument::LEAST, Argument::MOST)
    }
}

/// The value of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatalogueValue {
    Number(u64),
    Word(&'static str),
}

impl CatalogueValue {
    fn number(self) -> u64 {
        match self {
            CatalogueValue::Number(number) => number,
            CatalogueValue::Word(_) => 1,
        }
    }
}

const PAGES: Argument =
    Argument { name: "n", unit: "pages", summary: "requested at a time", default: None, words: &[] };
const ADAPTIVE: &str = "adaptive";
const PERIODS: Argument = Argument {
    name: "P",
    unit: "accesses",
    summary: "from check to check, at most n; adaptive: doubled by a check without a request, halved by a wait",
    default: Some(PERIOD),
    words: &[ADAPTIVE],
};
const LEAST_WINDOW: Argument = Argument {
    name: "least",
    unit: "pages",
    summary: "the smallest window, at most the disk's",
    default: Some(wu_adaptive::LEAST_PAGES),
    words: &[],
};

macro_rules! plain {
    ($name:literal, $summary:literal, $source:literal, $build:expr) => {
        Description {
            name: $name,
            arguments: &[],
            summary: $summary,
            source: $source,
            build: |_, parameters| {
                let build: fn(&Parameters) -> Box<dyn Policy> = $build;
                build(parameters)
            },
        }
    };
}

/// Every policy, from the oldest on.
pub const CATALOGUE: &[Description] = &[
    plain!("none", "nothing is read ahead", "the baseline", |_| Box::new(none::None)),
    Description {
        name: "fixed",
        arguments: &[PAGES],
        summary: "n pages on each miss",
        source: "the fixed synchronous read-ahead of the papers",
        build: |arguments, _| Box::new(Fixed::new(arguments[0].number())),
    },
    plain!("linux-1.3", "8 pages whenever the program waits for a page", "Linux 1.3.83 and Roudier's patch", |_| {
        Box::new(Linux13::default())
    }),
    plain!("roudier", "the next 8 pages while the last 8 are used", "Roudier 1996, patch for Linux 1.3.84", |_| {
        Box::new(Roudier::default())
    }),
    plain!(
        "linux-2.2",
        "doubling windows for reads, clusters of 16 for mappings",
        "mm/filemap.c of 2.0 to 2.3",
        |_| { Box::new(linux_2_2::policy()) }
    ),
    Description {
        name: "advise",
        arguments: &[PAGES],
        summary: "the aligned group of n pages on each miss, waiting for room in the queue",
        source: "O'Connor and Tracy 2000: Linux 2.2 with advice",
        build: |arguments, _| Box::new(Advise::new(arguments[0].number())),
    },
    Description {
        name: "true-readahead",
        arguments: &[PAGES, PERIODS],
        summary: "this and the next group of n pages, checked every P accesses, never blocking",
        source: "O'Connor and Tracy 2000",
        build: |arguments, _| {
            let period = match arguments[1] {
                CatalogueValue::Number(period) => Period::Fixed(period),
                CatalogueValue::Word(_) => Period::Adaptive,
            };
            Box::new(TrueReadahead::new(arguments[0].number(), period))
        },
    },
    plain!("linux-2.4", "doubling windows, requested within the previous one", "mm/filemap.c of 2.4.0", |_| {
        Box::new(linux_2_4::policy())
    }),
    plain!("linux-2.6", "two windows, off where all pages are cached", "mm/readahead.c of 2.6.19", |_| {
        Box::new(Linux26::default())
    }),
    Description {
        name: "wu-adaptive",
        arguments: &[LEAST_WINDOW],
        summary: "windows limited by the lifetime of pages in memory",
        source: "Wu's patches of 2005 to 2007",
        build: |arguments, _| Box::new(WuAdaptive::new(arguments[0].number())),
    },
    plain!("linux-2.6.23", "on demand: one window and a marker", "mm/readahead.c of 2.6.24", |_| {
        Box::new(Linux2623::default())
    }),
    plain!("linux-6.12", "on demand, history, large folios", "mm/readahead.c and mm/filemap.c of 6.12", |_| {
        Box::new(linux_6_12::policy())
    }),
    plain!("linux-6.18", "on demand, folio sizes remembered", "between 6.12 and 7.2, and tracepoints of 6.18", |_| {
        Box::new(linux_6_18::policy())
    }),
    plain!("linux-7.2", "on demand, no marker at the end", "mm/readahead.c and mm/filemap.c of 7.2", |_| {
        Box::new(linux_7_2::policy())
    }),
    plain!(
        "amp",
        "degree and trigger distance adapted by evicted and late pages",
        "Gill and Bathen, FAST 2007",
        |_| { Box::new(Amp::default()) }
    ),
    plain!(
        "competitive",
        "as much as the disk transfers in the time of a switch",
        "Li and others, EuroSys 2007",
        |parameters| { Box::new(Competitive::new(&parameters.device)) }
    ),
    plain!("zfetch", "eight streams per file, longer only after a late page", "OpenZFS 2.4, dmu_zfetch.c", |_| {
        Box::new(Zfetch::default())
    }),
    plain!(
        "read-stream",
        "distance doubled by reads, reduced by one block by hits",
        "PostgreSQL 18, read_stream.c",
        |_| { Box::new(ReadStream::default()) }
    ),
    plain!(
        "ahead",
        "patterns; farther after waits, limited by the lifetime of read pages",
        "this project",
        |parameters| { Box::new(Ahead::new(parameters)) }
    ),
    plain!(
        "steer",
        "linux-6.18, its windows set and patterns fetched by `ahead steer`",
        "this project",
        |parameters| { Box::new(Steer::new(parameters)) }
    ),
    plain!(
        "reader",
        "a program that reads with `Reader` of the library, the kernel's read-ahead off",
        "this project",
        |parameters| { Box::new(Readers::new(parameters)) }
    ),
    plain!(
        "prefetcher",
        "a program that gives its files, in their order, to `Prefetcher` of the library",
        "this project",
        |parameters| { Box::new(ListedFiles::new(parameters)) }
    ),
    plain!(
        "mapped-reader",
        "a program that maps its files and calls `advise` of the library, the kernel's read-ahead off",
        "this project",
        |parameters| { Box::new(MappedReaders::new(parameters)) }
    ),
    plain!("plan", "linux-6.18 below `ahead run` of the profile that a workload repeats", "this project", |_| {
        Box::new(linux_6_18::policy())
    }),
    plain!("oracle", "clairvoyant heuristic: knows every future access", "this project", |parameters| {
        Box::new(Oracle::new(parameters))
    }),
];

/// Why a policy cannot be found or built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No policy has this name.
    #[error("no policy is called {name:?}; there are {}", names())]
    Name { name: String },
    /// The arguments are not those of the policy.
    #[error("{given:?}: expected {usage}; {why}")]
    Arguments {
        /// The given text.
        given: String,
        /// The policy with its arguments: [`Description::usage`].
        usage: String,
        /// The mistake.
        why: String,
    },
    /// The policy needs every future access.
    #[error("{name} needs every future access, which is not known here")]
    NeedsFuture { name: &'static str },
    /// The policy is that below a prefetch.
    #[error("{name} needs a profile: a workload of the simulator with `profile = \"P.ahead\"`")]
    NeedsProfile { name: &'static str },
}

fn names() -> String {
    CATALOGUE.iter().map(Description::usage).collect::<Vec<_>>().join(", ")
}

impl Description {
    /// Its name with its arguments: `fixed(n)`.
    pub fn usage(&self) -> String {
        if self.arguments.is_empty() {
            return self.name.to_owned();
        }
        let arguments = self.arguments.iter().map(|argument| argument.name).collect::<Vec<_>>();
        format!("{}({})", self.name, arguments.join(", "))
    }

    /// Whether [`Choice::build`] needs every future access ([`Parameters::future`]).
    pub fn needs_future(&self) -> bool {
        ["oracle", "prefetcher", "mapped-reader"].contains(&self.name)
    }

    /// Whether [`Choice::build`] needs a driver that prefetches by the plan of a profile ([`Parameters::is_prefetched`]). Only the simulator does.
    pub fn needs_profile(&self) -> bool {
        self.name == "plan"
    }
}

/// A policy with its arguments.
#[derive(Clone, Debug)]
pub struct Choice {
    description: &'static Description,
    arguments: Vec<CatalogueValue>,
}

impl Choice {
    pub fn description(&self) -> &'static Description {
        self.description
    }

    /// The pages that it requests at a time, if that is one of its arguments.
    pub fn pages(&self) -> Option<u64> {
        let given =
            |(argument, value): (&Argument, &CatalogueValue)| (argument.name == PAGES.name).then(|| value.number());
        self.description.arguments.iter().zip(&self.arguments).find_map(given)
    }

    /// Builds the policy.
    ///
    /// Errors: the policy needs every future access or a prefetch, and `parameters` has none.
    pub fn build(&self, parameters: &Parameters) -> Result<Box<dyn Policy>, UnknownPolicy> {
        if self.description.needs_future() && parameters.future.is_none() {
            return Err(UnknownPolicy::NeedsFuture { name: self.description.name });
        }
        if self.description.needs_profile() && !parameters.is_prefetched {
            return Err(UnknownPolicy::NeedsProfile { name: self.description.name });
        }
        Ok((self.description.build)(&self.arguments, parameters))
    }
}

/// The name with its arguments; the name alone if every argument has its default.
impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.description.name)?;
        let defaults = self.description.arguments.iter().map(|argument| argument.default.map(CatalogueValue::Number));
        if self.arguments.iter().copied().map(Some).eq(defaults) {
            return Ok(());
        }
        let words = self.arguments.iter().map(|value| match value {
            CatalogueValue::Number(number) => number.to_string(),
            CatalogueValue::Word(word) => (*word).to_owned(),
        });
        write!(f, "({})", words.collect::<Vec<String>>().join(", "))
    }
}

/// Finds a policy: its name, with arguments in parentheses if it has any.
///
/// Errors: an unknown name, or wrong arguments.
pub fn named(text: &str) -> Result<Choice, UnknownPolicy> {
    let (name, given) = match text.trim().split_once('(') {
        Some((name, rest)) => (name.trim(), rest.split_once(')')),
        None => (text.trim(), Some(("", ""))),
    };
    let found = CATALOGUE.iter().find(|description| description.name == name);
    let description = found.ok_or_else(|| UnknownPolicy::Name { name: text.to_owned() })?;
    let wrong = |why: String| UnknownPolicy::Arguments { given: text.to_owned(), usage: description.usage(), why };
    let (given, rest) = given.ok_or_else(|| wrong("\")\" is missing".into()))?;
    if !rest.is_empty() {
        return Err(wrong(format!("unexpected {rest:?} after \")\"")));
    }
    let given: Vec<&str> = given.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if given.len() > description.arguments.len() {
        return Err(wrong(format!("unexpected argument {}", given[description.arguments.len()])));
    }
    let value = |(index, argument): (usize, &Argument)| match (given.get(index), argument.default) {
        (Some(word), _) => value(word, argument).map_err(wrong),
        (None, Some(default)) => Ok(CatalogueValue::Number(default)),
        (None, None) => Err(wrong(format!("argument {} is missing", argument.name))),
    };
    let arguments = description.arguments.iter().enumerate().map(value).collect::<Result<_, _>>()?;
    Ok(Choice { description, arguments })
}

fn value(word: &str, argument: &Argument) -> Result<CatalogueValue, String> {
    if let Some(known) = argument.words.iter().find(|known| **known == word) {
        return Ok(CatalogueValue::Word(known));
    }
    match word.parse::<u64>() {
        Ok(number) if (Argument::LEAST..=Argument::MOST).contains(&number) => Ok(CatalogueValue::Number(number)),
        _ => Err(format!("{} must be {}", argument.name, argument.accepts())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_named_and_built() {
        let parameters = Parameters { future: Some([].into()), is_prefetched: true, ..Parameters::default() };
        for description in CATALOGUE {
            let arguments = ["64", "16"];
            let text = match description.arguments.len() {
                0 => description.name.to_owned(),
                count => format!("{}({})", description.name, arguments[..count].join(", ")),
            };
            let choice = named(&text).unwrap();
            assert_eq!(choice.to_string(), text);
            choice.build(&parameters).unwrap();
        }
    }

    #[test]
    fn arguments_may_have_defaults_and_words() {
        assert_eq!(named("true-readahead(64)").unwrap().to_string(), "true-readahead(64, 16)");
        let names = ["wu-adaptive", "wu-adaptive()", "wu-adaptive(4)", "wu-adaptive(8)"];
        let names = names.map(|name| named(name).unwrap().to_string());
        assert_eq!(names, ["wu-adaptive", "wu-adaptive", "wu-adaptive", "wu-adaptive(8)"]);
        let pages = ["true-readahead(48, adaptive)", "fixed(8)", "linux-6.18"].map(|name| named(name).unwrap().pages());
        assert_eq!(pages, [Some(48), Some(8), None]);
        assert_eq!(named(" true-readahead( 48 ,adaptive ) ").unwrap().to_string(), "true-readahead(48, adaptive)");
    }

    #[test]
    fn errors_name_the_mistake_and_the_accepted_form() {
        for (text, says) in [
            ("linux", "no policy is called \"linux\"; there are none, fixed(n), linux-1.3"),
            ("", "no policy is called \"\""),
            ("fixed", "\"fixed\": expected fixed(n); argument n is missing"),
            ("fixed(0)", "n must be a number of pages from 1 to 16777216"),
            ("fixed(8", "\")\" is missing"),
            ("fixed(8)x", "expected fixed(n); unexpected \"x\" after \")\""),
            ("fixed(8) )", "unexpected \" )\" after \")\""),
            ("fixed(8, 9)", "unexpected argument 9"),
            ("linux-6.18(32)", "unexpected argument 32"),
            ("wu-adaptive(0)", "expected wu-adaptive(least); least must be a number of pages from 1 to 16777216"),
            ("true-readahead(8, soon)", "P must be a number of accesses from 1 to 16777216 or adaptive"),
        ] {
            let error = named(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let blind = named("oracle").unwrap().build(&Parameters::default());
        assert!(blind.err().unwrap().to_string().contains("every future access"));
    }
}
