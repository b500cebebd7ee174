//! `thinfer selftest`: whether the machine computes what it should.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;
use thinfer::Error;
use thinfer::device::Device;
use thinfer::selftest::{self, Check, Extent};
use thinfer_engine::cuda::{Gpu, Precision};

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::output;
use crate::text_table::{align, seconds};

/// Check that a device computes what it should
#[derive(clap::Args)]
#[command(after_help = "\
A GPU is compared with the CPU, the CPU with known answers. The exit code is 3
where a check fails.

Examples:
  thinfer selftest
  thinfer selftest --device cuda:0 --out selftest.json
  compute-sanitizer --tool memcheck thinfer selftest --quick")]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// On a GPU, run every kernel once or twice and compare less: for memory
    /// checkers
    #[arg(long)]
    quick: bool,
    /// Run only parts (on the CPU, checks) with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Also write the result there, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long)]
    force: bool,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check(out, args.force)?;
    }
    let chosen = args.device.choose()?;
    chosen.tell(context);
    context.say(&chosen.to_string());
    let started = Instant::now();
    let checks = match chosen.device {
        Device::Cpu => {
            let mut checks = selftest::cpu()?;
            checks.retain(|check| args.wants(&check.name));
            checks
        }
        Device::Cuda(index) => {
            let extent = if args.quick { Extent::Quick } else { Extent::Whole };
            // Under a memory checker each of these takes minutes.
            let wanted = |part: &str| {
                let wanted = args.wants(part);
                if wanted {
                    let elapsed = started.elapsed().as_secs_f64();
                    context.say(&format!("{}: {part}", seconds(elapsed)));
                }
                wanted
            };
            selftest::cuda(&Gpu::open(index)?, extent, &wanted)?
        }
    };
    if let (Some(only), true) = (&args.only, checks.is_empty()) {
        let problem =
            format!("is {only}, which no part has in its name; run without it to see all names");
        return Err(Error::config("--only", problem).into());
    }
    let took = started.elapsed().as_secs_f64();
    let failed = checks.iter().filter(|check| !check.passed).count();
    let json = json!({
        "thinfer": env!("CARGO_PKG_VERSION"),
        "device": chosen.device.to_string(),
        "device_name": chosen.name(),
        "quick": args.quick,
        "only": args.only,
        "checks": checks,
        "passed": checks.len() - failed,
        "failed": failed,
        "seconds": took,
    });
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
        thinfer::run::write_json(out, &json)?;
        context.say(&format!("wrote {}", out.display()));
    }
    context.result(&json, || to_text(&checks, failed, took))?;
    if failed > 0 {
        let problem = format!(
            "{failed} of {} checks failed on {chosen}; please report it with the output of `thinfer doctor`",
            checks.len()
        );
        return Err(Error::Promise(problem).into());
    }
    Ok(())
}

fn to_text(checks: &[Check], failed: usize, took: f64) -> String {
    let head = ["check", "precision", "worst", "limit", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(checks.iter().map(|check| {
        vec![
            check.name.clone(),
            check.precision.map_or("", Precision::name).to_owned(),
            error(check.worst),
            error(check.limit),
            if check.passed { "ok" } else { "FAILED" }.to_owned(),
        ]
    }));
    let (count, took) = (checks.len(), seconds(took));
    format!(
        "{}{} of {count} checks passed, {failed} failed, {took}\n",
        align(&rows),
        count - failed
    )
}

fn error(value: f64) -> String {
    if value == 0.0 { "0".into() } else { format!("{value:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_seen() {
        let check = |name: &str, precision, worst: f64| Check {
            name: name.into(),
            precision,
            worst,
            limit: 0.02,
            passed: worst <= 0.02,
        };
        let checks = [check("conv", Some(Precision::Bf16), 0.001), check("noise", None, f64::NAN)];
        let text = to_text(&checks, 1, 2.0);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "conv        bf16  1.0e-3  2.0e-2      ok");
        assert_eq!(lines[2], "noise                NaN  2.0e-2  FAILED");
        assert_eq!(lines[3], "1 of 2 checks passed, 1 failed, 2.0 s");
    }
}
