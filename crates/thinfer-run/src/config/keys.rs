//! Every key that a configuration can have, as data: checks, suggestions, the schema and the
//! reference page all come from these tables. What one method alone reads is declared beside it.

pub use thinfer_core::keys::{Key, Kind};
use thinfer_core::keys::{MOST, key};
use thinfer_core::methods;
use toml::Value;

const SHAPES: &[&str] = &["constant", "cyclical", "steps"];
/// What is written where nothing is to be limited and the default is a limit.
pub(super) const NO_LIMIT: &str = "none";
const TEMPERATURES: &[&str] = &["1/sqrt(N)", "1/N"];

macro_rules! schedule_keys {
    ($name:literal, $value:expr, $about:literal) => {
        [
            key(concat!("schedule.", $name, ".value"), $value, $about),
            key(
                concat!("schedule.", $name, ".shape"),
                Kind::Choice(SHAPES),
                "its course over the run",
            ),
            key(
                concat!("schedule.", $name, ".cycles"),
                Kind::Integer(1, 100_000),
                "cosine cycles, for shape = \"cyclical\"",
            ),
            key(
                concat!("schedule.", $name, ".factor"),
                Kind::NumberAbove(0.0, 10.0),
                "multiplier at each of `at_epochs`, for shape = \"steps\"",
            ),
            key(
                concat!("schedule.", $name, ".at_epochs"),
                Kind::Integers(0, MOST),
                "when to multiply, for shape = \"steps\"",
            ),
            key(
                concat!("schedule.", $name, ".warm_up_epochs"),
                Kind::Number(0.0, 1e9),
                "linear growth from 0 at the start",
            ),
        ]
    };
}

const STEP_SIZE: [Key; 6] =
    schedule_keys!("step_size", Kind::NumberAbove(0.0, 1e6), "the learning rate l = Δt²");
const TEMPERATURE: [Key; 6] = schedule_keys!(
    "temperature",
    Kind::NumberOr(TEMPERATURES),
    "k; the sampler targets exp(-L/k²), so 1/sqrt(N) is the posterior and 1/N a cold one"
);
const ETA: [Key; 6] = schedule_keys!("eta", Kind::Number(0.0, 1e6), "the rate η of the ρ update");
const WEIGHT_DECAY: [Key; 6] =
    schedule_keys!("weight_decay", Kind::Number(0.0, 1e6), "a factor on the weight decay");

