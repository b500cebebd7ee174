//! Steps of a chain on the cores, with the whole network or with the part that pruning leaves.

use thinfer_data::Result;
use thinfer_engine::{Arena, Dataset, Draw, Network, Plan};

use super::chain::ChainSpec;
use super::cut::Cut;
use super::freeze::FrozenLayers;
use super::part::Part;
use crate::methods::BatchNoise;
use crate::methods::walker::{Gradients, NetworkTarget};
use crate::methods::{Method, Tick, Walker};

/// What a step came to.
pub(crate) struct Done {
    /// The mean loss over its rows.
    pub(crate) loss: f64,
    /// Passes whose gradient was shortened.
    pub(crate) clipped: u64,
}

/// Steps on the whole network, or on a smaller one that is the same function.
pub(crate) struct Stepper {
    plan: Plan,
    part: Option<Smaller>,
    /// For halves of a step's rows, of which there are so many at most.
    halves: Option<(usize, Plan)>,
    /// What a method that walks by itself asks for gradients.
    gradients: Option<Gradients>,
}

/// The smaller network, and the columns of a table that it still reads, copied out of it.
struct Smaller {
    part: Part,
    table: Option<Dataset>,
}

impl Stepper {
    pub(crate) fn new(
        network: &Network,
        batch: usize,
        cut: Option<&Cut>,
        held: &FrozenLayers,
        whole: &Arena,
    ) -> Result<Self> {
        let Some(cut) = cut else {
            return Ok(Self {
                plan: Plan::new(&held.in_network(network), batch)?,
                part: None,
                halves: None,
                gradients: None,
            });
        };
        let plan = Plan::new(&held.in_network(&cut.small.network), batch)?;
        let mut part = Part::new(cut, whole);
        part.take_from(whole, true);
        let part = Some(Smaller { part, table: None });
        Ok(Self { plan, part, halves: None, gradients: None })
    }

    /// For a method that asks for gradients itself, on so many rows.
    pub(crate) fn walking(spec: &ChainSpec, walker: &dyn Walker, rows: usize) -> Result<Self> {
        let plan = Plan::new(&spec.network, rows)?;
        let gradients = Gradients::new(spec.seed, spec.chain, walker, rows, &spec.network)?;
        Ok(Self { plan, part: None, halves: None, gradients: Some(gradients) })
    }

    /// Whether all of the network is in use.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    /// Tells which input columns the masked weights read. The gradient of the others is needed all
    /// the same, since they may come back, but the forward pass need not look at them.
    pub(crate) fn read_columns(&mut self, columns: &[usize]) {
        self.plan.set_live_inputs(Some(columns));
    }

    /// Says what makes the random channel scales of the next step, where there are any.
    pub(crate) fn set_draw(&mut self, draw: Draw) {
        self.plan.set_draw(draw);
    }

    /// One step of a method on `rows`. The buffers of the whole network are up to date after it; a
    /// loss that is not finite leaves them as they were.
    pub(crate) fn step(
        &mut self,
        whole: &mut Arena,
        method: &dyn Method,
        tick: Tick,
        data: &Dataset,
        rows: &[u32],
    ) -> Result<Done> {
        if let (Some(walker), Some(gradients)) = (method.walker(), &mut self.gradients) {
            let mut target = NetworkTarget { plan: &mut self.plan, gradients, data };
            let loss = walker.step(whole, tick, &mut target)?;
            return Ok(Done { loss, clipped: 0 });
        }
        let Some(Smaller { part, table }) = &mut self.part else {
            method.materialize(whole, tick);
            let loss = match method.batch_noise(tick) {
                Some(noise) => self.by_halves(noise, whole, data, rows)?,
                None => self.plan.gradient(whole, data, rows)?,
            };
            if loss.is_finite() {
                method.update(whole, tick);
            }
            return Ok(Done { loss, clipped: whole.take_clipped() });
        };
        // Pruning between epochs works on the whole network.
        if whole.take_touched() {
            part.take_from(whole, true);
        }
        let data = if part.small.network.input_len() < data.columns() {
            &*table.get_or_insert_with(|| data.take_columns(&part.columns()))
        } else {
            data
        };
        let arena = &mut part.arena;
        method.materialize(arena, tick);
        let loss = self.plan.gradient(arena, data, rows)?;
        if loss.is_finite() {
            method.update(arena, tick);
            let clipped = arena.take_clipped();
            part.give_weights(whole);
            part.give_state(whole);
            return Ok(Done { loss, clipped });
        }
        Ok(Done { loss, clipped: 0 })
    }

    /// The gradient of rows, and what their halves tell of its noise. The plan is made for the
    /// first half and not for a larger one, so that bits follow from the rows alone.
    fn by_halves(
        &mut self,
        noise: &BatchNoise,
        whole: &mut Arena,
        data: &Dataset,
        rows: &[u32],
    ) -> Result<f64> {
        let (first, second) = rows.split_at(rows.len().div_ceil(2));
        let plan = match &mut self.halves {
            Some((most, plan)) if *most == first.len() => plan,
            halves => {
                let plan = Plan::new(self.plan.network(), first.len())?;
                &mut halves.insert((first.len(), plan)).1
            }
        };
        let of_first = plan.gradient(whole, data, first)?;
        let (gradient, half) = whole.gradient_and_state(noise.buffer);
        half.copy_from_slice(gradient);
        let of_second = plan.gradient(whole, data, second)?;
        noise.join(whole, [first.len(), second.len()]);
        let share = first.len() as f64 / rows.len() as f64;
        Ok(share * of_first + (1.0 - share) * of_second)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let part = self.part.as_ref().map_or(0, |Smaller { part, table }| {
            let table = table.as_ref().map_or(0, Dataset::bytes);
            part.arena.method_bytes() + part.arena.work_bytes() + table
        });
        let halves = self.halves.as_ref().map_or(0, |(_, plan)| plan.bytes());
        self.plan.bytes() + halves + part
    }
}
