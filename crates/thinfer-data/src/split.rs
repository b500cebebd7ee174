//! Which rows of a table are for training, for choosing and for testing.

use std::path::Path;

use thinfer_engine::noise::{Key, Stream};

use crate::error::{Error, Result};
use crate::settings::DataConfig;
use crate::table::{Table, Values};

/// The largest share of a table's rows that is held out to test on: as many again are there to
/// choose with, and the rest is learned from.
const LARGEST_HOLDOUT: f64 = 1.0 / 3.0;

/// Rows that are held out at least.
const FEWEST_HELD_OUT: usize = 2;

/// Rows of a fold at least.
const FEWEST_IN_A_FOLD: usize = 2;

/// How the rows of a table are divided.
#[derive(Clone, Debug, PartialEq)]
pub enum Split {
    /// A share for testing, as many rows again to choose with, and the rest to learn from.
    Share(f64),
    /// A column says of each row what it is for.
    Column(Vec<Option<Role>>),
    /// One of several folds is for testing, the others are to learn from.
    Fold {
        /// Which one, from 1.
        fold: usize,
        /// How many there are.
        of: usize,
    },
    /// All rows are to learn from: another table is for testing.
    All,
}

/// What a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To learn from.
    Train,
    /// To choose with.
    Validation,
    /// To report on.
    Test,
}

/// Words that a column may use, and what each means.
const WORDS: [(&str, Role); 7] = [
    ("train", Role::Train),
    ("training", Role::Train),
    ("validation", Role::Validation),
    ("valid", Role::Validation),
    ("val", Role::Validation),
    ("test", Role::Test),
    ("testing", Role::Test),
];

impl Role {
    fn read(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        WORDS.iter().find(|(name, _)| *name == word).map(|(_, role)| *role)
    }
}

/// The rows of each part, in the order of the table, and what the user should know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// To learn from.
    pub train: Vec<u32>,
    /// To choose with.
    pub validation: Vec<u32>,
    /// To report on.
    pub test: Vec<u32>,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Split {
    /// What a configuration asks for. A column that says what rows are for is taken out of the
    /// table: it is no input.
    pub fn of(data: &DataConfig, table: &mut Table) -> Result<Self> {
        if let Some(name) = &data.split {
            return Ok(Self::Column(take_roles(table, name)?));
        }
        if let (Some(fold), Some(of)) = (data.fold, data.folds) {
            return Ok(Self::Fold { fold, of });
        }
        Ok(if data.test_path.is_some() { Self::All } else { Self::Share(data.holdout) })
    }

    /// Divides the usable rows of the table at `path`.
    pub fn divide(&self, path: &Path, usable: &[u32], seed: u64) -> Result<Parts> {
        let order = || Key::new(seed, 0, Stream::Split).permutation(0, usable.len());
        let sorted = |places: &[u32]| {
            let mut rows: Vec<u32> = places.iter().map(|&at| usable[at as usize]).collect();
            rows.sort_unstable();
            rows
        };
        Ok(match self {
            Self::All => Parts { train: usable.to_vec(), ..Parts::default() },
            Self::Share(share) => {
                let asked = (usable.len() as f64 * share).round() as usize;
                let count = asked.clamp(FEWEST_HELD_OUT, usable.len() / 3);
                let order = order();
                let mut notes = Vec::new();
                if asked < count {
                    notes.push(format!(
                        "{share} of {} rows would be {asked}, so {count} rows are held out to test on, and {count} to choose with",
                        usable.len()
                    ));
                }
                Parts {
                    test: sorted(&order[..count]),
                    validation: sorted(&order[count..2 * count]),
                    train: sorted(&order[2 * count..]),
                    notes,
                }
            }
            Self::Fold { fold, of } => {
                if usable.len() < FEWEST_IN_A_FOLD * of {
                    let problem = format!(
                        "is {of}, but {} usable rows make at most {} folds of {FEWEST_IN_A_FOLD}; give fewer folds",
                        usable.len(),
                        usable.len() / FEWEST_IN_A_FOLD
                    );
                    return Err(Error::config("data.folds", problem));
                }
                let order = order();
                let end = |fold: usize| fold * order.len() / of;
                let (from, to) = (end(fold - 1), end(*fold));
                let rest: Vec<u32> = order[..from].iter().chain(&order[to..]).copied().collect();
                Parts { test: sorted(&order[from..to]), train: sorted(&rest), ..Parts::default() }
            }
            Self::Column(roles) => {
                let of = |wanted: Role| -> Vec<u32> {
                    let is = |row: &&u32| roles.get(**row as usize) == Some(&Some(wanted));
                    usable.iter().filter(is).copied().collect()
                };
                let parts = Parts {
                    train: of(Role::Train),
                    validation: of(Role::Validation),
                    test: of(Role::Test),
                    notes: Vec::new(),
                };
                for (rows, word) in [(&parts.train, "train"), (&parts.test, "test")] {
                    if rows.is_empty() {
                        let problem = format!(
                            "no usable row says `{word}` in the column that data.split names; say `train` and `test` there, and `validation` if you like"
                        );
                        return Err(Error::table(path, problem));
                    }
                }
                parts
            }
        })
    }
}