const UP_TO_METHODS: &[Key] = &[
    key("format", Kind::Integer(0, MOST), "version of the file format; this program reads 1"),
    key(
        "preset",
        Kind::Choice(&["exact", "paper", "reference-code"]),
        "which reading of the paper the defaults follow",
    ),
    key("seed", Kind::Integer(0, i64::MAX), "everything random follows from it"),
    key("chains", Kind::Integer(1, 10_000), "independent chains"),
    key(
        "data.kind",
        Kind::Choice(&[
            "example1",
            "example2",
            "example3",
            "bai",
            "friedman",
            "table",
            "shapes",
            "mnist",
            "fashion-mnist",
            "cifar10",
            "cifar100",
            "images",
        ]),
        "a simulated example, your own table, a published image set, or your own images",
    ),
    key(
        "data.variant",
        Kind::Choice(&["sun", "text", "code"]),
        "which published formula of Example 1",
    ),
    key("data.columns", Kind::Integer(1, 100_000_000), "inputs of a simulated example"),
    key("data.train_rows", Kind::Integer(10, MOST), "simulated rows to learn from"),
    key("data.validation_rows", Kind::Integer(10, MOST), "simulated rows to choose with"),
    key("data.test_rows", Kind::Integer(10, MOST), "simulated rows to report on"),
    key("data.seed", Kind::Integer(0, i64::MAX), "seed of the simulation; `seed` when absent"),
    key(
        "data.path",
        Kind::Text,
        "the table (.csv, .tsv or .parquet), or the folder of the images; absent: data/KIND",
    ),
    key("data.target", Kind::Text, "the column to predict"),
    key(
        "data.task",
        Kind::Choice(&["auto", "regression", "counts", "classification"]),
        "what kind of target it is",
    ),
    key(
        "data.holdout",
        Kind::NumberAbove(0.0, 0.8),
        "share of a table's rows (at most 1/3) or of your own images that is kept for the test part",
    ),
    key(
        "data.image_size",
        Kind::Integer(8, 4096),
        "height and width that your own images are cropped and resized to",
    ),
    key(
        "data.crop_padding",
        Kind::Integer(0, 64),
        "border of zeros around an image before a random crop, for published image sets",
    ),
    key("data.flip", Kind::Switch, "whether half the training images are mirrored left to right"),
    key(
        "data.skip_at_most",
        Kind::Integer(0, MOST),
        "images that cannot be decoded and are passed over, before the run stops",
    ),
    key(
        "model.name",
        Kind::Text,
        "mlp, or an image network: convnet, lenet, resnet18-cifar, resnet34-cifar, resnet18, resnet34, resnet50, wrn-DEPTH-WIDTH",
    ),
    key(
        "model.label_smoothing",
        Kind::NumberBelow(0.0, 1.0),
        "share of each label that is spread over all classes",
    ),
    key(
        "model.hidden",
        Kind::Integers(1, 1_000_000),
        "units of each hidden layer; [] is a linear model",
    ),
    key("model.activation", Kind::Choice(&["relu", "tanh"]), "what hidden units compute"),
    key(
        "model.noise",
        Kind::Choice(&["known", "learned"]),
        "whether the noise of a regression is learned",
    ),
    key(
        "model.noise_sigma",
        Kind::NumberAbove(0.0, 1e9),
        "its standard deviation, or where learning starts",
    ),
    key(
        "model.likelihood",
        Kind::Choice(&["normal", "student-t", "poisson", "negative-binomial"]),
        "what a number is like around its prediction; absent: normal, of counts negative-binomial",
    ),
    key(
        "model.dof",
        Kind::NumberAbove(0.0, 1e6),
        "degrees of freedom of likelihood = \"student-t\"; 4: fewer forgive more",
    ),
    key(
        "method.kind",
        Kind::Choice(methods::NAMES),
        "Algorithm 3, 2, 1, or another method; `thinfer methods` lists them",
    ),
    key("method.beta1", Kind::NumberBelow(0.0, 1.0), "β₁, how much of the velocity stays"),
    key("method.beta2", Kind::NumberAbove(0.0, 1e3), "β₂, the factor on the gradient"),
    key("method.momentum", Kind::NumberBelow(0.0, 1.0), "momentum of SGD"),
    key("method.nesterov", Kind::Switch, "whether SGD looks ahead along its momentum"),
    key(
        "method.noise",
        Kind::Choice(&["exact", "paper"]),
        "noise of the sampler; `exact` has the temperature k²",
    ),
    key("method.rho", Kind::Choice(&["exact", "code", "printed"]), "which form of the ρ update"),
    key(
        "method.initial_momentum",
        Kind::Number(0.0, 1e3),
        "standard deviation of the first velocity",
    ),
    key("method.clip", Kind::NumberOr(&[NO_LIMIT]), "largest norm of the data gradient"),
];

