//! The policies by name: `linux-6.18`, `fixed(32)`, `true-readahead(64, adaptive)`.

use crate::policies::true_readahead::{PERIOD, Period, TrueReadahead};
use crate::policies::{
    advise::Advise, ahead::Ahead, amp::Amp, competitive::Competitive, fixed::Fixed, linux_1_3::Linux13, linux_2_2,
    linux_2_4, linux_2_6::Linux26, linux_2_6_23::Linux2623, linux_6_12, linux_6_18, linux_7_2, none, oracle::Oracle,
    read_stream::ReadStream, roudier::Roudier, wu_adaptive, wu_adaptive::WuAdaptive, zfetch::Zfetch,
};
use crate::{Parameters, Policy};

/// A policy that can be had.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// What may follow in parentheses.
    pub arguments: &'static [Argument],
    /// What it does, in one line.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    build: fn(&[Value], &Parameters) -> Box<dyn Policy>,
}

/// An argument of a policy: a number from [`Argument::LEAST`] to [`Argument::MOST`], or one of some words.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// What it is called in the description.
    pub name: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// What it is if it is left out; `None`: it may not be.
    pub default: Option<u64>,
    /// Words that are accepted beside numbers.
    pub words: &'static [&'static str],
}

impl Argument {
    /// Smallest number that an argument may be.
    pub const LEAST: u64 = 1;
    /// Largest number that an argument may be: of pages, 64 GiB.
    pub const MOST: u64 = 1 << 24;

    /// What is accepted: `a number of pages from 1 to 16777216`.
    pub fn accepts(&self) -> String {
        let words = self.words.iter().map(|known| format!(" or {known}")).collect::<String>();
        format!("a number of {} from {} to {}{words}", self.unit, Argument::LEAST, Argument::MOST)
    }
}

/// The value of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Word(&'static str),
}

impl Value {
    fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Word(_) => 1,
        }
    }
}

const PAGES: Argument =
    Argument { name: "n", unit: "pages", summary: "asked for at a time", default: None, words: &[] };
const ADAPTIVE: &str = "adaptive";
const PERIODS: Argument = Argument {
    name: "P",
    unit: "accesses",
    summary: "from look to look, at most n; adaptive: doubled where nothing was to be asked for, halved by waits",
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
    plain!("none", "nothing is read ahead", "what everything is compared with", |_| Box::new(none::None)),
    Description {
        name: "fixed",
        arguments: &[PAGES],
        summary: "n pages on each miss",
        source: "the fixed synchronous read-ahead of the papers",
        build: |arguments, _| Box::new(Fixed::new(arguments[0].number())),
    },
    plain!("linux-1.3", "8 pages whenever a page is waited for", "Linux 1.3.83 and Roudier's patch", |_| {
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
        summary: "this group and the next of n pages, looked at every P accesses, never blocking",
        source: "O'Connor and Tracy 2000",
        build: |arguments, _| {
            let period = match arguments[1] {
                Value::Number(period) => Period::Fixed(period),
                Value::Word(_) => Period::Adaptive,
            };
            Box::new(TrueReadahead::new(arguments[0].number(), period))
        },
    },
    plain!("linux-2.4", "doubling windows, asked for within the last one", "mm/filemap.c of 2.4.0", |_| {
        Box::new(linux_2_4::policy())
    }),
    plain!("linux-2.6", "two windows, off where all is cached", "mm/readahead.c of 2.6.19", |_| {
        Box::new(Linux26::default())
    }),
    Description {
        name: "wu-adaptive",
        arguments: &[LEAST_WINDOW],
        summary: "windows as long as memory lets them live",
        source: "Wu's patches of 2005 to 2007",
        build: |arguments, _| Box::new(WuAdaptive::new(arguments[0].number())),
    },
    plain!("linux-2.6.23", "on demand: one window and a mark", "mm/readahead.c of 2.6.24", |_| {
        Box::new(Linux2623::default())
    }),
    plain!("linux-6.12", "on demand, history, large folios", "mm/readahead.c and mm/filemap.c of 6.12", |_| {
        Box::new(linux_6_12::policy())
    }),
    plain!("linux-6.18", "on demand, folio sizes remembered", "between 6.12 and 7.2, and its own tracepoints", |_| {
        Box::new(linux_6_18::policy())
    }),
    plain!("linux-7.2", "on demand, no mark at the end", "mm/readahead.c and mm/filemap.c of 7.2", |_| {
        Box::new(linux_7_2::policy())
    }),
    plain!("amp", "degree and trigger distance from what goes wrong", "Gill and Bathen, FAST 2007", |_| {
        Box::new(Amp::default())
    }),
    plain!(
        "competitive",
        "as much as the disk transfers while it switches",
        "Li and others, EuroSys 2007",
        |parameters| { Box::new(Competitive::new(&parameters.device)) }
    ),
    plain!("zfetch", "eight streams per file, longer only when late", "OpenZFS 2.4, dmu_zfetch.c", |_| {
        Box::new(Zfetch::default())
    }),
    plain!("read-stream", "doubled by reads, less by one for hits", "PostgreSQL 18, read_stream.c", |_| {
        Box::new(ReadStream::default())
    }),
    plain!("ahead", "patterns; farther when it waited, no farther than history lives", "our own", |parameters| {
        Box::new(Ahead::new(parameters))
    }),
    plain!("oracle", "clairvoyant heuristic: knows every future access", "our own", |parameters| {
        Box::new(Oracle::new(parameters))
    }),
];

/// Why there is no such policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No policy has this name.
    #[error("no policy is called {name:?}; there are {}", names())]
    Name {
        /// What was asked for.
        name: String,
    },
    /// The policy has other arguments.
    #[error("{given:?}: {usage} is meant; {why}")]
    Arguments {
        /// What was asked for.
        given: String,
        /// How it is written.
        usage: String,
        /// What is wrong.
        why: String,
    },
    /// It cannot be built here.
    #[error("{name} needs to know every access that will come, and was not told")]
    NeedsFuture {
        /// The policy.
        name: &'static str,
    },
}

