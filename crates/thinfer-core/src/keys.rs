//! Keys of a configuration as data: what each is called, which values it takes, what it does.

use serde_json::{Value, json};

/// What values a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number in a closed range.
    Integer(i64, i64),
    /// A number in a closed range.
    Number(f64, f64),
    /// A number above the first and up to the second bound.
    NumberAbove(f64, f64),
    /// A number from the first and below the second bound.
    NumberBelow(f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A number above 0, or one of these words.
    NumberOr(&'static [&'static str]),
    /// Yes or no.
    Switch,
    /// Any text.
    Text,
    /// A list of whole numbers, each in a closed range.
    Integers(i64, i64),
    /// A list of texts.
    Texts,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its dotted name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it does, in a sentence.
    pub about: &'static str,
}

/// Declares a key.
pub const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, about }
}

/// The largest whole number that a key takes.
pub const MOST: i64 = 1 << 53;

impl Kind {
    /// What is allowed, in words.
    pub fn allowed(self) -> String {
        let words =
            |list: &[&str]| list.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ");
        let large =
            |high: f64| if high >= 1e6 { String::new() } else { format!(" and at most {high}") };
        match self {
            Kind::Integer(low, high) if high >= MOST => format!("a whole number from {low} on"),
            Kind::Integer(low, high) => format!("a whole number from {low} to {high}"),
            Kind::Number(low, high) => format!("a number of at least {low}{}", large(high)),
            Kind::NumberAbove(low, high) => format!("a number above {low}{}", large(high)),
            Kind::NumberBelow(low, high) => format!("a number from {low} on and below {high}"),
            Kind::Choice(list) => format!("one of {}", words(list)),
            Kind::NumberOr(list) => format!("a number above 0, or one of {}", words(list)),
            Kind::Switch => "true or false".into(),
            Kind::Text => "text in quotes".into(),
            Kind::Texts => "a list of texts in quotes".into(),
            Kind::Integers(low, high) if high >= MOST => {
                format!("a list of whole numbers from {low} on")
            }
            Kind::Integers(low, high) => format!("a list of whole numbers from {low} to {high}"),
        }
    }

    /// Its part of a JSON schema.
    pub fn schema(self) -> Value {
        match self {
            Kind::Integer(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
            Kind::Number(low, high) => json!({"type": "number", "minimum": low, "maximum": high}),
            Kind::NumberAbove(low, high) => {
                json!({"type": "number", "exclusiveMinimum": low, "maximum": high})
            }
            Kind::NumberBelow(low, high) => {
                json!({"type": "number", "minimum": low, "exclusiveMaximum": high})
            }
            Kind::Choice(list) => json!({"enum": list}),
            Kind::NumberOr(list) => {
                json!({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"enum": list}]})
            }
            Kind::Switch => json!({"type": "boolean"}),
            Kind::Text => json!({"type": "string"}),
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Kind::Integers(low, high) => json!({
                "type": "array",
                "items": {"type": "integer", "minimum": low, "maximum": high}
            }),
        }
    }

    /// Whether whole numbers stand for numbers with a fraction.
    pub(crate) fn is_number(self) -> bool {
        matches!(
            self,
            Kind::Number(..) | Kind::NumberAbove(..) | Kind::NumberBelow(..) | Kind::NumberOr(_)
        )
    }
}
