//! Configurations that are read, refused and written again.

mod pinned;
mod reference;

use thinfer_core::posterior::Thin;

use super::*;

fn problem(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|s| (*s).to_owned()).collect();
    let error = Config::parse(text, &overrides).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn nothing_at_all_is_example_1_with_defaults() {
    let config = Config::parse("", &[]).unwrap();
    assert_eq!(config.data.kind.name(), "example1");
    assert_eq!(config.preset, Preset::Exact);
    assert_eq!(config.method.kind.name(), "em-mcmc");
}

#[test]
fn unknown_keys_get_the_nearest_name() {
    let text = problem("[train]\nepoch = 3", &[]);
    assert_eq!(text, "`train.epoch`: is not a key; did you mean `train.epochs`?");
    assert!(problem("", &["sed=1"]).contains("did you mean `seed`?"));
}

#[test]
fn wrong_types_and_ranges_say_what_is_allowed() {
    assert_eq!(
        problem("[train]\nepochs = \"many\"", &[]),
        "`train.epochs`: is \"many\", but must be a whole number from 1 on"
    );
    assert_eq!(
        problem("", &["method.beta1=1.0"]),
        "`method.beta1`: is 1.0, but must be a number from 0 on and below 1"
    );
    let text = problem("", &["preset=papper"]);
    assert!(text.contains("did you mean \"paper\"?"), "{text}");
    assert!(problem("", &["seed=-1"]).contains("whole number from 0 on"));
    assert!(problem("", &["model.hidden=[5, 0]"]).contains("list of whole numbers from 1"));
    assert!(problem("", &["train.epochs"]).contains("key=value"));
    assert!(problem("", &["=5"]).starts_with("`--set =5`: is not of the form key=value"));
    assert!(problem("", &[" "]).starts_with("`--set`: is not of the form key=value"));
    for text in ["data = 3", "[[data]]\nkind = \"table\""] {
        let told = problem(text, &[]);
        assert!(
            told.starts_with("`data`: is a table of settings") && told.contains("`data."),
            "{told}"
        );
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    assert!(problem("", &["data.kind=table"]).contains("data.path"));
    let table = ["data.kind=table", "data.path=a.csv", "data.target=y", "data.holdout=0.5"];
    let text = problem("", &table);
    assert!(text.starts_with("`data.holdout`: is 0.5, but") && text.contains("1/3"), "{text}");
    let images = ["data.kind=images", "data.path=a", "data.holdout=0.5"].map(str::to_owned);
    assert_eq!(Config::parse("", &images).unwrap().data.holdout, 0.5);
    assert!(problem("", &["prior.spike_decay=1e-9"]).contains("must be larger"));
    let both = ["prior.soft_threshold=0.1", "prior.spike_probability=0.5"];
    assert!(problem("", &both).contains("give one of them"));
    let text = problem("", &["preset=reference-code", "prune.regrow=true"]);
    assert!(text.contains("cannot regrow"), "{text}");
    let both = ["prune.target=0.9", "prune.hard_threshold=0.1"];
    assert!(problem("", &both).contains("finds by itself"));
    let both = ["prune.freeze_after_epochs=9", "prune.freeze_after_cycles=1"];
    assert!(problem("", &both).contains("give one of them"));
    assert!(problem("", &["prune.rule=range"]).contains("image networks"));
    for key in ["prune.multiple=16", "prune.work_exponent=0.1"] {
        assert!(problem("", &[key]).contains("prunes groups of weights"));
    }
}

#[test]
fn draws_of_assignments_refuse_what_would_bias_them() {
    for (more, says) in [
        (&["prune.hard_threshold=0.1"][..], "prunes nothing"),
        (&["prune.target=0.9"], "prunes nothing"),
        (&["prune.regrow=true"], "prunes nothing"),
        (&["prune.freeze_after_epochs=9"], "prunes nothing"),
        (&["prior.soft_threshold=0.1"], "give prior.spike_probability instead"),
        (&["prior.weight_decay=0"], "give a positive one, or prior.sd"),
        (&["prior.spike_decay=1e-9"], "must be larger than prior.weight_decay"),
        (&["prior.sd=1.0", "prior.spike_sd=2.0"], "must be smaller than prior.sd = 1"),
        (&["prior.spike_decay=4.0", "prior.spike_sd=2.0"], "give one of them"),
        (&["preset=paper"], "for the temperature of the posterior"),
        (&["train.freeze_below=0.1"], "samples all of them"),
    ] {
        let text = problem("prior.assignment = \"draw\"", more);
        assert!(text.contains(says), "{more:?}: {text}");
    }
    let text = problem("", &["prior.learn_probability=true"]);
    assert!(text.contains("give prior.assignment = \"draw\" too"), "{text}");
    // No threshold of the presets stays, and the file of a run is the run again.
    for kind in ["example1", "shapes"] {
        let given = ["prior.assignment=draw", "prior.spike_sd=0.01"].map(str::to_owned);
        let config = Config::parse(&format!("data.kind = \"{kind}\""), &given).unwrap();
        assert_eq!((config.prior.soft_threshold, config.prune.hard_threshold), (None, None));
        assert_eq!((config.method.beta1, config.schedule.eta.schedule(9).value), (0.9, 0.0));
        assert_eq!(Config::parse(&config.to_toml().unwrap(), &[]).unwrap(), config);
        assert_eq!(config.prior.for_rows(100).spike_decay, 100.0);
    }
}

#[test]
fn another_format_is_refused() {
    let text = problem("format = 2", &[]);
    assert!(text.contains("is 2, but this thinfer") && text.contains("format 1"), "{text}");
}

#[test]
fn broken_toml_says_where() {
    assert!(problem("seed = = 1", &[]).contains("not valid TOML"));
}

#[test]
fn a_resolved_configuration_is_its_own_file() {
    for preset in ["exact", "paper", "reference-code"] {
        let config = Config::parse(&format!("preset = \"{preset}\""), &[]).unwrap();
        let again = Config::parse(&config.to_toml().unwrap(), &[]).unwrap();
        assert_eq!(config, again);
    }
}

#[test]
fn a_target_replaces_the_default_threshold() {
    let config = Config::parse("data.kind = \"cifar10\"\nprune.target = 0.9", &[]).unwrap();
    assert_eq!((config.prune.target, config.prune.hard_threshold), (Some(0.9), None));
    assert_eq!(Config::parse(&config.to_toml().unwrap(), &[]).unwrap(), config);
}

#[test]
fn a_method_brings_its_own_defaults() {
    for kind in ["csgld", "csghmc", "dpf-lin", "sm", "dsr"] {
        for data in ["example1", "cifar10"] {
            let text = format!("data.kind = \"{data}\"\nmethod.kind = \"{kind}\"");
            let config = Config::parse(&text, &[]).unwrap();
            assert_eq!(config.method.kind.name(), kind);
            assert_eq!(Config::parse(&config.to_toml().unwrap(), &[]).unwrap(), config);
            let sparse = config.prune.target == Some(0.9);
            assert_eq!((sparse, config.method.nesterov), (config.method.kind.is_sparse(), sparse));
            assert!(!sparse || config.prune.hard_threshold.is_none());
        }
    }
    let config = Config::parse("data.kind = \"cifar10\"\nmethod.kind = \"dsr\"", &[]).unwrap();
    assert_eq!((config.train.batch, config.schedule.step_size.factor), (100, 0.2));
    let given = Config::parse("method.kind = \"sm\"\nprune.target = 0.5", &[]).unwrap();
    assert_eq!(given.prune.target, Some(0.5));
}

#[test]
fn the_limit_on_the_gradient_depends_on_data_method_and_preset() {
    let clip = |text: &str| Config::parse(text, &[]).unwrap().method.clip;
    assert_eq!(clip(""), Some(10.0));
    for kind in ["em-mcmc", "sghmc"] {
        let images = format!("data.kind = \"cifar10\"\nmethod.kind = \"{kind}\"");
        assert_eq!(clip(&images), Some(3.0), "{kind}");
        assert_eq!(clip(&format!("{images}\nmethod.clip = 5.0")), Some(5.0), "{kind}");
        for preset in ["paper", "reference-code"] {
            assert_eq!(clip(&format!("preset = \"{preset}\"\n{images}")), None, "{kind}");
        }
    }
    assert_eq!(clip("data.kind = \"cifar10\"\nmethod.kind = \"csgld\""), None);
    // Where there is none, that can be said, and what is kept says so.
    for data in ["cifar10", "example1"] {
        let without = format!("data.kind = \"{data}\"\nmethod.clip = \"none\"");
        let without = Config::parse(&without, &[]).unwrap();
        assert_eq!(without.method.clip, None, "{data}");
        assert_eq!(Config::parse(&without.to_toml().unwrap(), &[]).unwrap(), without);
        let limited = Config::parse(&format!("data.kind = \"{data}\""), &[]).unwrap();
        let found = limited.differences(&without).unwrap();
        assert_eq!((&found[0].key[..], &found[0].there[..]), ("method.clip", "\"none\""));
    }
}

#[test]
fn a_rank_1_network_has_its_own_keys_and_needs_images() {
    let rank1 = |more: &str| Config::parse(&format!("method.kind = \"rank1\"\n{more}"), &[]);
    let normal = rank1("data.kind = \"cifar10\"").unwrap();
    assert_eq!(
        (normal.method.own.whole("members"), normal.method.own.whole("draws")),
        (Some(4), Some(1))
    );
    assert_eq!((normal.train.epochs, normal.prior.weight_decay), (250, 2e-4));
    let cauchy = rank1("data.kind = \"cifar10\"\nmethod.posterior = \"cauchy\"").unwrap();
    assert_eq!(cauchy.method.own.whole("draws"), Some(4));
    assert_eq!(Config::parse(&cauchy.to_toml().unwrap(), &[]).unwrap(), cauchy);
    let given = "data.kind = \"cifar10\"\nmethod.posterior = \"cauchy\"\nmethod.draws = 2";
    assert_eq!(rank1(given).unwrap().method.own.whole("draws"), Some(2));
    assert!(rank1("").unwrap_err().to_string().contains("a table needs another one"));
    let pruned = rank1("data.kind = \"cifar10\"\nprune.target = 0.9").unwrap_err().to_string();
    assert!(pruned.contains("prunes nothing"), "{pruned}");
    // Other methods know nothing of them, so that their runs keep their fingerprints.
    assert_eq!(Config::parse("", &[]).unwrap().method.own.whole("members"), None);
}

#[test]
fn keys_of_single_methods_are_written_as_numbers_of_their_kind_and_shown_where_absent() {
    let text = "data.kind = \"cifar10\"\nmethod.kind = \"rank1\"\nmethod.kl_epochs = 7";
    let config = Config::parse(text, &[]).unwrap();
    assert_eq!(config.method.own.number("kl_epochs"), Some(7.0));
    let written = config.to_toml().unwrap();
    assert!(
        written.contains("draws = 1\nposterior = \"gaussian\"\nprior_sd = 0.1\nkl_epochs = 7.0\n"),
        "{written}"
    );
    let json = serde_json::to_string(&config).unwrap();
    assert!(json.contains("\"alpha\":null,\"sampling_epochs\":null,\"members\":4,"), "{json}");
    assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
}

#[test]
fn checkpoint_intervals_do_not_change_the_fingerprint() {
    let print = |set: &str| Config::parse("", &[set.to_owned()]).unwrap().fingerprint().unwrap();
    assert_eq!(print("train.checkpoint_seconds=5"), print("train.checkpoint_steps=3"));
    assert_ne!(print("seed=1"), print("seed=2"));
}

#[test]
fn a_choice_that_came_later_is_part_of_the_settings_only_where_it_is_made() {
    let config = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        Config::parse("", &set).unwrap()
    };
    let (before, after) = (config(&[]), config(&["prune.after_freeze=slab"]));
    assert!(!before.to_toml().unwrap().contains("after_freeze"));
    assert!(after.to_toml().unwrap().contains("after_freeze = \"slab\""));
    assert_eq!(before, config(&["prune.after_freeze=em"]));
    assert_ne!(before.fingerprint().unwrap(), after.fingerprint().unwrap());
}

