use super::*;

const ALL: [Precision; 3] = [Precision::F32, Precision::Tf32, Precision::Bf16];

fn on_case(case: &Case, precision: Precision, manner: Manner) -> (Setting, Outcome) {
    let setting = Setting::new(&case.network, case.batch, precision, manner);
    let expected = on_cpu(&case.network, &setting, case.batch).unwrap();
    (setting, expected)
}

fn with_kinks() -> impl Iterator<Item = Case> {
    cases().unwrap().into_iter().filter(|case| has_kinks(&case.network))
}

/// Why gradients near kinks are not compared in low precision.
#[test]
fn rounding_moves_gradients_near_kinks_much_further() {
    let most = |name: &str, manner: Manner| {
        let case = cases().unwrap().into_iter().find(|case| case.name == name).unwrap();
        let (setting, expected) = on_case(&case, Precision::Bf16, manner);
        let size = rounding(Precision::Bf16);
        let noise = sensitivity(&case, &setting, size, &expected).unwrap();
        let part = |(param, noise): (&Param, f64)| noise / length(param, &expected);
        trained(&case.network).zip(noise).map(part).fold(0.0, f64::max)
    };
    assert!(most("smooth residual network", Manner::Usual) < 0.02);
    for name in ["residual network", "lenet", "wide residual network"] {
        let (near, away) = (most(name, Manner::Usual), most(name, Manner::Steady));
        assert!(near > 0.1 && away < 0.4 * near, "{name}: {near} and {away}");
    }
}

fn length(param: &Param, outcome: &Outcome) -> f64 {
    norm(outcome.gradient[param.range()].iter().map(|g| f64::from(*g)))
}

/// Every limit is below its cap, those of weights as a part of their own gradient, and most of
/// these are far below.
#[test]
fn limits_of_gradients_stay_below_their_caps() {
    for precision in ALL {
        let mut limits = Vec::new();
        for case in with_kinks() {
            let (setting, expected) = on_case(&case, precision, Manner::Steady);
            let holds = holds(&case, &setting, precision, &expected).unwrap();
            for (param, hold) in trained(&case.network).zip(holds) {
                let (name, of) = (&case.name, &param.name);
                assert!(hold.limit <= cap(precision) * (1.0 + 1e-9), "{name}: {of}: {hold:?}");
                let own = hold.limit * hold.scale / length(param, &expected);
                if param.role.is_weight() {
                    assert!(own <= cap(precision), "{name}: {of} in {precision:?}: {own}");
                    limits.push(own);
                }
            }
        }
        limits.sort_by(f64::total_cmp);
        assert!(limits[limits.len() / 2] < 0.4 * cap(precision), "{precision:?}");
    }
}

/// What f32 rounds, a few times over, stays within its limit with the usual values.
#[test]
fn rounding_of_f32_stays_within_its_limit() {
    for case in with_kinks() {
        let (setting, expected) = on_case(&case, Precision::F32, Manner::Usual);
        let mut noise = vec![0.0; setting.weights.len()];
        Key::new(7, 0, Stream::Observation).normals(0, 0, &mut noise);
        let size = rounding(Precision::F32);
        let moved = setting.weights.iter().zip(noise).map(|(w, n)| w * (1.0 + size * n));
        let noisy = Setting { weights: moved.collect(), ..setting.clone() };
        let got = on_cpu(&case.network, &noisy, case.batch).unwrap();
        let manner = (Precision::F32, Manner::Usual);
        let (of, apart, limit) = nearest(&case, &setting, manner, (&got, &expected)).unwrap();
        assert!(apart < limit, "{}: {of}: {apart}", case.name);
    }
}

/// There is no cliff: with all the noise that a limit allows for, gradients of weights stay near
/// it.
#[test]
fn away_from_kinks_gradients_move_in_proportion() {
    for case in with_kinks() {
        let (setting, expected) = on_case(&case, Precision::Bf16, Manner::Steady);
        let holds = holds(&case, &setting, Precision::Bf16, &expected).unwrap();
        let size = roundings(Precision::Bf16) as f32 * rounding(Precision::Bf16);
        let far = sensitivity(&case, &setting, size, &expected).unwrap();
        for ((param, hold), far) in trained(&case.network).zip(holds).zip(far) {
            let (name, of) = (&case.name, &param.name);
            assert!(far / hold.scale < 1.5 * cap(Precision::Bf16), "{name}: {of}: {far} {hold:?}");
        }
    }
}

/// A gradient that is wrong in a quarter of its elements, or that is of the wrong sign, does not
/// pass.
#[test]
fn a_wrong_gradient_does_not_pass() {
    for case in with_kinks().take(4) {
        let (setting, expected) = on_case(&case, Precision::Bf16, Manner::Steady);
        let pass = |got: &Outcome| {
            let both = (got, &expected);
            let (_, apart, limit) =
                nearest(&case, &setting, (Precision::Bf16, Manner::Steady), both).unwrap();
            apart <= limit
        };
        assert!(pass(&expected));
        for param in trained(&case.network).filter(|param| param.role.is_weight()) {
            let mut got = Outcome { gradient: expected.gradient.clone(), ..Outcome::default() };
            // Every fourth in the order of their sizes: in the order of their places they may say
            // little.
            let mut order: Vec<usize> = param.range().collect();
            order.sort_by(|a, b| {
                expected.gradient[*b].abs().total_cmp(&expected.gradient[*a].abs())
            });
            order.into_iter().step_by(4).for_each(|at| got.gradient[at] = 0.0);
            assert!(!pass(&got), "{}: {}", case.name, param.name);
        }
    }
}
