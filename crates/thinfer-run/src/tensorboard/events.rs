//! The messages in event files: the part of TensorFlow's `event.proto` and `summary.proto` that
//! curves need.

use prost::Message;

/// What readers ask of the first event of a file.
const VERSION: &str = "brain.Event:2";
/// `SessionLog.SessionStatus.START`
const START: i32 = 1;

/// One event.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub(super) what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    /// One of several kinds of values, so it is written also where it is 0.
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionLog {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

impl Event {
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        Self::decode(data).ok()
    }

    pub(super) fn is_scalars(&self) -> bool {
        matches!(self.what, Some(What::Summary(_)))
    }
}

/// The first event of a file.
pub(super) fn version(wall_time: f64) -> Vec<u8> {
    let what = Some(What::FileVersion(VERSION.into()));
    Event { wall_time, step: 0, what }.encode_to_vec()
}

/// Tells readers to forget what they have of `step` and later ones.
pub(super) fn restart(wall_time: f64, step: i64) -> Vec<u8> {
    let what = Some(What::SessionLog(SessionLog { status: START }));
    Event { wall_time, step, what }.encode_to_vec()
}

/// A point of each of several curves.
pub(super) fn scalars(wall_time: f64, step: i64, values: &[(&str, f64)]) -> Vec<u8> {
    let value = |(tag, value): &(&str, f64)| Value {
        tag: (*tag).to_owned(),
        simple_value: Some(*value as f32),
    };
    let summary = Summary { value: values.iter().map(value).collect() };
    Event { wall_time, step, what: Some(What::Summary(summary)) }.encode_to_vec()
}