/// Takes out the column that says what rows are for.
fn take_roles(table: &mut Table, name: &str) -> Result<Vec<Option<Role>>> {
    let Some(at) = table.columns.iter().position(|column| column.name == name) else {
        return Err(Error::config("data.split", table.no_column(name)));
    };
    let words = "`train`, `validation` or `test`";
    let column = table.columns.remove(at);
    let Values::Text(cells) = &column.values else {
        let problem = format!("column `{name}` has numbers; write {words} in each row");
        return Err(Error::table(&table.path, problem));
    };
    let mut roles = Vec::with_capacity(cells.len());
    for (row, cell) in cells.iter().enumerate() {
        let role = cell.as_deref().and_then(Role::read);
        if role.is_none() {
            let found = cell.as_deref().map_or("is empty".into(), |word| format!("is `{word}`"));
            let problem = format!("row {}, column `{name}` {found}, but must be {words}", row + 1);
            return Err(Error::table(&table.path, problem));
        }
        roles.push(role);
    }
    Ok(roles)
}

/// Refuses a share that cannot be held out of a table, under the name that it was given by.
pub fn check_holdout(name: &str, share: f64) -> Result<()> {
    if share > 0.0 && share <= LARGEST_HOLDOUT {
        return Ok(());
    }
    let problem = format!(
        "is {share}, but must be above 0 and at most 1/3: as many rows again are kept to choose with, and the rest is learned from"
    );
    Err(Error::config(name, problem))
}

/// Refuses several ways to divide a table at once, and a fold that is not there.
pub fn check_split(data: &DataConfig) -> Result<()> {
    let refuse = |key: &str, problem: String| Err(Error::config(key, problem));
    let given = [
        ("data.split", data.split.is_some()),
        ("data.test_path", data.test_path.is_some()),
        ("data.folds", data.folds.is_some()),
    ];
    let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
    if let [first, second, ..] = given[..] {
        let problem = format!(
            "is given beside {second}, and both say which rows are for testing; give one of them"
        );
        return refuse(first, problem);
    }
    if data.split.is_some() && data.split == data.target {
        return refuse("data.split", "is the target; name another column".into());
    }
    match (data.fold, data.folds) {
        (Some(fold), Some(folds)) if fold > folds => {
            refuse("data.fold", format!("is {fold}, but there are {folds} (data.folds)"))
        }
        (Some(_), None) => refuse("data.fold", "needs data.folds, how many there are".into()),
        (None, Some(_)) => refuse(
            "data.folds",
            "needs data.fold, which of them is for testing; `thinfer eval --folds K RUN` trains on each".into(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Column;

    fn table(cells: &[Option<&str>]) -> Table {
        let numbers = Values::Number((0..cells.len()).map(|row| row as f64).collect());
        let words = Values::Text(cells.iter().map(|cell| cell.map(str::to_owned)).collect());
        let column = |name: &str, values| Column { name: name.into(), values };
        let columns = vec![column("x", numbers), column("part", words)];
        Table { path: "t.csv".into(), columns }
    }

    fn by_column(cells: &[Option<&str>]) -> Result<(Parts, Table)> {
        let mut table = table(cells);
        let data = DataConfig { split: Some("part".into()), ..DataConfig::default() };
        let split = Split::of(&data, &mut table)?;
        let usable: Vec<u32> = (0..cells.len() as u32).collect();
        Ok((split.divide(&table.path, &usable, 1)?, table))
    }

    #[test]
    fn a_column_says_what_rows_are_for_and_is_no_input() {
        let cells = [Some("train"), Some("Test"), Some("VAL"), Some("training"), Some("test")];
        let (parts, table) = by_column(&cells).unwrap();
        assert_eq!((parts.train, parts.validation), (vec![0, 3], vec![2]));
        assert_eq!(parts.test, [1, 4]);
        assert_eq!(table.columns.len(), 1);
    }

    #[test]
    fn what_a_column_does_not_say_is_refused_with_its_place() {
        let told = |cells: &[Option<&str>]| by_column(cells).unwrap_err().to_string();
        let unknown = told(&[Some("train"), Some("holdout")]);
        assert!(unknown.contains("row 2, column `part` is `holdout`, but must be"), "{unknown}");
        let empty = told(&[Some("train"), None]);
        assert!(empty.contains("row 2, column `part` is empty"), "{empty}");
        let no_test = told(&[Some("train"), Some("train")]);
        assert!(no_test.contains("no usable row says `test`"), "{no_test}");
    }

    #[test]
    fn every_row_is_tested_on_in_one_fold() {
        let usable: Vec<u32> = (0..23).filter(|row| *row != 5).collect();
        let mut tested = Vec::new();
        for fold in 1..=4 {
            let parts = Split::Fold { fold, of: 4 }.divide(Path::new("t"), &usable, 3).unwrap();
            assert!(parts.validation.is_empty());
            let mut all = [&parts.test[..], &parts.train[..]].concat();
            all.sort_unstable();
            assert_eq!(all, usable);
            tested.extend(parts.test);
        }
        tested.sort_unstable();
        assert_eq!(tested, usable);
        let many = Split::Fold { fold: 1, of: 12 }.divide(Path::new("t"), &usable, 3);
        assert!(many.unwrap_err().to_string().contains("at most 11 folds"));
    }

    #[test]
    fn several_ways_to_divide_are_refused() {
        let base = DataConfig::default();
        let of = |data: DataConfig| check_split(&data).unwrap_err().to_string();
        let split = Some("part".to_owned());
        let two = of(DataConfig { split: split.clone(), test_path: split, ..base.clone() });
        assert!(two.contains("`data.split`: is given beside data.test_path"), "{two}");
        let late = of(DataConfig { fold: Some(6), folds: Some(5), ..base.clone() });
        assert!(late.contains("`data.fold`: is 6, but there are 5"), "{late}");
        let alone = of(DataConfig { folds: Some(5), ..base.clone() });
        assert!(alone.contains("needs data.fold"), "{alone}");
        assert!(check_split(&base).is_ok());
    }
}
