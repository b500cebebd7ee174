mod figure;
mod table4;

use thinfer::reproduce::Figure;

use crate::context::Context;

/// Make a table or a figure of the paper again
#[derive(clap::Args)]
#[command(after_help = "\
What is finished is kept and not done again.

Examples:
  thinfer reproduce table4 --examples 1 --rows dfp --repeats 2
  thinfer reproduce figure1
  thinfer reproduce figure2 --config configs/cifar10-resnet18-dpf.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Table4(table4::Args),
    /// Paths of the weights of some channels, and the step size
    Figure1(figure::Args),
    /// Accuracy, soft mask and sparsity over epochs, for DFP and DPF
    Figure2(figure::Args),
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    match &args.what {
        What::Table4(args) => table4::run(args, context),
        What::Figure1(args) => figure::run(Figure::WeightPaths, args, context),
        What::Figure2(args) => figure::run(Figure::Pruning, args, context),
    }
}
