//! The error of every crate above the engine.

use std::path::{Path, PathBuf};

use thinfer_engine::EngineError;

/// What can go wrong. The last sentence of every message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that is unknown, of the wrong type or out of range.
    #[error("`{key}`: {problem}")]
    Config {
        /// The dotted key.
        key: String,
        /// What is wrong, what is allowed, and the nearest valid name.
        problem: String,
    },
    /// A table that cannot be used.
    #[error("{}: {problem}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        problem: String,
    },
    /// Data that cannot be learned from.
    #[error("{0}")]
    Data(String),
    /// A file that could not be read or written.
    #[error("could not {action} {}: {source}. {advice}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A checkpoint or snapshot that is damaged or belongs to something else.
    #[error("{}: {problem}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A run folder that is already there.
    #[error(
        "{} already holds a run; continue it with --resume, replace it with --force, or choose another folder with --out",
        .0.display()
    )]
    RunExists(PathBuf),
    /// Every chain of a run blew up, so there is nothing to average.
    #[error("{0}")]
    BlownUp(String),
    /// The loss or a weight stopped being a number.
    #[error(
        "{what} is not finite at step {step} (epoch {epoch}, chain {chain}); {checkpoint}. Lower `schedule.step_size.value`; em-mcmc, sghmc, csgld and csghmc can also limit the gradient with `method.clip`"
    )]
    NonFinite {
        /// The loss, or the name of the first parameter that is not finite.
        what: String,
        /// The step.
        step: u64,
        /// The epoch.
        epoch: usize,
        /// The chain.
        chain: u32,
        /// Where the last good state is.
        checkpoint: String,
    },
    /// The user asked the run to stop, and it did after a checkpoint.
    #[error("interrupted; the run can go on with --resume from {}", .0.display())]
    Interrupted(PathBuf),
    /// The data or the run does not fit into memory.
    #[error("{0}")]
    Memory(String),
    /// A promise that is checked did not hold.
    #[error("{0}")]
    Promise(String),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A table problem.
    pub fn table(path: &Path, problem: impl Into<String>) -> Self {
        Error::Table { path: path.to_owned(), problem: problem.into() }
    }

    /// A configuration problem.
    pub fn config(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Config { key: key.into(), problem: problem.into() }
    }

    /// A damaged or foreign file.
    pub fn store(path: &Path, problem: impl Into<String>) -> Self {
        Error::Store { path: path.to_owned(), problem: problem.into() }
    }

    /// A file operation that failed; full disks and missing rights get their own advice.
    pub fn file(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        let advice = match source.kind() {
            std::io::ErrorKind::NotFound => "Check the path",
            std::io::ErrorKind::IsADirectory => "Give the path of a file, not of a folder",
            std::io::ErrorKind::InvalidInput if action == "read" => {
                "Give the path of the right file"
            }
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
                "A file is where a folder should be; choose another place"
            }
            std::io::ErrorKind::PermissionDenied if action == "read" => {
                "Ask for the right to read it, or give another path"
            }
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                "Choose a folder you may write to with --out"
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                "Free some space and try again"
            }
            std::io::ErrorKind::FileTooLarge => {
                "The limit on the size of a file is too low; raise it with `ulimit -f`, or choose another disk with --out"
            }
            _ => "Check that the path is right and the disk is healthy",
        };
        Error::File { action, path: path.to_owned(), source, advice }
    }

    /// The same where it stopped a run that has checkpoints to go on from.
    pub fn while_training(self) -> Self {
        match self {
            Error::File { action, path, source, .. }
                if matches!(
                    source.kind(),
                    std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                ) =>
            {
                let advice =
                    "Free some space, then continue with --resume; finished checkpoints are intact";
                Error::File { action, path, source, advice }
            }
            other => other,
        }
    }

    /// The exit code of the program: 2 for usage and configuration, 3 for a broken promise, 130
    /// after an interrupt, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config { .. } | Error::RunExists(_) => 2,
            Error::Promise(_) => 3,
            Error::Interrupted(_) => 130,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_fits_what_happened() {
        use std::io::ErrorKind;
        let advice =
            |action, kind: ErrorKind| Error::file(action, Path::new("a"), kind.into()).to_string();
        for (action, kind, end) in [
            ("read", ErrorKind::IsADirectory, "not of a folder"),
            ("create", ErrorKind::AlreadyExists, "choose another place"),
            ("create", ErrorKind::NotADirectory, "choose another place"),
            ("read", ErrorKind::PermissionDenied, "give another path"),
            ("write", ErrorKind::PermissionDenied, "with --out"),
        ] {
            let text = advice(action, kind);
            assert!(text.ends_with(end), "{text}");
        }
    }

    #[test]
    fn only_training_can_go_on_after_a_full_disk() {
        let full = |kind: std::io::ErrorKind| Error::file("write", Path::new("a"), kind.into());
        let error = full(std::io::ErrorKind::StorageFull);
        assert!(error.to_string().ends_with(". Free some space and try again"), "{error}");
        let error = error.while_training();
        assert!(error.to_string().contains("continue with --resume"), "{error}");
        let other = full(std::io::ErrorKind::NotFound).while_training();
        assert!(other.to_string().ends_with("Check the path"), "{other}");
    }
}
