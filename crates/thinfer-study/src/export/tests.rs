//! Exports that are written and read again.

use std::path::Path;

use thinfer_core::model::{image_network, mlp};
use thinfer_data::table::Target;
use thinfer_engine::{Loss, Scale, Shape};
use thinfer_run::config::Activation;

use super::testing::{
    SMALL, classes, encoding, encoding_with_gaps, images, listed, numbers, posterior, table,
    table_of,
};
use super::*;

/// `--dense` and `--fold-norms`.
const WAYS: [(bool, bool); 4] = [(true, false), (true, true), (false, false), (false, true)];

/// Exports in both formats and gives back parameters of a sample, before and after.
fn everywhere(info: &RunInfo, samples: &[Samples], ways: &[(bool, bool)]) -> (usize, usize) {
    let posterior = posterior(&info.network, 3);
    let folder = tempfile::tempdir().unwrap();
    let mut smallest = (0, usize::MAX);
    for format in [Format::Safetensors, Format::Onnx] {
        for (samples, (dense, fold_norms)) in
            samples.iter().flat_map(|samples| ways.iter().map(move |way| (*samples, *way)))
        {
            let options = Options { samples, fold_norms, dense, ..Options::default() };
            let path = default_path(folder.path(), &posterior, samples, format);
            let exported = export(info, &posterior, format, &options, &path).unwrap();
            assert!(exported.files.iter().all(|file| file.is_file()));
            assert_eq!(exported.bytes as u64, path.metadata().unwrap().len());
            let (after, before) = exported.parameters;
            smallest = (before, smallest.1.min(after));
        }
    }
    smallest
}

#[test]
fn image_networks_answer_the_same_in_both_formats() {
    let one_channel = Shape { height: 20, width: 20, channels: 1 };
    for (name, shape) in [("lenet", one_channel), ("convnet", SMALL), ("wrn-10-1", SMALL)] {
        let info = images(&image_network(name, shape, 5).unwrap());
        let samples = [Samples::All, Samples::Last, Samples::Number(0)];
        let (before, after) = everywhere(&info, &samples, &WAYS);
        assert!(2 * after < before, "{name}: {after} of {before} parameters");
    }
    // A network that has lists of channels already.
    everywhere(&images(&listed()), &[Samples::All, Samples::Last], &WAYS[..2]);
}

#[test]
fn a_residual_network_answers_the_same_in_both_formats() {
    let info = images(&image_network("resnet18-cifar", SMALL, 5).unwrap());
    let (before, after) = everywhere(&info, &[Samples::Last], &[WAYS[1], WAYS[2]]);
    assert!(3 * after < before, "{after} of {before} parameters");
}

#[test]
fn tables_answer_as_thinfer_predict_does() {
    let width = encoding().width();
    let number = Target::Number { mean: -300.0, sd: 12.5 };
    let scale = Scale::ByRow { start: 0.3 };
    for (outputs, loss, target) in [
        (1, Loss::gaussian(0.7), number.clone()),
        (1, Loss::gaussian_learned(0.3), number.clone()),
        (2, Loss::Gaussian { scale }, number.clone()),
        (2, Loss::StudentT { scale, dof: 4.0 }, number),
        (1, Loss::Bernoulli, classes(2)),
        (4, Loss::cross_entropy(), classes(4)),
    ] {
        let network = mlp(width, &[6, 5], Activation::Tanh, outputs, loss).unwrap();
        everywhere(&table(&network, target), &[Samples::All, Samples::Number(1)], &WAYS);
    }
}

/// A gap is NaN or a place of its own for a graph, and is filled in as `predict` does it.
#[test]
fn gaps_are_filled_in_by_a_graph_as_thinfer_predict_does() {
    let encoding = encoding_with_gaps();
    let target = Target::Number { mean: 3.0, sd: 2.5 };
    let network = mlp(encoding.width(), &[6, 5], Activation::Tanh, 1, Loss::gaussian(0.7)).unwrap();
    let info = table_of(&network, encoding, target);
    everywhere(&info, &[Samples::All, Samples::Number(1)], &WAYS);
}