#[test]
fn at_most_so_many_samples_are_averaged() {
    let rule = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        let config = Config::parse("train.samples_per_cycle = 4", &set).unwrap();
        (config.sample_rule(), config.cycles(), config.sample_epochs())
    };
    // 6 cycles of 4 samples, of which the first half is burn-in.
    let (_, cycles, epochs) = rule(&[]);
    assert_eq!((cycles.len(), epochs.len()), (6, 24));
    let thinned = |every: Thin| SampleRule::new(&cycles, &epochs, 0.5, every);
    for (set, want) in [
        (&["posterior.at_most=3"][..], Thin::OneACycle),
        (&["posterior.at_most=2"], Thin::Every(8)),
        (&["posterior.at_most=1"], Thin::Every(12)),
        (&["posterior.thin=1", "posterior.at_most=12"], Thin::Every(1)),
        (&["posterior.thin=1", "posterior.at_most=5"], Thin::Every(3)),
        (&["posterior.thin=2", "posterior.at_most=5"], Thin::Every(4)),
    ] {
        assert_eq!(rule(set).0, thinned(want), "{set:?}");
    }
    // One cycle, whose samples are halved.
    let one = ["schedule.step_size.shape=constant", "posterior.at_most=1"];
    let (found, cycles, epochs) = rule(&one);
    assert_eq!((cycles.len(), epochs.len()), (1, 4));
    assert_eq!(found, SampleRule::new(&cycles, &epochs, 0.5, Thin::Every(2)));
}

