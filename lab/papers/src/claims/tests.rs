//! Documents and expressions that are wrong, and properties of those that are not.

use super::Claims;
use super::expression::{Expression, Scope, Template};
use super::value::{Evaluated, List, Number, Text, Truth, Value, wrong};
use crate::{Measured, Outcome, Verdict};
use proptest::prelude::*;

/// Three names, of a number, a list and a record.
struct Some3;

impl Scope for Some3 {
    fn value(&self, name: &str) -> Evaluated {
        match name {
            "n" => Ok(Number(7.0)),
            "list" => Ok(Value::numbers([1.0, 2.0, 4.0])),
            "run" => Ok(Value::record([("misses", Number(3.0)), ("key", Number(64.0))])),
            _ => wrong(format!("unknown name {name:?}")),
        }
    }

    fn call(&self, _: &str, _: &[Value]) -> Option<Evaluated> {
        None
    }
}

fn value(text: &str) -> Result<Value, String> {
    Expression::parse(text)?.evaluate(&Some3).map_err(|fault| crate::PaperError::from(fault).to_string())
}

fn error(text: &str) -> String {
    value(text).unwrap_err()
}

#[test]
fn operators_bind_as_in_arithmetic() {
    for (text, expected) in [
        ("1 + 2 * 3 - 4 / 2", 5.0),
        ("-2 * -(1 + 2)", 6.0),
        ("10 - 3 - 2", 5.0),
        ("1e3 / 1_000 + 0.5", 1.5),
        ("run.misses * n", 21.0),
        ("list[1] + sum(list)", 9.0),
        ("if(n > 6 and not (n == 8), first(list), 1 / 0)", 1.0),
        ("at([run, run], 64).misses", 3.0),
        ("larger(n, 9) + median(list)", 11.0),
        ("round(2.5) + floor(2.9) + ceil(2.1) + abs(-1)", 9.0),
        ("count(range(5, 200, 5)) + max(list, n) - min(list)", 46.0),
    ] {
        assert_eq!(value(text), Ok(Number(expected)), "{text}");
    }
    assert_eq!(value("n == 7 or 1 / 0 == 1"), Ok(Truth(true)));
    assert_eq!(value("all(steps(list) > 0) and not all(list > 1)"), Ok(Truth(true)));
    assert_eq!(value("'n is ' + n"), Ok(Text("n is 7".into())));
    assert_eq!(value("[run, run].misses"), Ok(Value::numbers([3.0, 3.0])));
    assert_eq!(value("flat([where(list, list > 1), slice(list, 0, 1), n])"), Ok(Value::numbers([2.0, 4.0, 1.0, 7.0])));
    assert_eq!(value("without(list, [2])"), Ok(Value::numbers([1.0, 4.0])));
    assert_eq!(value("join(fixed(list / 3, 2), ' and ')"), Ok(Text("0.33 and 0.67 and 1.33".into())));
}