const AFTER_METHODS: &[Key] = &[
    key(
        "prior.weight_decay",
        Kind::Number(0.0, 1e6),
        "wd = δ/N; of the slab where there is a spike",
    ),
    key("prior.spike_decay", Kind::NumberAbove(0.0, 1e6), "wd₀ = δ₀/N of the spike"),
    key(
        "prior.group",
        Kind::Choice(&["kernel", "input", "output", "weight"]),
        "which weights are in spike or slab together",
    ),
    key(
        "prior.soft_threshold",
        Kind::NumberAbove(0.0, 1e9),
        "λ₁ on a group's mean square; or give spike_probability",
    ),
    key(
        "prior.spike_probability",
        Kind::NumberAbove(0.0, 0.999_999_999),
        "P(spike), from which λ₁ is computed",
    ),
    key("prune.regrow", Kind::Switch, "false is DFP (never comes back), true is DPF (feedback)"),
    key(
        "prune.rule",
        Kind::Choice(&["mean-square", "range", "absolute-range"]),
        "what is compared with the hard threshold: a group's mean square, or how far apart the weights (or their sizes) of a channel lie",
    ),
    key(
        "prune.hard_threshold",
        Kind::NumberAbove(0.0, 1e9),
        "below it a group or channel is pruned (λ₂); absent: λ₁",
    ),
    key(
        "prune.target",
        Kind::NumberAbove(0.0, 0.9999),
        "share of all parameters to prune; the hard threshold is found during the run",
    ),
    key(
        "prune.rate",
        Kind::NumberAbove(0.0, 0.999),
        "share of live weights that move elsewhere at a time: at first for SM, always for DSR",
    ),
    key(
        "prune.dense_layers",
        Kind::Texts,
        "layers of which DPF-Lin, SM and DSR prune nothing; `*NAME` stands for all whose name ends so",
    ),
    key(
        "prune.keep_norm",
        Kind::Switch,
        "whether a pruned channel keeps its norm scale and shift, as in the authors' program",
    ),
    key(
        "prune.multiple",
        Kind::Integer(1, 1024),
        "channels of a layer are pruned so many at a time (range rules)",
    ),
    key(
        "prune.work_exponent",
        Kind::Number(0.0, 1.0),
        "how much more is pruned where weights cost more multiply-adds (range rules); 0: one threshold for all",
    ),
    key(
        "prune.shrink",
        Kind::Choice(&["where-it-pays", "always", "never"]),
        "when training goes on with a smaller network, where pruning is for good",
    ),
    key(
        "prune.warm_up_epochs",
        Kind::Integer(0, MOST),
        "EM and pruning run in the epochs after this one, counted from 0",
    ),
    key(
        "prune.freeze_after_epochs",
        Kind::Integer(0, MOST),
        "pruning ends here, so that later samples share one mask",
    ),
    key(
        "prune.freeze_after_cycles",
        Kind::Integer(1, 100_000),
        "pruning ends with this cycle; an alternative to prune.freeze_after_epochs",
    ),
    key(
        "prune.after_freeze",
        Kind::Choice(&["em", "slab"]),
        "whether the EM step goes on after pruning, or what is left is in the slab",
    ),
    key("prune.cadence", Kind::Choice(&["epoch", "step"]), "how often EM and pruning run"),
    key("train.epochs", Kind::Integer(1, MOST), "passes over the data"),
    key("train.batch", Kind::Integer(1, 100_000_000), "rows a step"),
    key("train.samples_per_cycle", Kind::Integer(1, 100_000), "snapshots at the end of each cycle"),
    key(
        "train.members",
        Kind::Choice(&["snapshots", "last"]),
        "networks that make up the posterior: all snapshots, or the last of each chain (a deep ensemble)",
    ),
    key(
        "train.record_every_epochs",
        Kind::Integer(1, MOST),
        "how often a line goes into the history; absent: about 500 lines",
    ),
    key(
        "train.evaluate_every_epochs",
        Kind::Integer(1, MOST),
        "how often the test images are scored during training",
    ),
    key(
        "train.precision",
        Kind::Choice(&["bf16", "tf32", "f32"]),
        "arithmetic on a GPU; the CPU always computes in f32",
    ),
    key(
        "train.trace",
        Kind::Texts,
        "channels whose weights are kept at every epoch's end, as LAYER:in:NUMBER or LAYER:out:NUMBER",
    ),
    key(
        "train.freeze_below",
        Kind::NumberAbove(0.0, 100.0),
        "a group that moved by less than this part of its length from one cycle's end to the next is trained no more",
    ),
    key(
        "train.freeze_layer_share",
        Kind::NumberAbove(0.0, 1.0),
        "a layer is frozen whole when at least this share of its kept weights is frozen; absent: 0.9",
    ),
    key(
        "train.checkpoint_seconds",
        Kind::NumberAbove(0.0, 1e9),
        "time between checkpoints; more where writing them would take over 2 % of the time",
    ),
    key(
        "train.checkpoint_steps",
        Kind::Integer(1, MOST),
        "steps between checkpoints, besides the time",
    ),
    key(
        "posterior.burn_in",
        Kind::NumberBelow(0.0, 1.0),
        "share of the cycles, or of the samples of one cycle, that is not averaged; absent: 0.5 for tables, 0 for images",
    ),
    key(
        "posterior.thin",
        Kind::Integer(1, 100_000),
        "of so many samples the last one is averaged; absent: one of every cycle for tables, all for images",
    ),
];

