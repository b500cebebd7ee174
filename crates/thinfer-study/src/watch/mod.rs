//! A page on this machine that shows runs while they train and when they are over.
//!
//! [`Runs`] knows which runs are below some folders and what they say of themselves, [`Server`]
//! answers a browser. Nothing here writes, and nothing leaves the machine: the server listens on
//! 127.0.0.1 alone, and the page asks nobody else.

mod curves;
mod find;
mod runs;
mod server;
mod summary;

pub use runs::Runs;
pub use server::{Server, Stopper};

#[cfg(test)]
mod tests;
