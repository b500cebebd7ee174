//! `thinfer bench`: how fast a machine is.

use thinfer::Error;
use thinfer::bench::{self, Bench, Options, Update, Updates};
use thinfer::data::memory::human_bytes;
use thinfer::device::Device;
use thinfer::model::IMAGE_NETWORKS;
use thinfer_engine::cuda::Precision;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::text_table::{align, number, percent};

/// Time one training step: data, forward, backward, update
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// The network [default: resnet18-cifar; on the cpu lenet]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Images a step
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// The arithmetic of a GPU [default: bf16]
    #[arg(long, value_enum)]
    precision: Option<PrecisionArg>,
    /// Only algorithms with the same bits every time
    #[arg(long)]
    deterministic: bool,
    /// Time the update of every method instead
    #[arg(long)]
    updates: bool,
}

fn after_help() -> String {
    format!(
        "\
Networks: {}. The method is Algorithm 2; images are random.

Examples:
  thinfer bench --model resnet18-cifar --batch 512
  thinfer bench --updates --json",
        IMAGE_NETWORKS.join(", ")
    )
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum PrecisionArg {
    Bf16,
    Tf32,
    F32,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let chosen = args.device.choose()?;
    chosen.tell(context);
    let precision = args.precision.map(|precision| match precision {
        PrecisionArg::Bf16 => Precision::Bf16,
        PrecisionArg::Tf32 => Precision::Tf32,
        PrecisionArg::F32 => Precision::F32,
    });
    let (usual, model) = match chosen.device {
        Device::Cpu => (Precision::F32, "lenet"),
        Device::Cuda(_) => (Precision::Bf16, "resnet18-cifar"),
    };
    let precision = precision.unwrap_or(usual);
    if chosen.device == Device::Cpu && precision != Precision::F32 {
        let problem = format!("is {}, but the cpu computes in f32; leave it out", precision.name());
        return Err(Error::config("--precision", problem).into());
    }
    let options = Options {
        model: args.model.clone().unwrap_or_else(|| model.into()),
        batch: args.batch as usize,
        precision,
        deterministic: args.deterministic,
    };
    context.say(&format!("{chosen}; {}, batch {}", options.model, options.batch));
    if args.updates {
        let result = bench::updates(chosen.device, &options)?;
        return context.result(&serde_json::to_value(&result)?, || of_updates(&result));
    }
    let result = bench::bench(chosen.device, &options)?;
    context.result(&serde_json::to_value(&result)?, || to_text(&result))
}

fn of_updates(result: &Updates) -> String {
    let head = ["method", "ms", "bytes a weight", "of a copy"];
    let row = |update: &Update| {
        let bytes = update.bytes_per_weight.to_string();
        vec![update.method.into(), number(update.milliseconds), bytes, of_limit(update.of_copy)]
    };
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(result.updates.iter().map(row));
    format!(
        "{}, {} parameters, {}\n{}, copy {} GB/s\n{}",
        result.model,
        result.parameters,
        result.precision.name(),
        result.device_name,
        number(1e-9 * result.copy_bytes_per_second),
        align(&rows)
    )
}

/// A share of what the device can do; more than all of it says that the two cannot be compared.
fn of_limit(share: f64) -> String {
    if share.is_nan() {
        "not measured".into()
    } else if share <= 1.0 {
        percent(share)
    } else {
        "more than all: it fits a cache, or the machine was busy".into()
    }
}

/// A gradient that took this many times its fastest time in the middle was disturbed.
const BUSY: f64 = 1.3;

fn to_text(result: &Bench) -> String {
    let (times, limits) = (&result.milliseconds, &result.limits);
    let ms = |value: Option<f64>| value.map_or("not measured".into(), |v| number(v) + " ms");
    let share = |value: Option<f64>| value.map_or("not measured".into(), of_limit);
    let on_cpu = result.threads.is_some();
    let data = if on_cpu { "in forward".into() } else { ms(times.data) };
    let first = if on_cpu { "start to first gradient" } else { "start to first step" };
    let copy = format!("{} GB/s", number(1e-9 * limits.copy_bytes_per_second));
    let matrix = format!("{} TFLOP/s", number(1e-12 * limits.matrix_flops));
    let rows = [
        ["data", &data],
        ["forward", &ms(Some(times.forward))],
        ["backward", &ms(times.backward)],
        ["update", &ms(times.update)],
        ["step", &ms(Some(times.step))],
        ["images a second", &number(result.images_per_second)],
        ["copy of this device", &copy],
        ["update, of that", &share(limits.update_of_copy)],
        ["products of this device", &matrix],
        ["forward and backward, of that", &of_limit(limits.gradient_of_matrix)],
        ["memory", &human_bytes(result.memory_bytes as u64)],
        [first, &format!("{} s", number(result.startup_seconds))],
    ]
    .map(|row: [&str; 2]| row.map(str::to_owned).to_vec());
    let [height, width, channels] = result.image;
    let threads = result.threads.map_or(String::new(), |n| format!(", threads: {n}"));
    let title = format!(
        "{}, {} parameters, {} images of {height} x {width} x {channels}, {}{}\n{}{threads}\n",
        result.model,
        result.parameters,
        result.batch,
        result.precision.name(),
        if result.deterministic { ", deterministic" } else { "" },
        result.device_name,
    );
    let mut text = title + &align(&rows);
    if let Some(slowdown) = result.slowdown.filter(|slowdown| *slowdown > BUSY) {
        text.push_str(&format!(
            "the machine was busy: the median gradient took {} times as long as the fastest one; \
             run it again when nothing else runs\n",
            number(slowdown)
        ));
    }
    if let Some(memory) = result.memory {
        text.push_str(&format!("{memory}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_is_more_than_the_whole() {
        assert_eq!(of_limit(0.42), "42.0 %");
        assert_eq!(of_limit(1.0), "100.0 %");
        assert!(of_limit(2.78).starts_with("more than all"));
        assert_eq!(of_limit(f64::NAN), "not measured");
    }
}
