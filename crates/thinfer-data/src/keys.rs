//! Keys of a configuration as data: what each is called, which values it takes, what it does; and
//! [`section!`](crate::section), which declares the keys of a section together with its struct.

use serde::de::{DeserializeOwned, Error};
use serde_json::{Map, Value, json};

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
    /// What it does: a sentence, and behind an empty line what only `docs/config.md` says besides.
    pub text: &'static str,
    /// Its defaults.
    pub defaults: Defaults,
}

/// The defaults of a key as TOML. `absent` is none, where another preset has one.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Of the preset `exact`.
    pub exact: Option<&'static str>,
    /// Of the preset `paper`, where it is another one.
    pub paper: Option<&'static str>,
    /// Of the preset `reference-code`, where it is another one.
    pub reference_code: Option<&'static str>,
    /// Of all presets where the data is images, if it is another one there.
    pub images: Option<&'static str>,
}

/// Declares a key, without a default.
pub const fn key(name: &'static str, kind: Kind, text: &'static str) -> Key {
    let defaults = Defaults { exact: None, paper: None, reference_code: None, images: None };
    Key { name, kind, text, defaults }
}

impl Key {
    /// With a default, which is that of every preset unless they say otherwise.
    pub const fn default(self, value: &'static str) -> Self {
        Self { defaults: Defaults { exact: Some(value), ..self.defaults }, ..self }
    }

    /// With another default for the preset `paper`.
    pub const fn paper(self, value: &'static str) -> Self {
        Self { defaults: Defaults { paper: Some(value), ..self.defaults }, ..self }
    }

    /// With another default for the preset `reference-code`.
    pub const fn reference_code(self, value: &'static str) -> Self {
        Self { defaults: Defaults { reference_code: Some(value), ..self.defaults }, ..self }
    }

    /// With another default where the data is images.
    pub const fn images(self, value: &'static str) -> Self {
        Self { defaults: Defaults { images: Some(value), ..self.defaults }, ..self }
    }

    /// What it does, in a sentence.
    pub fn about(&self) -> String {
        in_one_line(self.text.split("\n\n").next().unwrap_or_default())
    }

    /// The same with what only the page says.
    pub fn meaning(&self) -> String {
        let parts: Vec<String> = self.text.split("\n\n").map(in_one_line).collect();
        parts.join(". ")
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
    pub fn is_number(self) -> bool {
        matches!(
            self,
            Kind::Number(..) | Kind::NumberAbove(..) | Kind::NumberBelow(..) | Kind::NumberOr(_)
        )
    }
}

/// Declares a section of a configuration: each key once, with its type, the values that it takes,
/// its defaults, and what it does as its documentation.
///
/// It makes the struct; `KEYS`, from which the checks, the JSON schema, the presets, the tables of
/// `docs/config.md` and the completion of `--set` come; and what reads and writes the struct.
///
/// ```
/// use thinfer_data::keys::Kind;
///
/// thinfer_data::section! {
///     /// The section `weather`.
///     pub struct WeatherConfig in "weather" {
///         /// share of the sky that is covered
///         ///
///         /// The schema has the sentence above; the page has this one too.
///         clouds: f64 { Kind::Number(0.0, 1.0), default: 0.5, paper: 0.2, images: 0.0 },
///         /// the wind in m/s; nobody knows it unless it is given
///         wind: Option<f64> { Kind::Number(0.0, 1e3) },
///         /// millimetres of rain
///         rain: f64 { Kind::Number(0.0, 1e3), default: 0.0, later: LeftOut },
///     }
/// }
/// assert_eq!(WeatherConfig::default().clouds, 0.5);
/// assert_eq!(WeatherConfig::KEYS[1].name, "weather.wind");
/// let written = serde_json::to_string(&WeatherConfig::default()).unwrap();
/// assert_eq!(written, r#"{"clouds":0.5,"wind":null}"#);
/// let read: WeatherConfig = serde_json::from_str(&written).unwrap();
/// assert_eq!(read.rain, 0.0);
/// ```
///
/// - `default` is the default of the preset `exact`, as it is written in a file; `paper`,
///   `reference_code` and `images` are those of the other presets and of images where they differ,
///   in this order. `absent` is no default where `exact` has one.
/// - `later: LeftOut` is for a key that came after runs were kept, so **for every new key**: see
///   [`Later`](crate::keys::Later).
/// - A last line `..own: Type` is a part whose keys are declared elsewhere.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $Section:ident in $table:literal {
            $(
                $(#[doc = $text:literal])+
                $key:ident: $Type:ty {
                    $kind:expr
                    $(, default: $default:expr)?
                    $(, paper: $paper:expr)?
                    $(, reference_code: $code:expr)?
                    $(, images: $images:expr)?
                    $(, later: $later:ident)?
                }
            ),+ $(,)?
            $(..$own:ident: $Own:ty)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Section {
            $(
                $(#[doc = $text])+
                pub $key: $Type,
            )+
            $(
                /// The keys that are declared elsewhere.
                pub $own: $Own,
            )?
        }

        impl $Section {
            /// The keys of the section, in the order of its struct.
            pub const KEYS: &'static [$crate::keys::Key] = &[$(
                $crate::keys::key(
                    concat!($table, ".", stringify!($key)),
                    $kind,
                    concat!($($text, "\n"),+),
                )
                $(.default(stringify!($default)))?
                $(.paper(stringify!($paper)))?
                $(.reference_code(stringify!($code)))?
                $(.images(stringify!($images)))?
            ),+];
        }

