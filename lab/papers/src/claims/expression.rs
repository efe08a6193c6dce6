//! Expressions of claims: arithmetic, comparisons and functions over the results of runs.
//!
//! ```text
//!     100 * (slow.elapsed_ns / fast.elapsed_ns - 1)         counters of runs
//!     max(misses(where(original, original.pages > 256)))    a sweep is a list: each operator works on each element
//!     if(count(found) > 0, first(found), 'none')            only one of the two is evaluated
//! ```

use super::value::{Evaluated, Fault, Format, List, Number, Text, Truth, Value, call, pairwise, wrong};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Constant(Value),
    Name(String),
    List(Vec<Expression>),
    Field(Box<Expression>, String),
    Element(Box<Expression>, Box<Expression>),
    Call(String, Vec<Expression>),
    Negative(Box<Expression>),
    Not(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
}

/// An operator between two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Unequal,
    Plus,
    Minus,
    Times,
    Over,
}

/// The operators, those that bind least first. Of two with the same beginning the longer is first.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("or", Operator::Or)],
    &[("and", Operator::And)],
    &[
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<", Operator::Less),
        (">", Operator::More),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::Over)],
];
/// The limit on parentheses within parentheses.
const MOST_LEVELS: usize = 64;

/// What the names of an expression mean.
pub(crate) trait Scope {
    /// The value of a name.
    fn value(&self, name: &str) -> Evaluated;
    /// Calls a defined function. `None`: there is none of this name.
    fn call(&self, name: &str, arguments: &[Value]) -> Option<Evaluated>;
}

impl Expression {
    /// Parses an expression.
    ///
    /// Errors: what is wrong, and at which column.
    pub(crate) fn parse(text: &str) -> Result<Expression, String> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let expression = parser.binary(0)?;
        match parser.peek() {
            None => Ok(expression),
            Some(_) => parser.unexpected("an operator"),
        }
    }

    /// The value of the expression.
    ///
    /// Errors: an unknown name, a division by zero, a value of the wrong kind; a run without result.
    pub(crate) fn evaluate(&self, scope: &dyn Scope) -> Evaluated {
        let all = |list: &[Expression]| list.iter().map(|one| one.evaluate(scope)).collect::<Result<Vec<_>, _>>();
        match self {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Name(name) => scope.value(name),
            Expression::List(list) => Ok(List(all(list)?)),
            Expression::Field(of, name) => of.evaluate(scope)?.field(name),
            Expression::Element(of, index) => of.evaluate(scope)?.element(&index.evaluate(scope)?),
            Expression::Negative(of) => binary(Operator::Times, &Number(-1.0), &of.evaluate(scope)?),
            Expression::Not(of) => Ok(Truth(!of.evaluate(scope)?.truth()?)),
            Expression::Call(name, list) if name == "if" => {
                let [condition, then, otherwise] = &list[..] else { return wrong("if has a condition and two values") };
                if condition.evaluate(scope)?.truth()? { then.evaluate(scope) } else { otherwise.evaluate(scope) }
            }
            Expression::Call(name, list) => {
                let values = all(list)?;
                scope
                    .call(name, &values)
                    .or_else(|| call(name, &values))
                    .unwrap_or_else(|| wrong(format!("there is no function {name} of {} values", values.len())))
            }
            // The other side may be wrong where this one decides.
            Expression::Binary(operator @ (Operator::And | Operator::Or), left, right) => {
                let decides = *operator == Operator::Or;
                if left.evaluate(scope)?.truth()? == decides {
                    return Ok(Truth(decides));
                }
                Ok(Truth(right.evaluate(scope)?.truth()?))
            }
            Expression::Binary(operator, left, right) => {
                binary(*operator, &left.evaluate(scope)?, &right.evaluate(scope)?)
            }
        }
    }
}