/// All keys.
pub fn keys() -> impl Iterator<Item = Key> {
    let own = methods::METHODS.iter().flat_map(|method| method.keys);
    let schedules = [STEP_SIZE, TEMPERATURE, ETA, WEIGHT_DECAY].into_iter().flatten();
    UP_TO_METHODS.iter().chain(own).chain(AFTER_METHODS).copied().chain(schedules)
}

/// The key called `name`.
pub fn find(name: &str) -> Option<Key> {
    keys().find(|k| k.name == name)
}

/// What the key of a table that says which one it is may be called.
const WHICH: [&str; 3] = ["kind", "name", "type"];

/// The table nearest to the one that `name` is in, where there is no table of that name.
pub fn nearest_table(name: &str) -> Option<&'static str> {
    let (table, _) = split(name);
    let tables = || keys().map(|k| split(k.name).0);
    if tables().any(|known| known == table) {
        return None;
    }
    let near = tables().map(|known| (strsim::jaro_winkler(table, known), known));
    let near = near.max_by(|a, b| a.0.total_cmp(&b.0));
    near.filter(|(score, _)| *score > 0.8).map(|(_, known)| known)
}

/// The valid name nearest to `name`, if any is near. Keys of the same table come first, unless
/// exactly one other table has a key with the same last part. A table that is not there stands for
/// the nearest one that is: `[dta]` for `[data]`.
pub fn nearest(name: &str) -> Option<&'static str> {
    if let Some(table) = nearest_table(name) {
        let (_, last) = split(name);
        let meant = format!("{table}.{last}");
        let inside = keys().filter(|k| split(k.name).0 == table);
        let near = || best(inside, |k| strsim::jaro_winkler(last, split(k.name).1), 0.8);
        return find(&meant).map(|key| key.name).or_else(near);
    }
    let (table, last) = split(name);
    let inside = || keys().filter(|k| split(k.name).0 == table);
    if WHICH.contains(&last)
        && let Some(which) = inside().find(|k| WHICH.contains(&split(k.name).1))
    {
        return Some(which.name);
    }
    let mut same = keys().filter(|k| split(k.name).1 == last);
    if let (Some(only), None) = (same.next(), same.next()) {
        return Some(only.name);
    }
    let likeness = |k: &Key| strsim::jaro_winkler(last, split(k.name).1);
    let whole = |k: &Key| strsim::jaro_winkler(name, k.name).max(0.95 * likeness(k));
    best(inside(), likeness, 0.8).or_else(|| best(keys(), whole, 0.75))
}

/// The table of a key and its name in it.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

/// The key with the highest score, if that is above a limit.
fn best(
    keys: impl Iterator<Item = Key>,
    score: impl Fn(&Key) -> f64,
    above: f64,
) -> Option<&'static str> {
    let best = keys.map(|k| (score(&k), k.name)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > above).map(|(_, name)| name)
}

