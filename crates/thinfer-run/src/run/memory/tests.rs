//! Memory plans beside what runs hold.

use thinfer_core::train::Chain;

use super::*;
use crate::registry::METHODS;

const GIB: u64 = 1 << 30;

/// A run on one's own images, of which none is needed.
fn images(settings: &[&str]) -> (Config, Vec<ChainSpec>, Work) {
    let base = [
        "data.kind=images",
        "data.path=pictures",
        "model.name=resnet18",
        "train.epochs=4",
        "train.batch=8",
        "train.samples_per_cycle=1",
        "schedule.step_size.cycles=1",
        "prune.warm_up_epochs=1",
    ];
    let overrides: Vec<String> = base.iter().chain(settings).map(|s| (*s).to_owned()).collect();
    let config = Config::parse("", &overrides).unwrap();
    let side = config.data.image_size;
    let shape = Shape { height: side, width: side, channels: 3 };
    let inputs = ProblemInputs::Image { shape, classes: 10 };
    let specs = chain_specs(&config, Problem { train_rows: 100, fingerprint: 1, inputs }).unwrap();
    let image = Some(ImageWork { shape, streamed: true, decoding: 0 });
    let work = Work { device: Device::Cpu, threads: 1, train_rows: 100, test_rows: 20, image };
    (config, specs, work)
}

/// The run that was killed at 9 GB after it had promised 8 MiB.
#[test]
fn large_images_are_counted_with_their_activations() {
    let (_, specs, work) = images(&["data.image_size=1024"]);
    let plan = MemoryPlan::new(&specs, &work);
    // ResNet-18 keeps 5 million numbers of an image of 224 pixels, and a slope for each.
    let activations = 8 * 2 * 4 * 5_000_000 * (1024 * 1024) / (224 * 224);
    assert!(plan.training > activations, "{} {activations}", plan.training);
    assert!(plan.training < activations + activations / 2, "{}", plan.training);
    let (_, specs, gpu) = images(&["data.image_size=1024"]);
    let gpu = Work { device: Device::Cuda(0), ..gpu };
    assert!(MemoryPlan::new(&specs, &gpu).training < GIB, "activations are on the GPU");
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let (config, specs, work) = images(&["data.image_size=1024"]);
    let plan = MemoryPlan::new(&specs, &work);
    check(&plan, &specs, &work, &config, Some(plan.ahead())).unwrap();
    check(&plan, &specs, &work, &config, None).unwrap();
    let available = 3 * GIB;
    let error = check(&plan, &specs, &work, &config, Some(available)).unwrap_err().to_string();
    let number = |after: &str| -> usize {
        let (_, rest) = error.split_once(after).unwrap_or_else(|| panic!("{error}"));
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let ahead = |set: &[&str]| {
        let (_, specs, work) = images(set);
        MemoryPlan::new(&specs, &work).ahead()
    };
    let batch = number("`train.batch` to ");
    let of_batch = |batch: usize| ahead(&["data.image_size=1024", &format!("train.batch={batch}")]);
    assert!(of_batch(batch) <= available && of_batch(batch + 1) > available, "{error}");
    let side = number("`data.image_size` to ");
    let of_side = |side: usize| ahead(&[&format!("data.image_size={side}")]);
    assert!(of_side(side) <= available && of_side(side + SIDES) > available, "{error}");
    assert!(error.contains("but only 3.0 GiB are available; lower "), "{error}");
    let error = check(&plan, &specs, &work, &config, Some(1 << 20)).unwrap_err().to_string();
    assert!(error.ends_with("or use a machine with more memory"), "{error}");
}

#[test]
fn fewer_chains_are_advised_where_they_would_fit() {
    let (config, specs, work) = images(&["data.image_size=64", "chains=4"]);
    let work = Work { threads: 4, ..work };
    let plan = MemoryPlan::new(&specs, &work);
    let two = MemoryPlan::new(&specs[..2], &work).ahead();
    assert!(plan.ahead() > two + two / 2, "four chains take twice as much as two");
    let error = check(&plan, &specs, &work, &config, Some(two)).unwrap_err().to_string();
    assert!(error.contains("`chains` to 2"), "{error}");
}

#[test]
fn methods_say_whether_they_keep_what_the_network_reads() {
    for entry in METHODS.iter().filter(|entry| entry.kind.has_kernels()) {
        let kind = format!("method.kind={}", entry.kind.name());
        for regrow in ["prune.regrow=true", "prune.regrow=false"] {
            let set = ["data.image_size=32", "model.name=lenet", kind.as_str(), regrow];
            let more = ["prune.target=0.5", "train.epochs=20"];
            let set = match entry.kind.name() {
                "dpf-lin" | "sm" | "dsr" | "cv-adam" => [&set[..], &more].concat(),
                _ => set.to_vec(),
            };
            let (_, specs, work) = images(&set);
            let spec = &specs[0];
            let arena = Chain::start(spec.clone()).unwrap().arena().clone();
            assert_eq!(arena.has_forward(), spec.method.has_forward_copy(), "{set:?}");
            assert_eq!(arena.method_bytes() as u64, method_bytes(spec), "{set:?}");
            let _ = work;
        }
    }
}

#[test]
fn what_walkers_keep_is_counted() {
    for kind in ["mclmc", "nuts"] {
        let config = Config::parse("", &[format!("method.kind={kind}")]).unwrap();
        let inputs = ProblemInputs::Table {
            task: thinfer_data::Task::Regression,
            classes: 0,
            count_mean: None,
            groups: &[0, 1, 2],
        };
        let problem = Problem { train_rows: 100, fingerprint: 1, inputs };
        let spec = chain_specs(&config, problem).unwrap().swap_remove(0);
        let arena = Chain::start(spec.clone()).unwrap().arena().clone();
        assert!(!arena.numbers().is_empty());
        assert_eq!(arena.method_bytes() as u64, method_bytes(&spec));
    }
}

#[test]
fn the_largest_that_fits_is_found() {
    for (most, limit) in [(10, 3), (10, 10), (10, 20), (1, 1)] {
        assert_eq!(largest(most, |n| n <= limit), Some(limit.min(most)));
    }
    assert_eq!(largest(10, |_| false), None);
    assert_eq!(largest(0, |_| true), None);
}

/// 10⁵ samples in each of 10⁵ cycles were a list of 10¹⁰ numbers, which ended the program.
#[test]
fn more_samples_than_can_be_kept_are_refused() {
    let set = |samples: usize, cycles: usize, epochs: u64| {
        let overrides = [
            format!("train.epochs={epochs}"),
            format!("train.samples_per_cycle={samples}"),
            format!("schedule.step_size.cycles={cycles}"),
        ];
        let config = Config::parse("", &overrides).unwrap();
        let inputs = ProblemInputs::Table {
            task: thinfer_data::Task::Regression,
            classes: 0,
            count_mean: None,
            groups: &[0, 1, 2],
        };
        chain_specs(&config, Problem { train_rows: 10, fingerprint: 1, inputs })
    };
    let error = set(100_000, 100_000, 20_000_000_000).err().map(|e| e.to_string()).unwrap();
    for part in ["train.samples_per_cycle", "10000000000 samples", "at most 100000 can be kept"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(set(10, 5, 100).unwrap()[0].sample_epochs.len(), 50);
}