/// f32 near 10⁹ is a multiple of 64: all answers would be one number.
#[test]
fn numbers_that_a_float_cannot_hold_are_refused_or_told() {
    let network = mlp(encoding().width(), &[6], Activation::Tanh, 1, Loss::gaussian(0.5)).unwrap();
    let posterior = posterior(&network, 3);
    let folder = tempfile::tempdir().unwrap();
    let export = |mean: f64, format: Format| {
        let info = table(&network, Target::Number { mean, sd: 4.0 });
        let path = folder.path().join(format!("n.{}", format.extension()));
        export(&info, &posterior, format, &Options::default(), &path)
    };
    let error = export(1e9 + 0.1, Format::Onnx).unwrap_err().to_string();
    assert!(error.contains("the target `y`") && error.contains("64 apart"), "{error}");
    assert!(!folder.path().join("n.onnx").exists());
    export(1e9, Format::Safetensors).unwrap();
    let told = |mean: f64| {
        let found = export(mean, Format::Onnx).unwrap();
        assert!(found.difference < 5e-3, "{}", found.difference);
        found.notices
    };
    assert!(told(30_000.2).iter().any(|notice| notice.contains("the target `y`")));
    // The column `year` lies around 20,000 with a deviation of about 3.
    let notices = told(20.0);
    assert!(notices.len() == 1 && notices[0].contains("the column `year`"), "{notices:?}");
}

