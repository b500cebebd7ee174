//! The rows of Tables 1 to 3: what the paper prints, and the shipped configuration behind each.

use serde::{Deserialize, Serialize};
use thinfer_data::{Error, Result};

use super::outcome::Outcome;

/// All shipped configurations by name, as the build found them in `configs/`.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/configs.rs"));

/// A table of the paper about images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaperTable {
    /// CIFAR-10: ResNet-18 and WRN-28-10.
    Table1,
    /// CIFAR-100: ResNet-34 and WRN-28-10.
    Table2,
    /// ImageNet: ResNet-50.
    Table3,
}

/// The dense columns of all three tables, by the names of our configurations.
const DENSE: [&str; 4] = ["sgd", RANK1, "csgld", "cv-adam"];
/// The sparse ones.
const SPARSE: [&str; 4] = ["sm", "dsr", "dfp", "dpf"];
/// The column of Rank-1 BNN, whose variants each have a configuration that begins like this.
const RANK1: &str = "rank1";

/// One network of a table: accuracies in per cent, in the order of the columns.
struct Printed {
    network: &'static str,
    dense: [Option<f64>; 4],
    /// Sparsity in per cent and accuracies.
    sparse: &'static [(u32, [f64; 4])],
}

const CIFAR10: &[Printed] = &[
    Printed {
        network: "resnet18",
        dense: [Some(95.0), None, Some(95.7), Some(95.5)],
        sparse: &[
            (70, [92.8, 93.1, 94.7, 94.8]),
            (80, [91.1, 91.2, 94.5, 94.5]),
            (90, [89.7, 90.0, 93.9, 93.8]),
        ],
    },
    Printed {
        network: "wrn-28-10",
        dense: [Some(96.3), Some(96.5), Some(96.2), Some(96.5)],
        sparse: &[
            (90, [95.4, 95.8, 95.5, 95.8]),
            (95, [95.3, 95.4, 95.3, 95.4]),
            (99, [94.5, 94.5, 94.7, 94.5]),
        ],
    },
];

const CIFAR100: &[Printed] = &[
    Printed {
        network: "resnet34",
        dense: [Some(78.5), None, Some(79.7), Some(79.4)],
        sparse: &[
            (50, [76.4, 76.6, 77.6, 77.4]),
            (70, [73.2, 73.8, 75.4, 75.1]),
            (90, [72.1, 72.3, 75.1, 75.3]),
        ],
    },
    Printed {
        network: "wrn-28-10",
        dense: [Some(81.7), Some(82.4), Some(82.7), Some(83.4)],
        sparse: &[
            (70, [78.0, 78.1, 78.5, 78.2]),
            (80, [77.0, 76.5, 77.7, 77.9]),
            (90, [76.5, 76.4, 77.5, 77.4]),
        ],
    },
];

const IMAGENET: &[Printed] = &[Printed {
    network: "resnet50",
    dense: [Some(76.5), Some(77.3), Some(76.7), Some(76.8)],
    sparse: &[(80, [73.8, 73.3, 74.5, 74.6]), (90, [72.3, 72.0, 73.5, 73.2])],
}];

impl PaperTable {
    /// Its name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            PaperTable::Table1 => "table1",
            PaperTable::Table2 => "table2",
            PaperTable::Table3 => "table3",
        }
    }

    /// The data, as the names of configurations begin.
    pub fn data(self) -> &'static str {
        match self {
            PaperTable::Table1 => "cifar10",
            PaperTable::Table2 => "cifar100",
            PaperTable::Table3 => "imagenet",
        }
    }

    fn printed(self) -> &'static [Printed] {
        match self {
            PaperTable::Table1 => CIFAR10,
            PaperTable::Table2 => CIFAR100,
            PaperTable::Table3 => IMAGENET,
        }
    }

    /// All rows: those of the paper in its order, then what is shipped besides, network by network.
    pub fn rows(self) -> Vec<Row> {
        let mut rows = Vec::new();
        for printed in self.printed() {
            rows.extend(of_paper(self.data(), printed));
            rows.extend(others(self.data(), printed));
        }
        rows
    }

    /// The rows that `wanted` names, in the order of the table; those of the paper without any.
    ///
    /// A name is a network, a method, a sparsity in per cent or several of them as in the name of
    /// the row; a whole name takes that row alone. What the paper does not have is only taken where
    /// its method is named.
    pub fn choose(self, wanted: &[String]) -> Result<Vec<Row>> {
        let mut rows = self.rows();
        if wanted.is_empty() {
            rows.retain(|row| row.printed.is_some());
            return Ok(rows);
        }
        if let Some(unknown) = wanted.iter().find(|name| !rows.iter().any(|row| row.is_in(name))) {
            let mut known: Vec<&str> = Vec::new();
            let words = rows.iter().flat_map(|row| [row.network, row.method]);
            words.for_each(|word| {
                if !known.contains(&word) {
                    known.push(word);
                }
            });
            let problem = format!(
                "`{unknown}` is no row of {}; known are {}, and names of rows such as {}",
                self.name(),
                known.join(", "),
                rows.last().map_or_else(String::new, Row::name)
            );
            return Err(Error::config("--rows", problem));
        }
        let whole: Vec<String> = rows.iter().map(Row::name).collect();
        let taken = |row: &Row, name: &String| {
            if whole.contains(name) { row.name() == *name } else { row.is_in(name) }
        };
        rows.retain(|row| wanted.iter().any(|name| taken(row, name)));
        Ok(rows)
    }
}

