//! `thinfer reproduce`: the tables and figures of the paper.

mod figure;
mod images;
mod table4;

use std::path::Path;

use thinfer::reproduce::Figure;
use thinfer::reproduce::images::PaperTable;

use crate::context::Context;

/// Make a table or a figure of the paper again
#[derive(clap::Args)]
#[command(after_help = "\
What is finished is kept and not done again.

Examples:
  thinfer reproduce table1 --rows resnet18-dfp-90 --seeds 1 --plan
  thinfer reproduce table4 --examples 1 --rows dfp --repeats 2
  thinfer reproduce figure1
  thinfer reproduce figure2 --config configs/cifar10-resnet18-dpf.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// CIFAR-10: ResNet-18 and WRN-28-10, dense and pruned
    Table1(images::Args),
    /// CIFAR-100: ResNet-34 and WRN-28-10, dense and pruned
    Table2(images::Args),
    /// ImageNet: ResNet-50, dense and pruned
    Table3(images::Args),
    Table4(table4::Args),
    /// Paths of the weights of some channels, and the step size
    Figure1(figure::Args),
    /// Accuracy, soft mask and sparsity over epochs, for DFP and DPF
    Figure2(figure::Args),
}

/// Says so where everything is missing because the folder is.
fn tell_of_no_folder(out: &Path, context: &Context) {
    if !out.is_dir() {
        context.notice(&format!("{} is no folder, so nothing is there to collect", out.display()));
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    match &args.what {
        What::Table1(args) => images::run(PaperTable::Table1, args, context),
        What::Table2(args) => images::run(PaperTable::Table2, args, context),
        What::Table3(args) => images::run(PaperTable::Table3, args, context),
        What::Table4(args) => table4::run(args, context),
        What::Figure1(args) => figure::run(Figure::WeightPaths, args, context),
        What::Figure2(args) => figure::run(Figure::Pruning, args, context),
    }
}

/// The seeds of the runs.
#[derive(Clone)]
struct Seeds(Vec<u64>);

fn seeds_of(text: &str) -> Result<Seeds, String> {
    let wrong = || "a number of seeds such as 3, or a range such as 4..6".to_owned();
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
        None => (1, number(text)?),
    };
    if first > last || last - first >= 10_000 {
        return Err(wrong());
    }
    Ok(Seeds((first..=last).collect()))
}

/// What stands above numbers of scaled-down schedules.
fn warning(budget: Option<usize>) -> String {
    budget.map_or_else(String::new, |epochs| {
        format!(
            "Short runs: schedules of more than {epochs} epochs are scaled down to {epochs}; this is not the paper's table\n\n"
        )
    })
}

/// A failure where runs failed: the table is printed, and is not what was asked for.
fn all_done(failed: &[String], done: usize) -> anyhow::Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    let runs = failed.len() + done;
    anyhow::bail!(
        "{} of {runs} runs failed and are missing in the table; the same command tries them again\n  {}",
        failed.len(),
        failed.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        assert_eq!(seeds_of("3").unwrap().0, [1, 2, 3]);
        assert_eq!(seeds_of("4..6").unwrap().0, [4, 5, 6]);
        assert_eq!(seeds_of("7..=7").unwrap().0, [7]);
        for wrong in ["", "0", "x", "6..4", "1,2", "-1", "..", "1..100000"] {
            assert!(seeds_of(wrong).is_err_and(|text| text.contains("4..6")), "{wrong}");
        }
    }
}