#[test]
fn a_file_of_all_samples_has_their_names_and_masks_at_the_full_size() {
    let network = mlp(encoding().width(), &[3], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
    let (info, posterior) =
        (table(&network, Target::Number { mean: 0.0, sd: 1.0 }), posterior(&network, 2));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.safetensors");
    let options = Options { dense: true, ..Options::default() };
    export(&info, &posterior, Format::Safetensors, &options, &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    assert_eq!(
        &names[..7],
        [
            "sample000.fc1.bias",
            "sample000.fc1.weight",
            "sample000.fc2.bias",
            "sample000.fc2.weight",
            "sample000.mask/fc1.bias",
            "sample000.mask/fc1.weight",
            "sample000.mask/fc2.weight"
        ]
    );
    let mask = file.tensor("sample001.mask/fc1.weight").unwrap();
    assert_eq!(mask.data(), &posterior.members[1].keep[network.params()[0].range()]);
    let text = fs::read_to_string(description_path(&path)).unwrap();
    let about: Architecture = serde_json::from_str(&text).unwrap();
    assert_eq!(about, read(&path, &bytes).unwrap().0);
    assert_eq!(about.samples[1].prefix, "sample001.");
    assert_eq!(about.networks.len(), 1);
    assert_eq!(about.network(0).unwrap(), network);
}

#[test]
fn a_small_file_describes_the_columns_that_are_read_and_no_others() {
    // As Example 1 ends: 5 of 1,000 columns are read.
    let network = mlp(1000, &[5], Activation::Tanh, 1, Loss::gaussian(1.0)).unwrap();
    let encoding = numbers(1000);
    assert_eq!(encoding.width(), 1000);
    let info = table_of(&network, encoding, Target::Number { mean: 0.0, sd: 1.0 });
    let mut posterior = posterior(&network, 1);
    let member = &mut posterior.members[0];
    let read = [3, 77, 500, 501, 999];
    for (at, keep) in member.keep.iter_mut().enumerate() {
        *keep = u8::from(at >= 5000 || read.contains(&(at % 1000)));
        member.weights[at] = if *keep == 0 { 0.0 } else { 0.1 + at as f32 / 9e3 };
    }
    let folder = tempfile::tempdir().unwrap();
    for (dense, format) in [
        (false, Format::Safetensors),
        (true, Format::Safetensors),
        (false, Format::Onnx),
        (true, Format::Onnx),
    ] {
        let path = folder.path().join(format!("{dense}.{}", format.extension()));
        let options = Options { dense, samples: Samples::Last, ..Options::default() };
        let exported = export(&info, &posterior, format, &options, &path).unwrap();
        assert_eq!(exported.bytes > 10_000, dense, "{format:?}: {} bytes", exported.bytes);
        if format == Format::Onnx {
            continue;
        }
        let (about, _) = read_file(&path);
        let Input::Table { variables, columns, numbers } = &about.input else { panic!() };
        if dense {
            assert_eq!((variables.len(), columns.len(), numbers.len()), (1000, 1000, 0));
            assert_eq!(about.columns(0), (0..1000).collect::<Vec<u32>>());
        } else {
            assert_eq!(columns, &["x4", "x78", "x501", "x502", "x1000"]);
            assert_eq!(variables[1].name, "x78");
            assert_eq!(numbers, &[3, 77, 500, 501, 999]);
            assert_eq!(about.networks[0].inputs, [0, 1, 2, 3, 4]);
            assert_eq!(about.columns(0), [3, 77, 500, 501, 999]);
            assert!(fs::metadata(description_path(&path)).unwrap().len() < 10_000);
        }
    }
}

fn read_file(path: &Path) -> (Architecture, Vec<(Network, thinfer_core::weights::Weights)>) {
    read(path, &fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_wrong_number_breaks_the_promise_and_leaves_what_was_there() {
    let network = listed();
    let (info, posterior) = (images(&network), posterior(&network, 1));
    let chosen = chosen(&posterior, Samples::All).unwrap();
    let options = Options { dense: true, ..Options::default() };
    let parts = parts(&info, &posterior, &chosen, &options).unwrap();
    let probe = Probe::new(&info).unwrap();
    let expected = Expected::new(&info, &posterior, &probe).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n.onnx");
    fs::write(&path, "before").unwrap();
    let good = onnx::to_bytes(&info, &parts, "").unwrap();
    let check = |bytes| check_graph(&parts, &probe, &expected, bytes);
    check(good.clone()).unwrap();
    // A weight, wherever it lies in the file.
    let weight = posterior.members[0].weights.iter().find(|w| **w != 0.0).unwrap().to_le_bytes();
    let at = good.windows(4).position(|bytes| bytes == weight).unwrap();
    let mut bad = good;
    bad[at + 3] ^= 0x80;
    let error = publish(&[(path.clone(), bad)], false, check).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert!(error.to_string().contains("of `probabilities` for made-up row 1 is"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "before");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let about = Architecture::new(&info, &parts, true).unwrap();
    let (good, _) = tensors::to_bytes(&parts, &[], &about).unwrap();
    let check = |bytes: Vec<u8>| check_tensors(Path::new("t"), &probe, &expected, &bytes, 0.0);
    assert_eq!(check(good.clone()).unwrap(), 0.0);
    let at = good.windows(4).position(|bytes| bytes == weight).unwrap();
    let mut bad = good.clone();
    bad[at + 2] ^= 1;
    assert!(check(bad).unwrap_err().to_string().contains("of `sample 0` for made-up row"));
    assert!(check(good[..good.len() / 2].to_vec()).is_err());
}

/// Another program exports to the same place between the check of this one and its renames.
#[test]
fn two_exports_at_once_leave_the_files_of_one_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let files = |text: &str| {
        vec![(place("a"), text.as_bytes().to_vec()), (place("b"), text.as_bytes().to_vec())]
    };
    let both = || ["a", "b"].map(|name| fs::read_to_string(place(name)).unwrap());
    let other = |new_only| move |_: Vec<u8>| publish(&files("theirs"), new_only, |_| Ok(0.0));
    assert_eq!(publish(&files("ours"), false, other(false)).unwrap(), 0.0);
    assert_eq!(both(), ["ours", "ours"]);
    // Who may not replace anything keeps what came in the meantime.
    for name in ["a", "b"] {
        fs::remove_file(place(name)).unwrap();
    }
    let error = publish(&files("ours"), true, other(true)).unwrap_err().to_string();
    assert!(error.contains("in the meantime, and is kept"), "{error}");
    assert_eq!(both(), ["theirs", "theirs"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn descriptions_that_fit_nothing_are_refused() {
    let network = listed();
    let (info, posterior) = (images(&network), posterior(&network, 1));
    let chosen = chosen(&posterior, Samples::Last).unwrap();
    let options = Options { dense: true, ..Options::default() };
    let parts = parts(&info, &posterior, &chosen, &options).unwrap();
    let about = Architecture::new(&info, &parts, true).unwrap();
    assert_eq!(about.network(0).unwrap().nodes().len(), network.nodes().len());
    assert!(about.network(1).is_err());
    let mut damaged = about.clone();
    damaged.networks[0].layers[3].inputs[0] = "nothing".into();
    assert!(damaged.network(0).unwrap_err().to_string().contains("damaged (conv2)"));
    let (bytes, _) = tensors::to_bytes(&parts, &[], &damaged).unwrap();
    assert!(read(Path::new("t"), &bytes).is_err());
}

#[test]
fn samples_are_chosen_by_word_or_number() {
    for (text, samples) in [
        ("all", Samples::All),
        ("ensemble", Samples::All),
        ("last", Samples::Last),
        ("7", Samples::Number(7)),
    ] {
        assert_eq!(text.parse(), Ok(samples));
    }
    assert!("-1".parse::<Samples>().unwrap_err().contains("counted from 0"));
    let network = mlp(2, &[], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
    let mut posterior = posterior(&network, 2);
    let error = chosen(&posterior, Samples::Number(2)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("no sample 2; the run has 2"), "{error}");
    posterior.members.clear();
    let error = chosen(&posterior, Samples::Last).unwrap_err().to_string();
    assert!(error.contains("no posterior samples yet"), "{error}");
}
