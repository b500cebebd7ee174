//! Scores against values worked out by hand.

use thinfer_engine::noise::{Key, Stream};

use super::*;

fn close(got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-12 * want.abs().max(1.0), "{got} is not {want}");
}

const NOTHING: [f32; 0] = [];

#[test]
fn squared_errors_by_hand() {
    close(mse(&[1.0, 2.0, 4.0], &[1.0f32, 0.0, 5.0]).unwrap(), 5.0 / 3.0);
    assert_eq!(mse(&[], &NOTHING), None);
}

#[test]
fn absolute_errors_and_explained_variance_by_hand() {
    let (f, y) = ([1.0, 2.0, 4.0], [1.0f32, 0.0, 5.0]);
    close(mae(&f, &y).unwrap(), 1.0);
    // ȳ = 2, so 1 − 5 / (1 + 4 + 9).
    close(r2(&f, &y).unwrap(), 1.0 - 5.0 / 14.0);
    assert_eq!((mae(&[], &NOTHING), r2(&[], &NOTHING)), (None, None));
    assert_eq!(r2(&[1.0, 2.0], &[3.0f32, 3.0]), None);
}

#[test]
#[should_panic(expected = "one prediction a row")]
fn lengths_must_fit() {
    mse(&[1.0], &[1.0f32, 2.0]);
}

/// Two members, two rows; from mpmath 1.3:
/// `-mean(log((npdf(y, f1, 1) + npdf(y, f2, 0.5)) / 2))`.
#[test]
fn mixture_density_against_mpmath() {
    let means = [vec![0.0, 1.0], vec![2.0, -1.0]];
    close(
        gaussian_mixture_nll(&means, &[1.0, 0.5], &[0.5f32, -2.0]).unwrap(),
        2.295_468_525_018_034,
    );
    // One member is the plain Gaussian, however far away.
    let far = gaussian_mixture_nll(&[vec![0.0]], &[1.0], &[1e4f32]).unwrap();
    close(far, 0.5e8 + 0.5 * (2.0 * PI).ln());
    // Equal members count as one.
    let three = gaussian_mixture_nll(&vec![vec![0.0]; 3], &[1.0; 3], &[1e4f32]).unwrap();
    close(three, far);
    assert_eq!(gaussian_mixture_nll(&[], &[], &[1.0f32]), None);
    assert_eq!(gaussian_mixture_nll(&[vec![]], &[1.0], &NOTHING), None);
}

#[test]
fn coverage_counts_the_ends() {
    let (lower, upper) = ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]);
    close(interval_coverage(&lower, &upper, &[0.0f32, 1.0, 0.5, 1.5]).unwrap(), 0.75);
    assert_eq!(interval_coverage(&[], &[], &NOTHING), None);
}

/// From mpmath 1.3: `findroot(lambda x: mean(ncdf((x - m) / s)) - q, start)`.
#[test]
fn quantiles_against_mpmath() {
    let (means, sigmas) = ([-1.0, 0.0, 3.0], [0.5, 1.0, 2.0]);
    for (q, want) in [
        (0.025, -1.886_524_611_257_226),
        (0.5, -0.075_059_751_873_119_57),
        (0.9, 4.048_948_998_510_319),
        (0.999, 8.495_562_770_889_988),
    ] {
        let got = mixture_quantile(&means, &sigmas, q).unwrap();
        assert!((got - want).abs() < 1e-10, "{q}: {got} is not {want}");
    }
    for (q, want) in [
        (0.975, 1.959_963_984_540_054),
        (0.05, -1.644_853_626_951_473),
        (1e-10, -6.361_340_902_404_056),
    ] {
        let got = mixture_quantile(&[10.0], &[2.0], q).unwrap();
        assert!((got - 10.0 - 2.0 * want).abs() < 1e-9, "{q}: {got}");
    }
}