        /// What the preset `exact` says for a table.
        impl Default for $Section {
            fn default() -> Self {
                Self {
                    $($key: $crate::keys::declared(concat!($(stringify!($default))?)),)+
                    $($own: <$Own>::default(),)?
                }
            }
        }

        impl serde::Serialize for $Section {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let usual = Self::default();
                let mut map = serializer.serialize_map(None)?;
                $(
                    let later: &[$crate::keys::Later] = &[$($crate::keys::Later::$later)?];
                    if later != [$crate::keys::Later::LeftOut] || self.$key != usual.$key {
                        map.serialize_entry(stringify!($key), &self.$key)?;
                    }
                )+
                $(
                    for (name, value) in self.$own.entries() {
                        map.serialize_entry(name, &value)?;
                    }
                )?
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $Section {
            fn deserialize<D: serde::Deserializer<'de>>(given: D) -> Result<Self, D::Error> {
                let mut given = $crate::keys::Given::deserialize(given)?;
                let usual = Self::default();
                Ok(Self {
                    $(
                        $key: {
                            let later: &[$crate::keys::Later] =
                                &[$($crate::keys::Later::$later)?];
                            given.take(
                                stringify!($key),
                                (!later.is_empty()).then_some(usual.$key),
                            )?
                        },
                    )+
                    $($own: given.rest::<$Own, _>()?,)?
                })
            }
        }
    };
}

/// How a key that came after runs were kept is written. Where it is missing it has its default, so
/// that those runs can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// Only where it has another value than its default, so that runs keep their fingerprints.
    LeftOut,
    /// Always: for a key that was added when no run was kept.
    Shown,
}

/// The value that a default says; an empty text is none. What cannot be read is the default of the
/// type: a test reads all of them.
pub fn declared<T: DeserializeOwned + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}

/// What a file says of a section, key by key.
#[derive(serde::Deserialize)]
pub struct Given(Map<String, Value>);

impl Given {
    /// The value of a key, or `usual` where it is not given. Without either a key that can be
    /// absent is; others are missed.
    pub fn take<T: DeserializeOwned, E: Error>(
        &mut self,
        key: &'static str,
        usual: Option<T>,
    ) -> Result<T, E> {
        match (self.0.remove(key), usual) {
            (Some(value), _) => {
                serde_json::from_value(value).map_err(|e| E::custom(format_args!("`{key}`: {e}")))
            }
            (None, Some(usual)) => Ok(usual),
            (None, None) => serde_json::from_value(Value::Null).map_err(|_| E::missing_field(key)),
        }
    }

    /// What is left.
    pub fn rest<T: DeserializeOwned, E: Error>(self) -> Result<T, E> {
        serde_json::from_value(Value::Object(self.0)).map_err(E::custom)
    }
}
