//! Keys of a configuration, see [`thinfer_data::keys`].

pub use thinfer_data::keys::{Defaults, Key, Kind, MOST, key};