/// Newton's method alone leaves for infinity here: the start has no density.
#[test]
fn quantiles_of_members_far_apart() {
    let (means, sigmas) = ([-1e6, 1e6], [1.0, 1e-3]);
    let low = mixture_quantile(&means, &sigmas, 0.25).unwrap();
    assert!((low + 1e6).abs() < 1e-6);
    let high = mixture_quantile(&means, &sigmas, 0.75).unwrap();
    assert!((high - 1e6).abs() < 1e-6);
    let between = mixture_quantile(&means, &sigmas, 0.5).unwrap();
    assert!((-1e6..=1e6).contains(&between));
}

#[test]
fn quantiles_that_do_not_exist() {
    assert_eq!(mixture_quantile(&[], &[], 0.5), None);
    for (sigma, q) in [(0.0, 0.5), (f64::NAN, 0.5), (1.0, 0.0), (1.0, 1.0), (1.0, f64::NAN)] {
        assert_eq!(mixture_quantile(&[0.0], &[sigma], q), None);
    }
}

/// Rows (0, 2) and (1, 1, ...): sd √2 and 0.
#[test]
fn disagreement_by_hand() {
    close(disagreement(&[vec![0.0, 1.0], vec![2.0, 1.0]]).unwrap(), SQRT_2 / 2.0);
    assert_eq!(disagreement(&[vec![3.0, 4.0]]), Some(0.0));
    assert_eq!(disagreement::<Vec<f64>>(&[]), None);
    assert_eq!(disagreement(&[vec![], vec![]]), None);
}

/// Three rows, three classes; the second is wrong, the third a tie that goes to class 0.
const PROBABILITIES: [f64; 9] = [0.7, 0.2, 0.1, 0.1, 0.3, 0.6, 0.4, 0.4, 0.2];
const TRUTH: [f32; 3] = [0.0, 1.0, 0.0];

#[test]
fn classes_by_hand() {
    close(accuracy_from_probabilities(&PROBABILITIES, 3, &TRUTH).unwrap(), 2.0 / 3.0);
    close(
        negative_log_likelihood_classes(&PROBABILITIES, 3, &TRUTH).unwrap(),
        -(0.7f64 * 0.3 * 0.4).ln() / 3.0,
    );
    // 0.09 + 0.04 + 0.01; 0.01 + 0.49 + 0.36; 0.36 + 0.16 + 0.04
    close(brier(&PROBABILITIES, 3, &TRUTH).unwrap(), (0.14 + 0.86 + 0.56) / 3.0);
    assert_eq!(accuracy_from_probabilities(&[], 3, &NOTHING), None);
    assert_eq!(negative_log_likelihood_classes(&[], 3, &NOTHING), None);
    assert_eq!(brier(&[], 3, &NOTHING), None);
    let impossible = negative_log_likelihood_classes(&[1.0, 0.0], 2, &[1.0f32]).unwrap();
    assert!((impossible - 708.396).abs() < 1e-3);
}

#[test]
#[should_panic(expected = "class 3 of 3")]
fn classes_must_exist() {
    brier(&PROBABILITIES, 3, &[0.0f32, 3.0, 0.0]);
}

/// Five bins. Top probabilities 0.7 (right), 0.6 (wrong), 0.4 (right): the second and the third
/// are the upper ends of their bins. ECE = (|1 − 0.7| + |0 − 0.6| + |1 − 0.4|) / 3.
#[test]
fn calibration_by_hand() {
    let found = ece(&PROBABILITIES, 3, &TRUTH, 5).unwrap();
    close(found.ece, 0.5);
    let counts: Vec<usize> = found.bins.iter().map(|b| b.count).collect();
    assert_eq!(counts, [0, 1, 1, 1, 0]);
    let bin = found.bins[3];
    close(bin.lower, 0.6);
    close(bin.upper, 0.8);
    close(bin.confidence, 0.7);
    close(bin.accuracy, 1.0);
    assert_eq!(found.bins[0].accuracy, 0.0);

    // In one bin the errors cancel: |2/3 − 1.7/3|.
    close(ece(&PROBABILITIES, 3, &TRUTH, 1).unwrap().ece, 0.1);
    // A sure and right classifier is calibrated, and 1 belongs to the last bin.
    let sure = ece(&[1.0, 0.0, 0.0, 1.0], 2, &[0.0f32, 1.0], ECE_BINS).unwrap();
    assert_eq!((sure.ece, sure.bins.len(), sure.bins[14].count), (0.0, 15, 2));
    assert_eq!(ece(&[], 3, &NOTHING, 15), None);
    assert_eq!(ece(&PROBABILITIES, 3, &TRUTH, 0), None);
}

