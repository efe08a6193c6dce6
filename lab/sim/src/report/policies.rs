//! The list of policies, as text and as JSON.

use ahead_policy::{Argument, CATALOGUE, Description};
use ahead_report::table::{Kind, Screen, Table};
use serde_json::{Value, json};

/// All policies as JSON; docs/reference/json.md describes the keys.
pub fn policies_json() -> Value {
    CATALOGUE.iter().map(described).collect()
}

/// All policies as a table, and their parameters.
pub fn policies_text(screen: Screen) -> String {
    let mut table = Table::new([("policy", Kind::Text), ("summary", Kind::Text), ("source", Kind::Text)]);
    for policy in CATALOGUE {
        table.row([policy.usage(), policy.summary.to_owned(), policy.source.to_owned()]);
    }
    format!("{}\n{}", table.render(screen), parameters())
}

fn described(policy: &Description) -> Value {
    let parameters = policy.arguments.iter().map(|argument| {
        json!({
            "name": argument.name,
            "summary": argument.summary,
            "unit": argument.unit,
            "least": Argument::LEAST,
            "most": Argument::MOST,
            "words": argument.words,
            "default": argument.default,
        })
    });
    json!({
        "name": policy.name,
        "usage": policy.usage(),
        "summary": policy.summary,
        "source": policy.source,
        "parameters": parameters.collect::<Vec<Value>>(),
    })
}

/// The parameters of all policies; equal ones are listed once.
fn parameters() -> String {
    let mut lines: Vec<String> = Vec::new();
    for argument in CATALOGUE.iter().flat_map(|policy| policy.arguments) {
        let default = argument.default.map_or("required".to_owned(), |default| format!("default {default}"));
        let line = format!("{}: {} ({}); {default}\n", argument.name, argument.accepts(), argument.summary);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}
