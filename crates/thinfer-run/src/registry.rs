//! Every method in a line, with the keys that it reads: what `thinfer methods` prints.

use crate::config::MethodKind;
use crate::config::keys::{self, Key};

/// One method.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Which.
    pub kind: MethodKind,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its page.
    pub page: &'static str,
    /// The keys that it reads besides those of [`COMMON`]. One that others begin with stands for all
    /// of them.
    own: &'static [&'static str],
}

/// Keys that every method reads.
pub const COMMON: &[&str] = &["prior.weight_decay", "schedule.step_size", "schedule.weight_decay"];

const SGD: &[&str] = &["method.momentum", "method.nesterov"];
const SPARSE: &[&str] = &[
    "method.momentum",
    "method.nesterov",
    "prune.target",
    "prune.rate",
    "prune.dense_layers",
    "prune.freeze_after_epochs",
    "prune.freeze_after_cycles",
];

/// All methods: those of the paper, then those that it compares with.
pub const METHODS: &[Entry] = &[
    Entry {
        kind: MethodKind::EmMcmc,
        about: "Algorithm 3: samples under a spike-and-slab prior and prunes groups (DFP, DPF)",
        page: "docs/em-mcmc.md",
        own: &[
            "method.beta1",
            "method.beta2",
            "method.noise",
            "method.rho",
            "method.initial_momentum",
            "method.clip",
            "prior.spike_decay",
            "prior.group",
            "prior.soft_threshold",
            "prior.spike_probability",
            "prune.regrow",
            "prune.rule",
            "prune.hard_threshold",
            "prune.target",
            "prune.keep_norm",
            "prune.multiple",
            "prune.work_exponent",
            "prune.warm_up_epochs",
            "prune.freeze_after_epochs",
            "prune.freeze_after_cycles",
            "prune.after_freeze",
            "prune.cadence",
            "train.freeze_below",
            "train.freeze_layer_share",
            "schedule.temperature",
            "schedule.eta",
        ],
    },
    Entry {
        kind: MethodKind::Sghmc,
        about: "Algorithm 2: SGHMC with a learned preconditioner (CV-Adam in the paper's tables)",
        page: "docs/sghmc.md",
        own: &[
            "method.beta1",
            "method.beta2",
            "method.noise",
            "method.rho",
            "method.initial_momentum",
            "method.clip",
            "train.freeze_below",
            "train.freeze_layer_share",
            "schedule.temperature",
            "schedule.eta",
        ],
    },
    Entry {
        kind: MethodKind::CvAdam,
        about: "Algorithm 1: constrained variational Adam, a normal distribution for each weight",
        page: "docs/cv-adam.md",
        own: &[
            "method.beta1",
            "method.beta2",
            "method.alpha",
            "schedule.temperature",
            "schedule.eta",
        ],
    },
    Entry {
        kind: MethodKind::Sgd,
        about: "SGD with momentum: one network; with several chains a deep ensemble",
        page: "docs/sgd.md",
        own: SGD,
    },
    Entry {
        kind: MethodKind::Csgld,
        about: "cSGLD: Langevin dynamics with a cyclical step size",
        page: "docs/csgmcmc.md",
        own: &["method.sampling_epochs", "method.clip", "schedule.temperature"],
    },
    Entry {
        kind: MethodKind::Csghmc,
        about: "cSGHMC: the same with momentum",
        page: "docs/csgmcmc.md",
        own: &[
            "method.beta1",
            "method.noise",
            "method.sampling_epochs",
            "method.clip",
            "schedule.temperature",
        ],
    },
    Entry {
        kind: MethodKind::DpfLin,
        about: "DPF of Lin et al.: SGD with feedback, pruned by global magnitude to a target",
        page: "docs/dpf-lin.md",
        own: &[
            "method.momentum",
            "method.nesterov",
            "prune.target",
            "prune.dense_layers",
            "prune.freeze_after_epochs",
            "prune.freeze_after_cycles",
        ],
    },
    Entry {
        kind: MethodKind::Sm,
        about: "SM, sparse momentum: sparse from the start, weights grow where momentum is large",
        page: "docs/sm.md",
        own: SPARSE,
    },
    Entry {
        kind: MethodKind::Dsr,
        about: "DSR: sparse from the start, weights grow at random places",
        page: "docs/dsr.md",
        own: SPARSE,
    },
    Entry {
        kind: MethodKind::Rank1,
        about: "Rank-1 BNN: members share weights and have random channel scales of their own",
        page: "docs/rank1.md",
        own: &[
            "method.momentum",
            "method.members",
            "method.draws",
            "method.posterior",
            "method.prior_sd",
            "method.kl_epochs",
            "method.random_sign",
            "method.first_scale",
        ],
    },
];

impl Entry {
    /// The keys that the method reads, those that all methods share last.
    pub fn keys(&self) -> Vec<Key> {
        let under = |key: &Key, name: &str| {
            let rest = key.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.key_names().flat_map(|name| keys::keys().filter(move |key| under(key, name))).collect()
    }

    /// The same in short: one name for all keys of a schedule.
    pub fn key_names(&self) -> impl Iterator<Item = &'static str> {
        self.own.iter().chain(COMMON).copied()
    }
}

/// The method called `name` in a configuration.
pub fn find(name: &str) -> Option<Entry> {
    METHODS.iter().copied().find(|entry| entry.kind.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_listed_with_keys_and_a_page_that_exist() {
        let Some(keys::Kind::Choice(kinds)) = keys::find("method.kind").map(|key| key.kind) else {
            panic!("method.kind is a choice");
        };
        let listed: Vec<&str> = METHODS.iter().map(|entry| entry.kind.name()).collect();
        assert_eq!(listed, kinds);
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        for entry in METHODS {
            let page = std::fs::read_to_string(format!("{root}{}", entry.page)).unwrap();
            let kind = format!("method.kind = \"{}\"", entry.kind.name());
            assert!(page.contains(&kind), "{} does not say {kind}", entry.page);
            for name in entry.key_names() {
                let (before, after) = (format!("{name}."), keys::find(name));
                let there =
                    after.is_some() || keys::keys().any(|key| key.name.starts_with(&before));
                assert!(there, "{name} is no key");
            }
            assert_eq!(entry.keys().len(), {
                let schedules = entry.key_names().filter(|n| n.starts_with("schedule")).count();
                entry.key_names().count() + 5 * schedules
            });
        }
    }
}