#[test]
fn selections_by_hand() {
    let found = Selection::compare(&[4, 0, 7, 7], &[0, 1, 2, 4, 5]);
    let want =
        Selection { selected: 3, false_discoveries: 1, missed: 3, fdr: 1.0 / 3.0, fndr: 0.6 };
    assert_eq!(found, want);
    let nothing = Selection::compare(&[], &[1, 2]);
    assert_eq!((nothing.fdr, nothing.fndr, nothing.missed), (0.0, 1.0, 2));
    let no_truth = Selection::compare(&[1, 2], &[]);
    assert_eq!((no_truth.fdr, no_truth.fndr), (1.0, 0.0));
}

#[test]
fn sparsity_and_density_count() {
    let values = [0.0, 1.0, -0.0, 2.0, 0.0];
    assert_eq!(Sparsity::of(&values).value(), 0.6);
    assert_eq!(Density::of(&values).value(), 0.4);
    assert_eq!(Sparsity::of(&[]).value(), 0.0);
    assert_eq!(Density::of(&[]).value(), 0.0);
    assert_eq!(serde_json::to_string(&Sparsity::of_counts(1, 4)).unwrap(), "0.25");
    assert_eq!(serde_json::to_string(&Density::of_counts(3, 4)).unwrap(), "0.75");
}