/// A row: a network and a method, pruned to a target or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The data, as the names of configurations begin.
    pub data: &'static str,
    /// The network, as they go on.
    pub network: &'static str,
    /// The method, as they end.
    pub method: &'static str,
    /// The target, in per cent of all parameters.
    pub percent: Option<u32>,
    /// The accuracy that the paper prints.
    pub printed: Option<f64>,
    /// The text of the configuration, where one is shipped.
    pub(super) config: Option<&'static str>,
}

impl Row {
    /// Its name in commands and files: network, method and sparsity.
    pub fn name(&self) -> String {
        let Row { network, method, .. } = self;
        self.percent.map_or_else(
            || format!("{network}-{method}"),
            |percent| format!("{network}-{method}-{percent}"),
        )
    }

    /// Whether a run is one of this row, with whatever settings.
    pub(super) fn made(&self, run: &Outcome) -> bool {
        (run.network.as_str(), run.method.as_str(), run.percent)
            == (self.network, self.method, self.percent)
    }

    fn is_in(&self, name: &str) -> bool {
        let column = column(self.method);
        let named = |method: &str| {
            let mut words = vec![method.to_owned(), format!("{}-{method}", self.network)];
            if let Some(percent) = self.percent {
                words.extend([format!("{method}-{percent}"), self.name()]);
            }
            words.iter().any(|word| word == name)
        };
        let of_paper = self.printed.is_some()
            && (name == self.network || self.percent.is_some_and(|p| name == p.to_string()));
        of_paper || named(self.method) || named(column)
    }
}

/// The paper's column of a configuration.
fn column(method: &str) -> &str {
    if method.starts_with(RANK1) { RANK1 } else { method }
}

/// What is shipped for a network: method and text.
fn shipped(data: &str, network: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let begin = format!("{data}-{network}-");
    SHIPPED.iter().filter_map(move |(name, text)| Some((name.strip_prefix(begin.as_str())?, *text)))
}

fn of_paper(data: &'static str, printed: &Printed) -> Vec<Row> {
    let network = printed.network;
    let row = |method, percent, accuracy: f64, config| Row {
        data,
        network,
        method,
        percent,
        // One decimal is printed; 0.911 is not to become 0.9109999….
        printed: Some((10.0 * accuracy).round() / 1000.0),
        config,
    };
    let configs = |wanted: &'static str| -> Vec<(&'static str, Option<&'static str>)> {
        let all = shipped(data, network).filter(|(method, _)| column(method) == wanted);
        let mut found: Vec<_> = all.map(|(method, text)| (method, Some(text))).collect();
        if found.is_empty() {
            found.push((wanted, None));
        }
        found
    };
    let mut rows = Vec::new();
    for (method, accuracy) in DENSE.into_iter().zip(printed.dense) {
        let Some(accuracy) = accuracy else { continue };
        let all = configs(method).into_iter();
        rows.extend(all.map(|(method, config)| row(method, None, accuracy, config)));
    }
    for (percent, accuracies) in printed.sparse {
        for (method, accuracy) in SPARSE.into_iter().zip(accuracies) {
            let all = configs(method).into_iter();
            rows.extend(all.map(|(m, config)| row(m, Some(*percent), *accuracy, config)));
        }
    }
    rows
}