fn binary(operator: Operator, left: &Value, right: &Value) -> Evaluated {
    pairwise(left, right, &|left, right| match (operator, left, right) {
        (Operator::Equal, ..) => Ok(Truth(left == right)),
        (Operator::Unequal, ..) => Ok(Truth(left != right)),
        (Operator::Plus, Text(_), _) | (Operator::Plus, _, Text(_)) => {
            Ok(Text(left.show(Format::default()) + &right.show(Format::default())))
        }
        _ => {
            let (left, right) = (left.number()?, right.number()?);
            Ok(match operator {
                Operator::Less => Truth(left < right),
                Operator::AtMost => Truth(left <= right),
                Operator::More => Truth(left > right),
                Operator::AtLeast => Truth(left >= right),
                Operator::Plus => Number(left + right),
                Operator::Minus => Number(left - right),
                Operator::Times => Number(left * right),
                _ if right == 0.0 => return wrong("division by zero"),
                _ => Number(left / right),
            })
        }
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&mut self) -> &str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes a sign or a word, if it comes next.
    fn take(&mut self, wanted: &str) -> bool {
        let is_word = wanted.chars().all(char::is_alphabetic);
        let after = self.rest().strip_prefix(wanted);
        let is_next = after.is_some_and(|after| !is_word || !after.starts_with(is_of_name));
        self.at += if is_next { wanted.len() } else { 0 };
        is_next
    }

    fn unexpected<T>(&mut self, expected: &str) -> Result<T, String> {
        let found = self.peek().map_or("the end".to_owned(), |found| format!("{found:?}"));
        Err(format!("expected {expected}, found {found} at column {}", self.at + 1))
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        if self.take(wanted) { Ok(()) } else { self.unexpected(&format!("{wanted:?}")) }
    }

    fn binary(&mut self, level: usize) -> Result<Expression, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.take(sign)) {
            left = Expression::Binary(*operator, Box::new(left), Box::new(self.binary(level + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MOST_LEVELS {
            return Err(format!("more than {MOST_LEVELS} levels"));
        }
        let expression = if self.take("-") {
            Expression::Negative(Box::new(self.unary()?))
        } else if self.take("not") {
            Expression::Not(Box::new(self.unary()?))
        } else {
            self.postfix()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn postfix(&mut self) -> Result<Expression, String> {
        let mut value = self.primary()?;
        loop {
            if self.take(".") {
                value = Expression::Field(Box::new(value), self.name()?);
            } else if self.take("[") {
                value = Expression::Element(Box::new(value), Box::new(self.binary(0)?));
                self.expect("]")?;
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, String> {
        match self.peek() {
            Some('0'..='9') => self.number(),
            Some('\'') => {
                self.take("'");
                let text = self.text[self.at..].split('\'').next().unwrap_or_default();
                self.at += text.len();
                self.expect("'")?;
                Ok(Expression::Constant(Text(text.to_owned())))
            }
            Some('(') => {
                self.take("(");
                let inner = self.binary(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            Some('[') => {
                self.take("[");
                Ok(Expression::List(self.list("]")?))
            }
            Some(first) if is_of_name(first) => {
                let name = self.name()?;
                Ok(if self.take("(") { Expression::Call(name, self.list(")")?) } else { Expression::Name(name) })
            }
            _ => self.unexpected("a value"),
        }
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expression>, String> {
        let mut list = Vec::new();
        while !self.take(end) {
            if !list.is_empty() {
                self.expect(",")?;
            }
            list.push(self.binary(0)?);
        }
        Ok(list)
    }

    fn number(&mut self) -> Result<Expression, String> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_digit() && !"._e".contains(c)).unwrap_or(rest.len());
        let digits = rest[..length].replace('_', "");
        let number = digits.parse().map_err(|_| format!("{digits:?} is no number, at column {}", self.at + 1))?;
        self.at += length;
        Ok(Expression::Constant(Number(number)))
    }

    fn name(&mut self) -> Result<String, String> {
        let rest = self.rest();
        let length = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        if length == 0 {
            return self.unexpected("a name");
        }
        let name = rest[..length].to_owned();
        self.at += length;
        Ok(name)
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A text with expressions in braces: `{speed:1} MB/s` has one decimal, `{gain:+1}` a sign besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Plain(String),
    Shown(Expression, Format),
}

impl Template {
    /// Parses a template.
    ///
    /// Errors: what is wrong in an expression.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((plain, after)) = rest.split_once('{') {
            let (inner, after) = after.split_once('}').ok_or("\"{\" without \"}\"")?;
            let formatted =
                inner.rsplit_once(':').and_then(|(expression, format)| Some((expression, format_of(format)?)));
            let (expression, format) = formatted.unwrap_or((inner, Format::default()));
            pieces.extend([Piece::Plain(plain.to_owned()), Piece::Shown(Expression::parse(expression)?, format)]);
            rest = after;
        }
        pieces.push(Piece::Plain(rest.to_owned()));
        Ok(Template(pieces))
    }

    /// The text, and the value of its first expression.
    ///
    /// Errors: those of its expressions.
    pub(crate) fn show(&self, scope: &dyn Scope) -> Result<(String, Option<Value>), Fault> {
        let (mut text, mut first) = (String::new(), None);
        for piece in &self.0 {
            match piece {
                Piece::Plain(plain) => text += plain,
                Piece::Shown(expression, format) => {
                    let value = expression.evaluate(scope)?;
                    text += &value.show(*format);
                    first = first.or(Some(value));
                }
            }
        }
        Ok((text, first))
    }
}

fn format_of(text: &str) -> Option<Format> {
    let (sign, digits) = text.strip_prefix('+').map_or((false, text), |digits| (true, digits));
    Some(Format { decimals: Some(digits.parse().ok()?), sign })
}
