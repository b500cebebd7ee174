mod figure;
mod images;
mod table4;

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
