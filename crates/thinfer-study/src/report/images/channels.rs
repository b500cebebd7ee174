//! What is left of every layer.

use thinfer_core::shrink::Saving;
use thinfer_data::Result;
use thinfer_run::images::{ImageEvaluation, LayerSize};

use super::super::axis::Axis;
use super::super::page::{
    Key, Section, count, element, figure, figures, number, percent, remark, section, sortable,
    table,
};
use super::super::plots::{Ink, Mark, Plot};

const ROW_HEIGHT: u32 = 36;

/// The section about layers.
pub(super) fn section_of(evaluation: &ImageEvaluation, saving: Option<&Saving>) -> Result<Section> {
    let layers = evaluation.sizes.first().map_or(&[][..], |size| &size.layers);
    let mut html = figures(&[bars(layers)?]);
    let head =
        ["Layer", "Inputs", "Outputs", "Weights kept", "Multiply-adds", "Kernels left", "Cut"];
    let rows: Vec<Vec<String>> = layers
        .iter()
        .map(|l| {
            vec![
                l.name.clone(),
                format!("{} of {}", count(l.live_inputs), count(l.inputs)),
                format!("{} of {}", count(l.live_outputs), count(l.outputs)),
                percent(l.kept as f64 / l.weights.max(1) as f64),
                count(l.multiply_adds.whole),
                count(l.multiply_adds.kernels),
                count(l.multiply_adds.channels),
            ]
        })
        .collect();
    let numbers = element("summary", "All layers in numbers") + &sortable(&head, &rows);
    html += &element("details", &numbers);
    if evaluation.sizes.len() > 1 {
        html += &remark("Of the first chain.");
    }
    let several = evaluation.sizes.len() > 1;
    html += &saving.map_or(String::new(), |saving| cut_down(saving, several));
    Ok(section("channels", "Live channels", html))
}

/// The network with zeros in it beside the smaller one that is the same function.
fn cut_down(saving: &Saving, several: bool) -> String {
    let share = |[whole, small]: [usize; 2]| percent(small as f64 / whole.max(1) as f64);
    let amount = |name: &str, both: [usize; 2]| {
        vec![name.to_owned(), count(both[0]), count(both[1]), share(both)]
    };
    let mut rows = vec![
        amount("Parameters", saving.parameters),
        amount("Bytes", saving.bytes),
        amount("Multiply-adds", saving.multiply_adds),
    ];
    for speed in &saving.speed {
        let name = match speed.rows {
            1 => "Milliseconds, one image".to_owned(),
            rows => format!("Milliseconds an image, {rows} at a time"),
        };
        let faster = format!("{} times as fast", number(speed.masked / speed.shrunk));
        rows.push(vec![name, number(speed.masked), number(speed.shrunk), faster]);
    }
    let of = if several { format!(" of chain {}", saving.chain) } else { String::new() };
    let whose = format!("The last sample{of}");
    let mut html = table(&[&whose, "With zeros", "Cut down", "Left"], &rows);
    html += &remark(
        "Cut down, the network is the same function (thinfer shrink). Times are of the cores of the \
         machine that wrote this page.",
    );
    if !saving.leftovers.is_empty() {
        let head = ["Parameter", "Masked", "Of", "Why it stays"];
        let rows: Vec<Vec<String>> = saving
            .leftovers
            .iter()
            .map(|l| vec![l.name.clone(), count(l.masked), count(l.of), l.reason.to_owned()])
            .collect();
        let list = element("summary", "What is masked and stays") + &sortable(&head, &rows);
        html += &element("details", &list);
    }
    html
}

fn bars(layers: &[LayerSize]) -> Result<String> {
    let names: Vec<String> = layers.iter().map(|l| l.name.clone()).collect();
    let mut plot = Plot::new(
        "Share of the channels of each layer that are alive",
        Axis::between(0.0, 1.0),
        "share of channels",
        Axis::names(&names),
    );
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as u32;
    plot.left = 20 + 8 * widest;
    plot.right = 100;
    plot.height = 56 + ROW_HEIGHT * layers.len().max(1) as u32;
    let share = |live: usize, all: usize| live as f64 / all.max(1) as f64;
    for (at, layer) in layers.iter().enumerate() {
        let middle = -(at as f64);
        for (ink, low, live, all) in [
            (Ink::Series(1), middle + 0.02, layer.live_inputs, layer.inputs),
            (Ink::Series(0), middle - 0.38, layer.live_outputs, layer.outputs),
        ] {
            let (share, high) = (share(live, all), low + 0.36);
            plot.marks.push(Mark::Bar {
                from: (share, low),
                to: (1.0, high),
                ink: Ink::Grid,
                opacity: 0.6,
            });
            plot.marks.push(Mark::Bar { from: (0.0, low), to: (share, high), ink, opacity: 1.0 });
            let text = format!("{} of {}", count(live), count(all));
            plot.marks.push(Mark::Text { at: (1.0, low + 0.18), text, centred: false });
        }
    }
    let keys = [
        Key::new("bar", Ink::Series(1), "input channels that are read"),
        Key::new("bar", Ink::Series(0), "output channels that are computed"),
    ];
    figure("Live channels of each layer", &plot, &keys, "")
}
