//! `thinfer shrink`: the smaller network, with a proof.

use std::path::{Path, PathBuf};

use serde_json::json;
use thinfer::data::memory::human_bytes;
use thinfer::export::{self, Format, Options};
use thinfer::run::some_test_rows;
use thinfer::shrink::{Proof, Saving, prove};
use thinfer::train::Silent;

use crate::context::Context;
use crate::text_table::{align, number, percent};
use crate::{output, run_folder};

/// Leftovers in the text at most; the JSON has all of them.
const SHOWN: usize = 8;

/// Cut out what pruning left dead, and prove that nothing changed
#[derive(clap::Args)]
#[command(after_help = "\
Every sample is cut down and compared with the masked network in double
precision, on random and on test rows. Where they differ, nothing is written,
the layer is named, and the exit code is 3. See docs/shrink.md.

Examples:
  thinfer shrink runs/shapes
  thinfer shrink runs/example1 --out small.safetensors --json")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    /// Where to write [default: RUN/small.safetensors]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let check = |path: &Path| -> thinfer::Result<()> {
        output::check(path, args.force)?;
        output::check(&export::description_path(path), args.force)
    };
    // Before the run is opened, where that can be.
    args.out.as_deref().map_or(Ok(()), check)?;
    let (info, posterior) = run_folder::open_posterior(&args.run, context)?;
    let path = args.out.clone().unwrap_or_else(|| args.run.join("small.safetensors"));
    check(&path)?;
    // What there is to say about the files of the run was said just now.
    let rows = thinfer::run::open(&args.run, &Silent).and_then(|run| some_test_rows(&run));
    let rows = rows.unwrap_or_else(|error| {
        context.notice(&format!("only random rows are compared, not test rows: {error}"));
        None
    });
    let proof = prove(&posterior, rows.as_ref())?;
    let Some(last) = posterior.members.last() else {
        anyhow::bail!(
            "the run has no posterior samples yet; let it reach the end of its first cycle"
        )
    };
    let saving = Saving::of(&posterior.network, last)?;
    let options = Options { new_only: !args.force, ..Options::default() };
    let written = export::export(&info, &posterior, Format::Safetensors, &options, &path)?;
    let files: Vec<String> = written.files.iter().map(|file| file.display().to_string()).collect();
    context.say(&format!(
        "wrote {} ({}, {}) and its description",
        files[0],
        human_bytes(written.bytes as u64),
        counted(written.samples)
    ));
    let json = json!({
        "run": args.run.display().to_string(),
        "file": files[0],
        "files": files,
        "bytes": written.bytes,
        "proof": proof,
        "saving": saving,
    });
    let chain = (posterior.members[0].chain != last.chain).then_some(last.chain);
    context.result(&json, || text(&proof, &saving, chain))
}

fn counted(samples: usize) -> String {
    if samples == 1 { "1 sample".to_owned() } else { format!("{samples} samples") }
}

/// `chain` is the one whose last sample is measured, where there are several.
fn text(proof: &Proof, saving: &Saving, chain: Option<u32>) -> String {
    let amount = |name: &str, [whole, small]: [usize; 2]| {
        let share = percent(small as f64 / whole.max(1) as f64);
        vec![name.to_owned(), whole.to_string(), small.to_string(), share]
    };
    let whose = chain.map_or(String::new(), |chain| format!("last sample, chain {chain}"));
    let head = [whose.as_str(), "masked", "shrunk", "left"].map(str::to_owned).to_vec();
    let mut rows = vec![
        head,
        amount("parameters", saving.parameters),
        amount("bytes", saving.bytes),
        amount("multiply-adds", saving.multiply_adds),
        amount("inputs", saving.inputs),
    ];
    for speed in &saving.speed {
        let name = match speed.rows {
            1 => "ms, one row".to_owned(),
            rows => format!("ms a row, {rows} at a time"),
        };
        let left = percent(speed.shrunk / speed.masked);
        rows.push(vec![name, number(speed.masked), number(speed.shrunk), left]);
    }
    let samples = counted(proof.samples);
    let mut text = format!(
        "{}\nthe same function: {samples} on random rows and {} test rows, largest difference {:.0e} (limit {:.0e})\n",
        align(&rows),
        proof.test_rows,
        proof.largest_difference,
        proof.limit
    );
    for left in saving.leftovers.iter().take(SHOWN) {
        text += &format!(
            "kept although masked: {} of {} in {} ({})\n",
            left.masked, left.of, left.name, left.reason
        );
    }
    if saving.leftovers.len() > SHOWN {
        text +=
            &format!("and in {} more parameters; --json has all\n", saving.leftovers.len() - SHOWN);
    }
    text
}
