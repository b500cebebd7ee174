//! Where published sets come from.

use super::{cifar, mnist};
use crate::settings::DataKind;

/// A file of a published set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Its name, here and there.
    pub name: &'static str,
    /// Its MD5 as hexadecimal digits.
    pub md5: &'static str,
}

/// A set that can be downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The address that a file's name is appended to.
    pub address: &'static str,
    /// The files, which are used as they are.
    pub files: Vec<Download>,
}

impl Published {
    /// Where a set is published, if it is.
    pub fn of(kind: DataKind) -> Option<Self> {
        match kind {
            DataKind::Mnist | DataKind::FashionMnist => Some(mnist::published(kind)),
            DataKind::Cifar10 | DataKind::Cifar100 => Some(cifar::published(kind)),
            _ => None,
        }
    }
}