fn read(name: &str, text: &str, overrides: &[&str]) -> Result<Config> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let overrides: Vec<String> = overrides.iter().map(|s| (*s).to_owned()).collect();
    Config::read(&path, &overrides)
}

#[test]
fn a_file_must_say_what_to_train_on() {
    let refused = |text: &str| {
        let error = read("a.toml", text, &[]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    for text in ["", "[train]\nepochs = 3", "[data]\nseed = 3"] {
        let told = refused(text);
        assert!(told.starts_with("`data.kind`: is missing, so it is not known what to"), "{told}");
        assert!(told.contains("kind = \"table\"") && told.contains("\"example1\""), "{told}");
    }
    let told = refused("[data]\npath = \"a.csv\"\ntarget = \"y\"");
    assert!(told.contains("not known what data.path is; give kind = \"table\""), "{told}");
    // What is wrong with the keys comes first.
    assert!(refused("[dta]\nkind = \"table\"").contains("did you mean `data.kind`?"));
    assert!(read("a.toml", "", &["data.kind=example2"]).is_ok());
    assert!(read("a.toml", "[data]\nkind = \"shapes\"", &[]).is_ok());
}

#[test]
fn a_table_in_the_place_of_settings_gets_advice() {
    for name in ["houses.csv", "houses.TSV", "houses.parquet", "houses.pq"] {
        let error = read(name, "price,rooms\n1,2\n", &[]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let told = error.to_string();
        assert!(!told.contains("TOML parse error"), "{told}");
        for part in ["is a table", "thinfer init ", "thinfer train ", "thinfer select "] {
            assert!(told.contains(part), "{told}");
        }
    }
}

#[test]
fn a_table_of_settings_with_a_slip_in_its_name_is_found() {
    let told = problem("[dta]\nkind = \"table\"", &[]);
    assert_eq!(told, "`dta.kind`: is not a key; did you mean `data.kind`?");
    let told = problem("[dta]\nzzzz = 1", &[]);
    assert_eq!(told, "`dta.zzzz`: is not a key; did you mean the table `[data]`?");
}

#[test]
fn a_prior_can_be_a_standard_deviation_that_does_not_depend_on_the_rows() {
    let config = Config::parse("", &["prior.sd=2.0".to_owned()]).unwrap();
    assert_eq!(config.prior.for_rows(50).weight_decay, 1.0 / (4.0 * 50.0));
    let plain = Config::parse("", &[]).unwrap();
    assert_eq!(plain.prior.for_rows(50), plain.prior);
    let both = ["prior.sd=2.0", "prior.weight_decay=0.1"].map(str::to_owned);
    let text = Config::parse("", &both).unwrap_err().to_string();
    assert!(text.contains("prior.sd") && text.contains("give one of them"), "{text}");
}