#[test]
fn spreads_by_hand() {
    let found = Spread::of(&[2.0, 4.0, 9.0]);
    assert_eq!((found.mean, found.n, found.min, found.max), (5.0, 3, 2.0, 9.0));
    close(found.sd, 13.0f64.sqrt());
    let one = Spread { mean: 3.0, sd: 0.0, n: 1, min: 3.0, max: 3.0 };
    assert_eq!(Spread::of(&[3.0]), one);
    assert_eq!(Spread::of(&[0.1; 3]).sd, 0.0);
    assert_eq!(Spread::of(&[]), Spread::default());
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(text, r#"{"mean":3.0,"sd":0.0,"n":1,"min":3.0,"max":3.0}"#);
}

/// From ArviZ 0.23.4, `rhat(method="rank")`, `ess(method="bulk")` and `ess(method="tail")`; of the
/// single chain R̂ by `_rhat(_z_scale(_split_chains(d)))` and the same of `abs(d - median(d))`. The
/// draws, with the first left out where their number is odd:
/// ```python
/// s = 1                                    # once for all chains of a case
/// for c in range(k):
///     x = 0.0
///     for _ in range(n):
///         s = (s * 1103515245 + 12345) % (1 << 31); x = phi * x + (s / (1 << 31) - 0.5)
///         draws[c].append(x + shift * c)
/// ```
#[test]
fn r_hat_and_effective_sample_sizes_against_arviz() {
    let draws = |k: usize, n: usize, phi: f64, shift: f64| -> Vec<Vec<f64>> {
        let mut state = 1u64;
        let mut chain = |at: usize| {
            let mut x = 0.0;
            let mut draw = || {
                state = (state * 1_103_515_245 + 12_345) % (1 << 31);
                x = phi * x + (state as f64 / f64::from(1u32 << 31) - 0.5);
                x + shift * at as f64
            };
            (0..n).map(|_| draw()).collect()
        };
        (0..k).map(&mut chain).collect()
    };
    for ((k, n, phi, shift), [rhat, bulk, tail]) in [
        ((4, 50, 0.5, 0.0), [1.025_664_209_006_918, 66.837_049_054_509_93, 116.693_136_784_479_11]),
        ((2, 21, 0.0, 0.3), [1.345_766_336_524_095, 7.017_588_242_500_43, 17.307_692_307_692_31]),
        ((1, 12, 0.9, 0.0), [1.099_638_910_100_66, 6.813_542_690_455_487, 12.705_882_352_941_18]),
        ((3, 200, 0.0, 0.02), [1.009_063_832_291_669, 466.640_502_214_381, 562.526_039_565_591]),
    ] {
        let draws = draws(k, n, phi, shift);
        let close = |got: Option<f64>, want: f64| {
            let got = got.unwrap();
            assert!((got / want - 1.0).abs() < 1e-9, "{got} is not {want}");
        };
        close(r_hat(&draws), rhat);
        close(bulk_ess(&draws), bulk);
        close(tail_ess(&draws), tail);
    }
}

#[test]
fn too_few_draws_and_draws_that_do_not_vary_have_no_r_hat() {
    let unusable: [&[Vec<f64>]; 5] = [
        &[],
        &[vec![1.0, 2.0, 3.0]],
        &[vec![1.0, 2.0, 3.0, 4.0], vec![]],
        &[vec![0.1; 10], vec![0.1; 10]],
        &[vec![1.0, 2.0, f64::NAN, 4.0]],
    ];
    for chains in unusable {
        assert_eq!([r_hat(chains), bulk_ess(chains), tail_ess(chains)], [None; 3], "{chains:?}");
    }
    // Of a longer chain the last draws count, and of an odd number not the first.
    let last = [vec![2.0, 1.0, 4.0, 3.0], vec![1.5, 2.5, 0.5, 3.5]];
    let longer = [vec![90.0, 2.0, 1.0, 4.0, 3.0], vec![-7.0, 80.0, 1.5, 2.5, 0.5, 3.5]];
    assert_eq!(r_hat(&longer), r_hat(&last));
}

/// An AR(1) chain started from its stationary distribution.
fn chains(phi: f64, count: u32, length: usize) -> Vec<Vec<f64>> {
    (0..count)
        .map(|chain| {
            let key = Key::new(17, chain, Stream::Sampler);
            let mut x = 0.0;
            (0..length)
                .map(|i| {
                    let scale = if i == 0 { 1.0 } else { (1.0 - phi * phi).sqrt() };
                    x = phi * x + scale * key.normal(0, i) as f64;
                    x
                })
                .collect()
        })
        .collect()
}

/// In theory N (1 − φ) / (1 + φ); the estimate has a relative sd of a few percent here.
#[test]
fn effective_sample_size_of_autoregressions() {
    for (phi, share) in [(0.0, 1.0), (0.5, 1.0 / 3.0), (0.9, 1.0 / 19.0)] {
        let draws = chains(phi, 4, 5000);
        let found = bulk_ess(&draws).unwrap() / 20_000.0;
        assert!((found / share - 1.0).abs() < 0.15, "{phi}: {found} is not {share}");
        assert!((r_hat(&draws).unwrap() - 1.0).abs() < 0.02);
    }
    let swinging = bulk_ess(&chains(-0.5, 4, 5000)).unwrap() / 20_000.0;
    assert!((swinging - 3.0).abs() < 0.45, "{swinging}");
}

#[test]
fn chains_that_disagree_are_seen() {
    let mut draws = chains(0.0, 4, 200);
    draws[3].iter_mut().for_each(|x| *x += 3.0);
    assert!(r_hat(&draws).unwrap() > 1.3);
    assert!(bulk_ess(&draws).unwrap() < 20.0);
    // One place, but another width: their distances from the median tell.
    let mut draws = chains(0.0, 4, 200);
    draws[3].iter_mut().for_each(|x| *x *= 6.0);
    assert!(r_hat(&draws).unwrap() > 1.2);
}

/// From mpmath 1.3: `nstr(erf(x), 18), nstr(erfc(x), 18)`.
#[test]
fn error_function_against_mpmath() {
    for (x, want, want_tail) in [
        (0.0, 0.0, 1.0),
        (1e-3, 0.001_128_378_790_969_236_4, 0.998_871_621_209_030_8),
        (0.1, 0.112_462_916_018_284_9, 0.887_537_083_981_715_1),
        (0.5, 0.520_499_877_813_046_5, 0.479_500_122_186_953_5),
        (1.0, 0.842_700_792_949_714_9, 0.157_299_207_050_285_13),
        (1.5, 0.966_105_146_475_310_7, 0.033_894_853_524_689_27),
        (2.0, 0.995_322_265_018_952_7, 0.004_677_734_981_047_266),
        (3.0, 0.999_977_909_503_001_4, 2.209_049_699_858_544e-5),
        (4.0, 0.999_999_984_582_742_1, 1.541_725_790_028_002e-8),
        (6.0, 1.0, 2.151_973_671_249_891_3e-17),
        (10.0, 1.0, 2.088_487_583_762_544_8e-45),
        (26.0, 1.0, 5.663_192_408_856_143e-296),
    ] {
        for (x, want, want_tail) in [(x, want, want_tail), (-x, -want, 2.0 - want_tail)] {
            assert!((erf(x) - want).abs() < 1e-12, "erf({x}) = {}", erf(x));
            let error = (erfc(x) / want_tail - 1.0).abs();
            assert!(error < 1e-12, "erfc({x}) = {}", erfc(x));
        }
    }
    assert_eq!((erfc(40.0), erfc(-40.0)), (0.0, 2.0));
}

/// A case shared with the programs that made the golden values, from whole numbers alone so that
/// both have the same bits:
///
/// ```python
/// u = array([[[(i**3 * 7 + i*k*13 + k*k*101 + m*53 + i*m*(k + 1)) % 61 + 1
///              for k in range(4)] for i in range(60)] for m in range(3)], float)
/// p = u / u.sum(-1, keepdims=True)
/// y = [u[0, i].argmax() if i % 3 else i % 4 for i in range(60)]
/// confidence = round(p[0].max(1) * 20) / 20; right = p[0].argmax(1) == y   # with ties
/// ```
pub(super) mod golden {
    use super::super::confidences;

    pub(in super::super) const ROWS: usize = 60;
    pub(in super::super) const CLASSES: usize = 4;

    /// Three members and the true classes.
    pub(in super::super) fn members() -> (Vec<Vec<f64>>, Vec<u32>) {
        let member = |m: usize| -> Vec<f64> {
            let row = |i: usize| {
                let term = |k: usize| i * k * 13 + k * k * 101 + i * m * (k + 1);
                let u: Vec<f64> = (0..CLASSES)
                    .map(|k| ((i.pow(3) * 7 + m * 53 + term(k)) % 61 + 1) as f64)
                    .collect();
                let sum: f64 = u.iter().sum();
                u.into_iter().map(move |u| u / sum)
            };
            (0..ROWS).flat_map(row).collect()
        };
        let members: Vec<Vec<f64>> = (0..3).map(member).collect();
        let likeliest = |i: usize| super::super::top(&members[0][i * CLASSES..][..CLASSES]).0;
        let truth = (0..ROWS).map(|i| if i % 3 == 0 { i % 4 } else { likeliest(i) } as u32);
        let truth = truth.collect();
        (members, truth)
    }

    pub(in super::super) fn mean(members: &[Vec<f64>]) -> Vec<f64> {
        let of = |at: usize| members.iter().map(|m| m[at]).sum::<f64>() / members.len() as f64;
        (0..members[0].len()).map(of).collect()
    }

    /// Confidences of the first member in steps of 1/20, and which rows are right.
    pub(in super::super) fn tied() -> (Vec<f64>, Vec<bool>) {
        let (members, truth) = members();
        let (confidence, right) = confidences(&members[0], CLASSES, &truth);
        (confidence.iter().map(|c| (c * 20.0).round_ties_even() / 20.0).collect(), right)
    }
}

/// From scikit-learn 1.9: `confusion_matrix(y, p.mean(0).argmax(1))`.
#[test]
fn confusion_against_scikit_learn() {
    let (members, truth) = golden::members();
    let found = confusion(&golden::mean(&members), golden::CLASSES, &truth);
    assert_eq!(found, [[8, 2, 3, 4], [3, 7, 3, 2], [2, 2, 8, 3], [0, 4, 3, 6]]);
}