/// Whether a key of this kind takes `value`.
pub fn accepts(kind: Kind, value: &Value) -> bool {
    let number = || match value {
        Value::Float(v) => Some(*v),
        Value::Integer(v) => Some(*v as f64),
        _ => None,
    };
    match kind {
        Kind::Integer(low, high) => value.as_integer().is_some_and(|v| (low..=high).contains(&v)),
        Kind::Number(low, high) => number().is_some_and(|v| v >= low && v <= high),
        Kind::NumberAbove(low, high) => number().is_some_and(|v| v > low && v <= high),
        Kind::NumberBelow(low, high) => number().is_some_and(|v| v >= low && v < high),
        Kind::Choice(list) => value.as_str().is_some_and(|v| list.contains(&v)),
        Kind::NumberOr(list) => {
            number().is_some_and(|v| v > 0.0 && v.is_finite())
                || value.as_str().is_some_and(|v| list.contains(&v))
        }
        Kind::Switch => value.is_bool(),
        Kind::Text => value.is_str(),
        Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_str)),
        Kind::Integers(low, high) => value.as_array().is_some_and(|list| {
            list.iter().all(|v| v.as_integer().is_some_and(|v| (low..=high).contains(&v)))
        }),
    }
}

/// The JSON schema of configuration files.
pub fn schema() -> serde_json::Value {
    fn object() -> serde_json::Value {
        serde_json::json!({"type": "object", "additionalProperties": false, "properties": {}})
    }
    let mut root = object();
    for key in keys() {
        let mut at = &mut root;
        let parts: Vec<&str> = key.name.split('.').collect();
        for part in &parts[..parts.len() - 1] {
            at = &mut at["properties"][*part];
            if at.is_null() {
                *at = object();
            }
        }
        let mut leaf = key.kind.schema();
        leaf["description"] = key.about.into();
        at["properties"][parts[parts.len() - 1]] = leaf;
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "thinfer configuration".into();
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = keys().map(|k| k.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_slip_finds_its_key() {
        assert_eq!(nearest("train.epoch"), Some("train.epochs"));
        assert_eq!(nearest("tran.epochs"), Some("train.epochs"));
        assert_eq!(nearest("hard_treshold"), Some("prune.hard_threshold"));
        assert_eq!(nearest("schedule.stepsize.value"), Some("schedule.step_size.value"));
        assert_eq!(nearest("qqqq"), None);
        // A slip in the name of the table, which is alike in no other way.
        for (slip, key) in [
            ("dta.kind", "data.kind"),
            ("Data.path", "data.path"),
            ("modle.hidden", "model.hidden"),
            ("metod.kind", "method.kind"),
            ("schedule.step_sizes.value", "schedule.step_size.value"),
        ] {
            assert_eq!(nearest_table(slip), Some(key.rsplit_once('.').unwrap().0), "{slip}");
            assert_eq!(nearest(slip), Some(key), "{slip}");
        }
        assert_eq!((nearest("dta.zzzz"), nearest_table("dta.zzzz")), (None, Some("data")));
        assert_eq!((nearest_table("data.kind"), nearest_table("seed")), (None, None));
    }

    #[test]
    fn keys_of_the_same_table_come_first() {
        assert_eq!(nearest("model.kind"), Some("model.name"));
        assert_eq!(nearest("model.type"), Some("model.name"));
        assert_eq!(nearest("method.name"), Some("method.kind"));
        assert_eq!(nearest("data.type"), Some("data.kind"));
        assert_eq!(nearest("schedule.eta.val"), Some("schedule.eta.value"));
        assert_eq!(nearest("schedule.temperature.cycle"), Some("schedule.temperature.cycles"));
        // One other table has it by this very name.
        assert_eq!(nearest("train.regrow"), Some("prune.regrow"));
        assert_eq!(nearest("method.noise_sigma"), Some("model.noise_sigma"));
    }

    /// `docs/config-schema.json` is this schema. To renew it:
    /// `THINFER_UPDATE=1 cargo test -p thinfer-run the_committed_schema_is_current`.
    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config-schema.json");
        let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("THINFER_UPDATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text);
    }
}