fn names() -> String {
    CATALOGUE.iter().map(Description::usage).collect::<Vec<_>>().join(", ")
}

impl Description {
    /// How it is written: `fixed(n)`.
    pub fn usage(&self) -> String {
        if self.arguments.is_empty() {
            return self.name.to_owned();
        }
        let arguments = self.arguments.iter().map(|argument| argument.name).collect::<Vec<_>>();
        format!("{}({})", self.name, arguments.join(", "))
    }

    /// Whether [`Choice::build`] needs every future access ([`Parameters::future`]).
    pub fn needs_future(&self) -> bool {
        self.name == "oracle"
    }
}

/// A policy with its arguments.
#[derive(Clone, Debug)]
pub struct Choice {
    description: &'static Description,
    arguments: Vec<Value>,
}

impl Choice {
    /// What it is.
    pub fn description(&self) -> &'static Description {
        self.description
    }

    /// The pages that it asks for at a time, if that is one of its arguments.
    pub fn pages(&self) -> Option<u64> {
        let given = |(argument, value): (&Argument, &Value)| (argument.name == PAGES.name).then(|| value.number());
        self.description.arguments.iter().zip(&self.arguments).find_map(given)
    }

    /// Makes one.
    ///
    /// Errors: the policy needs every future access, and `parameters` has none.
    pub fn build(&self, parameters: &Parameters) -> Result<Box<dyn Policy>, UnknownPolicy> {
        if self.description.needs_future() && parameters.future.is_none() {
            return Err(UnknownPolicy::NeedsFuture { name: self.description.name });
        }
        Ok((self.description.build)(&self.arguments, parameters))
    }
}

/// As it is written; where every argument is what it would be unless given, by the name alone.
impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.description.name)?;
        let defaults = self.description.arguments.iter().map(|argument| argument.default.map(Value::Number));
        if self.arguments.iter().copied().map(Some).eq(defaults) {
            return Ok(());
        }
        let words = self.arguments.iter().map(|value| match value {
            Value::Number(number) => number.to_string(),
            Value::Word(word) => (*word).to_owned(),
        });
        write!(f, "({})", words.collect::<Vec<String>>().join(", "))
    }
}

/// Finds a policy: its name, with arguments in parentheses where it has some.
///
/// Errors: an unknown name, or arguments that it does not have.
pub fn named(text: &str) -> Result<Choice, UnknownPolicy> {
    let (name, given) = match text.trim().split_once('(') {
        Some((name, rest)) => (name.trim(), rest.split_once(')')),
        None => (text.trim(), Some(("", ""))),
    };
    let found = CATALOGUE.iter().find(|description| description.name == name);
    let description = found.ok_or_else(|| UnknownPolicy::Name { name: text.to_owned() })?;
    let wrong = |why: String| UnknownPolicy::Arguments { given: text.to_owned(), usage: description.usage(), why };
    let (given, behind) = given.ok_or_else(|| wrong("a parenthesis is not closed".into()))?;
    if !behind.is_empty() {
        return Err(wrong(format!("{behind:?} behind the parenthesis is too much")));
    }
    let given: Vec<&str> = given.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if given.len() > description.arguments.len() {
        return Err(wrong(format!("{} is too much", given[description.arguments.len()])));
    }
    let value = |(index, argument): (usize, &Argument)| match (given.get(index), argument.default) {
        (Some(word), _) => value(word, argument).map_err(wrong),
        (None, Some(default)) => Ok(Value::Number(default)),
        (None, None) => Err(wrong(format!("{} is missing", argument.name))),
    };
    let arguments = description.arguments.iter().enumerate().map(value).collect::<Result<_, _>>()?;
    Ok(Choice { description, arguments })
}

fn value(word: &str, argument: &Argument) -> Result<Value, String> {
    if let Some(known) = argument.words.iter().find(|known| **known == word) {
        return Ok(Value::Word(known));
    }
    match word.parse::<u64>() {
        Ok(number) if (Argument::LEAST..=Argument::MOST).contains(&number) => Ok(Value::Number(number)),
        _ => Err(format!("{} is {}", argument.name, argument.accepts())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_named_and_built() {
        let parameters = Parameters { future: Some([].into()), ..Parameters::default() };
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
            ("fixed", "fixed(n) is meant; n is missing"),
            ("fixed(0)", "n is a number of pages from 1 to 16777216"),
            ("fixed(8", "a parenthesis is not closed"),
            ("fixed(8)x", "fixed(n) is meant; \"x\" behind the parenthesis is too much"),
            ("fixed(8) )", "\" )\" behind the parenthesis is too much"),
            ("fixed(8, 9)", "9 is too much"),
            ("linux-6.18(32)", "32 is too much"),
            ("wu-adaptive(0)", "wu-adaptive(least) is meant; least is a number of pages from 1 to 16777216"),
            ("true-readahead(8, soon)", "P is a number of accesses from 1 to 16777216 or adaptive"),
        ] {
            let error = named(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let blind = named("oracle").unwrap().build(&Parameters::default());
        assert!(blind.err().unwrap().to_string().contains("every access that will come"));
    }
}