/// Configurations of the network that the paper has no number for.
fn others(data: &'static str, printed: &Printed) -> Vec<Row> {
    let network = printed.network;
    let in_paper = |method: &str| {
        let dense = DENSE.iter().zip(printed.dense).filter(|(_, number)| number.is_some());
        dense.map(|(name, _)| *name).chain(SPARSE).any(|name| name == column(method))
    };
    let mut rows = Vec::new();
    for (method, text) in shipped(data, network).filter(|(method, _)| !in_paper(method)) {
        let row = Row { data, network, method, percent: None, printed: None, config: Some(text) };
        // One that prunes to a target has a row for each of the paper's.
        if text.lines().any(|line| line.starts_with("target = ")) {
            let all = printed.sparse.iter();
            rows.extend(all.map(|(percent, _)| Row { percent: Some(*percent), ..row }));
        } else {
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: PaperTable, wanted: &[&str]) -> Vec<String> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        table.choose(&wanted).unwrap().iter().map(Row::name).collect()
    }

    /// Sums of the accuracies, added up from the LaTeX of the paper.
    #[test]
    fn the_printed_numbers_are_those_of_the_paper() {
        for (table, dense, sparse) in [
            (PaperTable::Table1, 286.2 + 385.5, 1114.1 + 1142.1),
            (PaperTable::Table2, 237.6 + 330.2, 900.3 + 929.7),
            (PaperTable::Table3, 307.3, 587.2),
        ] {
            let sum = |sparse: bool| -> f64 {
                let mut seen: Vec<(&str, &str, Option<u32>)> = Vec::new();
                let mut sum = 0.0;
                for row in table.choose(&[]).unwrap() {
                    // Variants of Rank-1 have one number.
                    let cell = (row.network, column(row.method), row.percent);
                    if row.percent.is_some() == sparse && !seen.contains(&cell) {
                        seen.push(cell);
                        sum += 100.0 * row.printed.unwrap();
                    }
                }
                sum
            };
            assert!((sum(false) - dense).abs() < 1e-6, "{table:?}: {}", sum(false));
            assert!((sum(true) - sparse).abs() < 1e-6, "{table:?}: {}", sum(true));
        }
    }

    #[test]
    fn rows_are_chosen_by_network_method_and_sparsity() {
        use PaperTable::{Table1, Table3};
        assert_eq!(names(Table1, &["dfp-90"]), ["resnet18-dfp-90", "wrn-28-10-dfp-90"]);
        assert_eq!(names(Table1, &["resnet18-sm"]).len(), 3);
        assert_eq!(names(Table1, &["wrn-28-10-dpf-99"]), ["wrn-28-10-dpf-99"]);
        assert_eq!(names(Table1, &["80"]).len(), 4);
        // A whole name takes one row, also where another one begins like it.
        assert_eq!(names(Table1, &["wrn-28-10-rank1"]), ["wrn-28-10-rank1"]);
        assert!(names(Table1, &["rank1"]).len() > 1);
        // In the order of the table, whatever the order of the words.
        assert_eq!(names(Table3, &["cv-adam", "sgd"]), ["resnet50-sgd", "resnet50-cv-adam"]);
        // Not of the paper: by method alone.
        assert!(names(Table1, &["resnet18"]).iter().all(|name| !name.contains("csghmc")));
        assert_eq!(names(Table1, &["csghmc"]), ["resnet18-csghmc", "wrn-28-10-csghmc"]);
        assert_eq!(names(Table1, &["dpf-lin-90"]), ["resnet18-dpf-lin-90", "wrn-28-10-dpf-lin-90"]);
        assert_eq!(names(Table1, &["resnet18-ensemble"]), ["resnet18-ensemble"]);
        let error = Table1.choose(&["lars".to_owned()]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("lars") && text.contains("wrn-28-10"), "{text}");
        assert!(text.contains("dfp-threshold"), "{text}");
    }

    #[test]
    fn every_number_of_the_paper_is_a_row() {
        for (table, rows) in
            [(PaperTable::Table1, 31), (PaperTable::Table2, 31), (PaperTable::Table3, 12)]
        {
            let all = table.choose(&[]).unwrap();
            // At least: a second variant of Rank-1 is a row more.
            assert!(all.len() >= rows, "{table:?}: {}", all.len());
            let without = all.iter().filter(|row| row.config.is_none());
            assert!(without.clone().all(|row| row.method == RANK1), "a configuration is missing");
        }
    }
}