#[test]
fn wrong_expressions_say_what_is_wrong() {
    for (text, expected) in [
        ("1 / (n - 7)", "division by zero"),
        ("run.hits", "unknown counter \"hits\"; there are key, misses"),
        ("m", "unknown name \"m\""),
        ("mean(list)", "there is no function mean of 1 values"),
        ("list + [1, 2]", "lists of 3 and 2 do not go together"),
        ("list[3]", "a list of 3 has no element 3"),
        ("list[0.5]", "a whole number is needed, not 0.5"),
        ("n.misses", "a number has no counter \"misses\""),
        ("run + 1", "a number is needed, not a record"),
        ("n and n", "true or false is needed, not a number"),
        ("min([])", "an empty list has no minimum and no maximum"),
        ("at([run], 65)", "no run at 65"),
        ("range(0, 1, 0)", "a range has at most a million steps, each above 0"),
        ("1 +", "expected a value, found the end at column 4"),
        ("(1", "expected \")\", found the end at column 3"),
        ("1 ± 2", "expected an operator, found '±' at column 3"),
        ("1.2.3", "\"1.2.3\" is no number, at column 1"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert!(error(&"(".repeat(10_000)).contains("more than 64 levels"));
}

#[test]
fn template_shows_values_and_compares_the_first() {
    let shown = |text: &str| Template::parse(text).unwrap().show(&Some3).unwrap();
    assert_eq!(shown("{n / 2:1} s, {n:+0} of {list}"), ("3.5 s, +7 of 1, 2, 4".into(), Some(Number(3.5))));
    assert_eq!(shown("{'a: b'}"), ("a: b".into(), Some(Text("a: b".into()))));
    assert_eq!(Template::parse("{n").unwrap_err(), "\"{\" without \"}\"");
}

const SCENARIO: &str = "
policies = [\"linux-2.6\"]
[disk]
model = \"hdd\"
[[workload]]
pattern = \"sequential\"
file_mb = 1
";

/// A run of 256 pages, and these lines.
fn run(lines: &str) -> Result<Outcome, String> {
    let text = format!("[run.read]\nscenario = \"s.toml\"\npolicy = \"linux-2.6\"\n{lines}");
    let claims = Claims { paper: "test", text: text.leak(), files: &[("s.toml", SCENARIO)], experiments: &[] };
    claims.run(&Measured::default()).map_err(|error| error.to_string())
}

/// The line of this claim.
fn claim(lines: &str) -> Result<crate::Line, String> {
    let text = format!("[[section]]\n[[section.claim]]\nclaim = \"c\"\nquoted = \"q\"\nwhy = \"w\"\n{lines}");
    run(&text).map(|mut outcome| outcome.lines.remove(0))
}

#[test]
fn verdict_is_that_of_the_first_number() {
    let bytes = "ours = \"{read.read_bytes / 1024:0} KB of {1}\"\n";
    for (bound, tolerance, verdict) in [
        ("within = [1000, 0.05]", "within 5 %: w", Verdict::Holds),
        ("within = [1000, 0.01]", "within 1 %: w", Verdict::Differs),
        ("at_least = \"2 * 512\"", "at least 1024: w", Verdict::Holds),
        ("at_most = 1023", "at most 1023: w", Verdict::Differs),
        ("between = [1, 1024]", "from 1 to 1024: w", Verdict::Holds),
        ("holds = \"read.misses == 0\"", "w", Verdict::Differs),
        ("answered = \"read.misses > 0\"", "w", Verdict::Answered),
        ("input = \"the file\"", "input: the file", Verdict::NotShown),
        ("not_shown = \"no\"", "no", Verdict::NotShown),
    ] {
        let line = claim(&format!("{bytes}{bound}")).unwrap();
        assert_eq!(
            (&line.ours[..], &line.tolerance[..], line.verdict),
            ("1024 KB of 1", tolerance, verdict),
            "{bound}"
        );
    }
}

#[test]
fn mistakes_in_a_document_have_their_line() {
    let at_9 = "claims of test, line 9: ";
    for (lines, expected) in [
        ("ours = \"{read.mises}\"\nat_least = 1", "unknown counter \"mises\"; there are "),
        ("ours = \"{1 / read.thrashings}\"\nat_least = 1", "division by zero"),
        ("ours = \"{1 +}\"\nat_least = 1", "expected a value, found the end at column 4"),
        ("holds = \"1 + 1\"", "true or false is needed, not a number"),
        ("at_leats = 1", "unknown field `at_leats`"),
        ("at_least = [1", "unclosed array"),
    ] {
        let error = claim(lines).unwrap_err();
        assert!(error.starts_with(at_9) && error.contains(expected), "{error}");
    }
    for (lines, expected) in [
        ("ours = \"x\"", "nothing says when the claim holds"),
        ("ours = \"x\"\nat_most = 1", "the result has no number for the bound"),
        ("at_least = 1\nat_most = 1", "a claim has one bound"),
    ] {
        assert_eq!(claim(lines).unwrap_err(), format!("claims of test, line 6: {expected}"));
    }
    let section = "[[section]]\nclaim = []\n";
    for (lines, expected) in [
        (
            "[let]\na = \"b\"\nb = \"a + 1\"\n[[figure]]\ntitle = \"{a}\"\ncaption = \"\"\nx = \"\"\ny = \"\"",
            "refers to itself",
        ),
        ("[let]\n\"f(x\" = \"x\"", "line 7: \"f(x\" has no \")\""),
        ("[run.other]\nscenario = \"t.toml\"", "line 7: there is no scenario \"t.toml\""),
        ("[run.other]\nscenario = \"s.toml\"\nset.\"disk.read_ahead_kb\" = 5", "line 7: s.toml: "),
        ("[run.other]\nscenario = \"s.toml\"\npolicy = \"linux-9\"", "line 7: no policy is called \"linux-9\""),
        ("[run.other]\nscenario = \"s.toml\"\nset.memory = 5", "line 7: unknown field \"memory\" of a scenario"),
        ("[run.other]\nscenario = \"s.toml\"\neach = { a = [1], b = [2] }", "line 8: each has one name"),
        ("[run.other]\nscenario = \"s.toml\"\nmodel = \"steps\"", "line 8: unknown model \"steps\""),
        ("[run.other]\nscenario = \"s.toml\"\neach.n = \"other.misses\"", "line 7: a run that has no result here"),
    ] {
        let error = run(&format!("{section}{lines}")).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn sweep_has_a_run_for_each_row_that_may_follow_from_another_run() {
    let outcome = run("
[run.sweep]
scenario = \"s.toml\"
policy = \"linux-2.6\"
each.mb = \"[1, read.read_bytes / 524288]\"
set.\"workload.file_mb\" = \"mb\"
[[section]]
each.row = \"sweep\"
let.pages = \"row.read_bytes / 4096\"
[[section.claim]]
claim = \"{row.mb} MB\"
quoted = \"{row.scenario.workload[0].file_mb}\"
ours = \"{pages}\"
when = \"row.mb < 3\"
within = [\"256 * row.key\", 0]
")
    .unwrap();
    let shown: Vec<_> = outcome.lines.iter().map(|line| (&line.claim[..], &line.quoted[..], &line.ours[..])).collect();
    assert_eq!(shown, [("1 MB", "1", "256"), ("2 MB", "2", "512")]);
    assert!(outcome.lines.iter().all(|line| line.verdict == Verdict::Holds));
}

proptest! {
    #[test]
    fn any_text_is_an_expression_or_an_error(text in ".{0,60}", signs in "[-+*/()\\[\\].,a-z0-9 '<>=!]{0,40}") {
        for text in [text, signs] {
            let _ = value(&text);
            let _ = Template::parse(&format!("{{{text}}}"));
        }
    }

    #[test]
    fn arithmetic_is_that_of_the_machine(a in -1e6..1e6_f64, b in 1e-3..1e6_f64, c in -1e6..1e6_f64) {
        // A negative number is an operator and a number.
        let text = format!("({a:.6}) + {b:.6} * ({c:.6}) - ({a:.6}) / {b:.6}");
        let [a, b, c] = [a, b, c].map(|number| format!("{number:.6}").parse::<f64>().unwrap());
        prop_assert_eq!(value(&text), Ok(Number(a + b * c - a / b)));
    }

    #[test]
    fn operator_on_a_list_is_that_on_each_element(list in proptest::collection::vec(0_u32..1000, 0..8)) {
        let all = list.iter().map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
        let each: Result<Vec<Value>, String> = list.iter().map(|number| value(&format!("{number} * 2 - n"))).collect();
        prop_assert_eq!(value(&format!("[{all}] * 2 - n")), each.map(List));
    }

    #[test]
    fn text_without_braces_is_shown_as_it_is(text in "[^{}]{0,40}") {
        prop_assert_eq!(Template::parse(&text).unwrap().show(&Some3), Ok((text, None)));
    }
}
