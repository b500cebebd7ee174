//! The way down to a folder, so that links that lead back up are not followed round in circles.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A folder that is looked through, with those that led to it.
pub(super) struct LinkGuard<'a> {
    above: Option<&'a LinkGuard<'a>>,
    /// Where the folder really is.
    real: PathBuf,
}

impl<'a> LinkGuard<'a> {
    /// The way begins at `folder`.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        Ok(Self { above: None, real: real(folder)? })
    }

    /// One folder further down; nothing where `folder` is a link to a folder that this one lies in,
    /// whose files are met on another way or are none of the data's.
    pub(super) fn down(&'a self, folder: &Path) -> Result<Option<Self>> {
        let real = real(folder)?;
        let mut way = std::iter::successors(Some(self), |guard| guard.above);
        let circle = way.any(|guard| guard.real.starts_with(&real));
        Ok((!circle).then_some(Self { above: Some(self), real }))
    }
}

fn real(folder: &Path) -> Result<PathBuf> {
    folder.canonicalize().map_err(|e| Error::file("read", folder, e))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_up_are_circles_and_links_aside_are_not() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        for folder in ["root/a/deep", "root/b", "elsewhere"] {
            std::fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        let up = [("itself", "."), ("up", ".."), ("root", "../.."), ("outside", "../../..")];
        let aside = [("b", "../../b"), ("far", "../../../elsewhere")];
        for (name, to) in up.iter().chain(&aside) {
            symlink(to, root.join("a/deep").join(name)).unwrap();
        }
        let start = LinkGuard::start(&root).unwrap();
        let a = start.down(&root.join("a")).unwrap().unwrap();
        let deep = a.down(&root.join("a/deep")).unwrap().unwrap();
        let follows = |name: &str| deep.down(&root.join("a/deep").join(name)).unwrap().is_some();
        assert!(up.iter().all(|(name, _)| !follows(name)));
        assert!(aside.iter().all(|(name, _)| follows(name)));
        // A link aside that leads back.
        symlink("../a", root.join("b/a")).unwrap();
        let b = deep.down(&root.join("a/deep/b")).unwrap().unwrap();
        assert!(b.down(&root.join("a/deep/b/a")).unwrap().is_none());
        assert!(start.down(&root.join("none")).is_err());
    }
}
