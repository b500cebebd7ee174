//! Writes the seeds of the fuzz corpus: `fuzz_seeds fuzz/corpus`.
//!
//! Needed again only where a format changes and the seeds of before are refused. Files that are
//! there under other names, such as inputs that once failed, stay.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jpeg_encoder::{ColorType, Encoder};
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::data::table::{OutColumn, write_columns};
use thinfer::device::Device;
use thinfer::experiment::chain_specs;
use thinfer::export::{Format, Options, Samples, description_path, export};
use thinfer::fuzzing::{CHECKPOINT_SETTINGS, small_networks};
use thinfer::posterior::Snapshot;
use thinfer::posterior::{Posterior, snapshot_to_bytes};
use thinfer::run::{Control, ImageInputs, Inputs, Mode, RunInfo, open_posterior, read_info, train};
use thinfer::subnetwork;
use thinfer::train::{Chain, Silent};
use thinfer::weights::{self, Weights};
use thinfer_engine::{Law, Loss, Mixture, Network, NetworkBuilder, Shape, Window};

type Outcome = Result<(), Box<dyn Error>>;

/// The settings of a small run whose files are seeds.
const RUN: [&str; 12] = [
    "data.kind=\"example1\"",
    "data.columns=5",
    "data.train_rows=24",
    "data.validation_rows=10",
    "data.test_rows=10",
    "model.hidden=[2]",
    "train.batch=12",
    "train.epochs=4",
    "train.samples_per_cycle=1",
    "schedule.step_size.cycles=2",
    "prune.warm_up_epochs=1",
    "prune.hard_threshold=0.05",
];

struct Corpus(PathBuf);

impl Corpus {
    fn write(&self, target: &str, name: &str, bytes: impl AsRef<[u8]>) -> Outcome {
        let folder = self.0.join(target);
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(name), bytes)?)
    }
}

fn main() -> Outcome {
    let folder = std::env::args().nth(1).ok_or("usage: fuzz_seeds FOLDER")?;
    let corpus = Corpus(folder.into());
    let work = tempfile::tempdir()?;
    tables(&corpus, work.path())?;
    run(&corpus, work.path())?;
    networks(&corpus, work.path())?;
    images(&corpus)
}

fn tables(corpus: &Corpus, work: &Path) -> Outcome {
    corpus.write("csv", "numbers", "x,y\n1,2.5\n-3e2,0.25\n")?;
    corpus.write(
        "csv",
        "kinds",
        "size, on ,colour\r\n1,TRUE,red\r\n,false,\"a, b\"\r\nNA,?,x\n",
    )?;
    corpus.write("csv", "money", "price,share\n\"$1,200.50\",3 %\n-€7,4 %\n")?;
    corpus.write("csv", "tabs", "a\tb\n1\tx,y\n2\t\"q\"\"q\"\n")?;
    corpus.write("csv", "two-marks", "\u{feff}\u{feff}a,b\n1,2\n")?;
    corpus.write("csv", "decimal-commas", "a;b;c\n0,5;1.234;12,5 %\n-1,25;12.345;3 %\n")?;
    corpus.write("csv", "dates", "d,e\n2024-01-31,31.1.24 7:05\n-,1.2.24 19:30\n")?;
    corpus.write("csv", "gaps", "x,c,y\n1,red,-\nNA,,2\n.5,?,n.a.\n")?;
    corpus.write("csv", "open-commas", "a|b|c\n1,234|1 234|1'234\n999|5|(7)\n")?;
    corpus.write("csv", "packed", packed(b"x,c\n1,red\n2,blue\n")?)?;
    let wide = "\u{feff}a;ü\n1;0,5\n".encode_utf16().flat_map(u16::to_le_bytes);
    corpus.write("csv", "utf-16", wide.collect::<Vec<u8>>())?;
    corpus.write("csv", "windows-1252", b"a,stra\xdfe\n1,caf\xe9\n")?;
    corpus.write("csv", "uneven", "a,b\n1,2,3\n")?;
    let columns = [
        ("x".to_owned(), OutColumn::Number(vec![0.5, f64::NAN, -1e300])),
        ("c".to_owned(), OutColumn::Text(vec!["red".into(), String::new(), "ü".into()])),
    ];
    let path = work.join("t.parquet");
    write_columns(&path, &columns, true)?;
    corpus.write("parquet", "written", fs::read(path)?)?;
    let schema = "message m { optional int32 a; optional binary b (string); required boolean c; \
                  required int64 d (decimal(9, 2)); required fixed_len_byte_array(2) e (decimal(4, 2)); \
                  optional float f; }";
    corpus.write("parquet", "kinds", parquet_file(schema)?)?;
    let (lying, dictionary) = more_cells_than_rows()?;
    corpus.write("parquet", "more-cells-than-rows", lying)?;
    corpus.write("parquet", "large-dictionary", dictionary)?;
    let (deltas, lengths) = deltas()?;
    corpus.write("parquet", "deltas", deltas)?;
    corpus.write("parquet", "many-lengths", lengths)?;
    corpus.write("parquet", "large-page", large_page()?)
}

/// A page that says it has 2 GiB once it is unpacked.
fn large_page() -> Result<Vec<u8>, Box<dyn Error>> {
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::SNAPPY);
    let mut bytes = parquet_file_with("message m { required int64 x; }", properties.build())?;
    // Behind the sign of the file and the kind of the page; four bytes more here are four less
    // there.
    let (size, stored) = (7, 9);
    bytes[stored] -= 8;
    Ok([&bytes[..size], &[0xfe, 0xff, 0xff, 0xff, 0x0f], &bytes[size + 1..]].concat())
}

/// Text and numbers as differences, and the same text with 2⁴⁰ lengths announced.
fn deltas() -> Result<(Vec<u8>, Vec<u8>), Box<dyn Error>> {
    let schema =
        "message m { required binary a (string); required binary b (string); required int32 c; }";
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::SNAPPY)
        .set_column_encoding("a".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_column_encoding("b".into(), Encoding::DELTA_BYTE_ARRAY)
        .set_column_encoding("c".into(), Encoding::DELTA_BINARY_PACKED);
    let packed = parquet_file_with(schema, properties.clone().build())?;
    let plain = properties.set_compression(Compression::UNCOMPRESSED).build();
    let plain = parquet_file_with(schema, plain)?;
    // 128 a block in 4 parts, 2 lengths.
    let place = plain.windows(4).position(|window| window == [0x80, 1, 4, 2]);
    let place = place.ok_or("the file has no lengths")? + 3;
    let many = [0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    Ok((packed, [&plain[..place], &many, &plain[place + 1..]].concat()))
}

/// Eight million equal cells in a few hundred bytes, of a table that says it has one million rows;
/// and the same with a dictionary that says it has 2³¹ values.
fn more_cells_than_rows() -> Result<(Vec<u8>, Vec<u8>), Box<dyn Error>> {
    // 8,000,000 and 2²⁰ as Thrift writes them behind the sign of a 64-bit number.
    const CELLS: [u8; 5] = [0x16, 0x80, 0xc8, 0xd0, 0x07];
    const ROWS: [u8; 5] = [0x16, 0x80, 0x80, 0x80, 0x01];
    let schema = Arc::new(parse_message_type("message m { required int64 x; }")?);
    let properties = WriterProperties::builder().set_data_page_row_count_limit(usize::MAX).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    if let Some(mut column) = group.next_column()? {
        if let ColumnWriter::Int64ColumnWriter(column) = column.untyped() {
            column.write_batch(&vec![7; 8_000_000], None, None)?;
        }
        column.close()?;
    }
    group.close()?;
    let mut bytes = writer.into_inner()?;
    let length = bytes.len().checked_sub(8).ok_or("the file is too short")?;
    let footer = u32::from_le_bytes(*bytes[length..].first_chunk().ok_or("no length")?) as usize;
    let place = bytes[length - footer..].windows(5).position(|window| window == CELLS);
    let place = length - footer + place.ok_or("the footer has no number of rows")?;
    bytes[place..place + 5].copy_from_slice(&ROWS);
    // The dictionary is the first page: behind its sizes, a structure that begins with its length.
    let place = bytes.windows(3).position(|window| window == [0x4c, 0x15, 0x02]);
    let place = place.ok_or("the file has no dictionary")? + 2;
    let large = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let dictionary = [&bytes[..place], &large, &bytes[place + 1..]].concat();
    Ok((bytes, dictionary))
}

/// Two rows of every column, the second of an optional one being null.
fn parquet_file(schema: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    parquet_file_with(schema, WriterProperties::default())
}

fn parquet_file_with(
    schema: &str,
    properties: WriterProperties,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let schema = Arc::new(parse_message_type(schema)?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema.clone(), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for field in schema.get_fields() {
        let Some(mut column) = group.next_column()? else { break };
        let (n, levels) = if field.is_optional() { (1, Some(&[1i16, 0][..])) } else { (2, None) };
        let bytes = |text: &str| ByteArray::from(text);
        match column.untyped() {
            ColumnWriter::BoolColumnWriter(c) => c.write_batch(&[true, false][..n], levels, None),
            ColumnWriter::Int32ColumnWriter(c) => c.write_batch(&[7, -1][..n], levels, None),
            ColumnWriter::Int64ColumnWriter(c) => c.write_batch(&[125, -1][..n], levels, None),
            ColumnWriter::FloatColumnWriter(c) => c.write_batch(&[0.5, 1.5][..n], levels, None),
            ColumnWriter::ByteArrayColumnWriter(c) => {
                c.write_batch(&[bytes("red"), bytes("$5")][..n], levels, None)
            }
            ColumnWriter::FixedLenByteArrayColumnWriter(c) => {
                c.write_batch(&[bytes("ab").into(), bytes("cd").into()][..n], levels, None)
            }
            _ => return Err("a type without values".into()),
        }?;
        column.close()?;
    }
    group.close()?;
    Ok(writer.into_inner()?)
}

fn run(corpus: &Corpus, work: &Path) -> Outcome {
    let config = Config::parse("", &RUN.map(str::to_owned))?;
    corpus.write("toml", "complete", config.to_toml()?)?;
    for (name, text) in [
        ("table", "[data]\nkind = \"table\"\npath = \"t.csv\"\ntarget = \"y\"\n"),
        (
            "images",
            "preset = \"paper\"\n[data]\nkind = \"cifar10\"\n[model]\nname = \"resnet20\"\n",
        ),
        ("slip", "[dta]\nkind = \"example1\"\n"),
        ("overrides", "[data]\nkind = \"example1\"\n\0train.epochs=7\nmethod.clip=none\n"),
    ] {
        corpus.write("toml", name, text)?;
    }

    let folder = work.join("run");
    let control = Control {
        stop: &AtomicBool::new(false),
        observer: &Silent,
        device: Device::Cpu,
        device_name: "cpu",
    };
    train(&config, &folder, Mode::New, &control)?;
    let info = fs::read_to_string(folder.join("run.json"))?;
    // As an older version wrote it, so that changes are not all met by the checksum.
    let (plain, _) = info.rsplit_once(",\n  \"checksum\"").ok_or("run.json has no checksum")?;
    corpus.write("run_json", "plain", format!("{plain}\n}}"))?;
    corpus.write("run_json", "sealed", info)?;
    let [_, network] = small_networks()?.clone();
    let classes = vec!["lies".to_owned(), "stands".to_owned()];
    let shape = network.nodes()[0].shape;
    let inputs = Inputs::Images(ImageInputs { shape, classes, mean: vec![0.25], sd: vec![0.5] });
    let images = RunInfo { network, inputs, ..read_info(&folder, &Silent)? };
    corpus.write("run_json", "images", serde_json::to_vec_pretty(&images)?)?;

    let (info, posterior) = open_posterior(&folder, &Silent)?;
    let path = work.join("e.safetensors");
    let options = Options { samples: Samples::All, ..Options::default() };
    export(&info, &posterior, Format::Safetensors, &options, &path)?;
    corpus.write("safetensors", "export", fs::read(&path)?)?;
    corpus.write("network", "export", fs::read(description_path(&path))?)?;
    corpus.write("network", "table", serde_json::to_vec(&info.network)?)?;

    let config = Config::parse("", &CHECKPOINT_SETTINGS.map(str::to_owned))?;
    let data = Bundle::load(&config.data, config.seed)?;
    let mut chain = Chain::start(chain_specs(&config, &data)?.swap_remove(0))?;
    corpus.write("checkpoint", "start", chain.to_bytes()?)?;
    while !chain.is_done() {
        chain.advance(&data.train)?;
        if chain.step() == 5 {
            corpus.write("checkpoint", "middle", chain.to_bytes()?)?;
        }
    }
    corpus.write("checkpoint", "end", chain.to_bytes()?)
}

/// Two samples of a network with one pruned weight.
fn samples(network: &Network) -> Posterior {
    let n = network.params().len();
    let mut keep = vec![1; n];
    keep[0] = 0;
    let sample = |epoch: usize| {
        let mut weights: Vec<f32> = (0..n).map(|i| (i * epoch) as f32 / 8.0 - 1.0).collect();
        weights[0] = 0.0;
        let stats = vec![epoch as f32; network.stats().len()];
        Snapshot { chain: 0, epoch, weights, keep: keep.clone(), stats, inclusion: Vec::new() }
    };
    Posterior { network: network.clone(), members: [1, 2].map(sample).to_vec() }
}

fn networks(corpus: &Corpus, work: &Path) -> Outcome {
    for (network, name) in small_networks()?.iter().zip(["table", "images"]) {
        let posterior = samples(network);
        let bytes = snapshot_to_bytes(network, &posterior.members[1])?;
        corpus.write("safetensors", &format!("snapshot-{name}"), bytes)?;
        let path = work.join("w.safetensors");
        let Snapshot { weights, stats, .. } = posterior.members[1].clone();
        weights::write(&path, network, &Weights { params: weights, stats })?;
        corpus.write("safetensors", &format!("weights-{name}"), fs::read(&path)?)?;
        let shared = subnetwork::Samples::of(&posterior)?.sharing(0.5)?;
        corpus.write("safetensors", &format!("shared-{name}"), shared.to_bytes()?)?;
    }
    let mixture = Mixture { members: 3, law: Law::Cauchy, draws: 2 };
    let mut b = NetworkBuilder::image(Shape { height: 6, width: 5, channels: 4 });
    let h = b.select(b.input(), vec![3, 1])?;
    let h = b.vary("conv1.in", h, mixture, true)?;
    let h = b.conv2d_with("conv1", h, 2, Window::square(3, 1, 1), true)?;
    let h = b.batch_norm("bn1", h)?;
    let h = b.spread(h, vec![2, 0], 4)?;
    let h = b.add(h, b.input())?;
    let h = b.max_pool(h, Window::square(2, 2, 0))?;
    let h = b.tanh(h)?;
    let out = b.pick(h, vec![5, 0])?;
    let all = b.finish(out, Loss::cross_entropy())?;
    corpus.write("network", "images", serde_json::to_vec(&all)?)?;
    let mut b = NetworkBuilder::image(Shape { height: 6, width: 5, channels: 1 });
    let h = b.conv2d("conv1", b.input(), 2, Window::square(3, 2, 1))?;
    let h = b.relu(h)?;
    let h = b.global_average_pool(h)?;
    let out = b.linear("fc", h, 1)?;
    let pooled = b.finish(out, Loss::Bernoulli)?;
    corpus.write("network", "pooled", serde_json::to_vec(&pooled)?)
}

/// Bytes as gzip packs them.
fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes)?;
    packed.finish()
}

fn images(corpus: &Corpus) -> Outcome {
    let array = [&[0, 0, 8, 3][..], &[0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1], b"wxyz"].concat();
    corpus.write("idx", "plain", &array)?;
    corpus.write("idx", "packed", packed(&array)?)?;
    corpus.write("idx", "labels", b"\0\0\x08\x01\0\0\0\x03\x07\x02\x01")?;
    corpus.write(
        "idx",
        "announces-much",
        b"\0\0\x08\x04\0\0\xff\xff\0\0\x0f\xff\0\0\0\x01\0\0\0\x01a",
    )?;

    let pixels: Vec<u8> = (0..3 * 32 * 32).map(|at| (at % 96 / 3) as u8).collect();
    corpus.write("cifar_binary", "ten", [&[9][..], &pixels].concat())?;
    corpus.write("cifar_binary", "hundred", [&[3, 99][..], &pixels].concat())?;
    corpus.write("cifar_pickle", "ten", pickle("labels", 9, &pixels))?;
    corpus.write("cifar_pickle", "hundred", pickle("fine_labels", 99, &pixels))?;

    let small: Vec<u8> = (0..20 * 12 * 3).map(|at| (at * 7 % 251) as u8).collect();
    for (name, color, progressive) in [
        ("colour", ColorType::Rgb, false),
        ("progressive", ColorType::Rgb, true),
        ("grey", ColorType::Luma, false),
    ] {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 60);
        encoder.set_progressive(progressive);
        let pixels = if color == ColorType::Luma { &small[..240] } else { &small[..] };
        encoder.encode(pixels, 20, 12, color)?;
        corpus.write("jpeg", name, &bytes)?;
    }
    for (name, color, depth, bytes_a_row) in [
        ("colour", png::ColorType::Rgb, png::BitDepth::Eight, 60),
        ("grey", png::ColorType::Grayscale, png::BitDepth::Two, 5),
        ("deep", png::ColorType::GrayscaleAlpha, png::BitDepth::Sixteen, 80),
        ("palette", png::ColorType::Indexed, png::BitDepth::Four, 10),
    ] {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 20, 12);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == png::ColorType::Indexed {
            encoder.set_palette((0..48).collect::<Vec<u8>>());
        }
        let mut writer = encoder.write_header()?;
        let pixels: Vec<u8> = (0..bytes_a_row * 12).map(|at| (at * 7 % 251) as u8).collect();
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        corpus.write("png", name, &bytes)?;
    }
    let long = format!("{}/c.png", "folder/".repeat(20));
    for (name, files) in [
        (
            "numbers",
            [("a.jpg", &b"image"[..]), ("a.cls", b"1"), ("d/b.png", b"x"), ("d/b.cls", b" 0\n")],
        ),
        (
            "names",
            [("a.jpg", b"i"), ("a.json", b"{\"label\": \"cat\"}"), (&long, b"x"), ("readme", b"")],
        ),
    ] {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            archive.append_data(&mut header, name, bytes)?;
        }
        let mut bytes = archive.into_inner()?;
        // Two empty blocks end an archive.
        bytes.truncate(bytes.len() - 512);
        corpus.write("tar", name, bytes)?;
    }
    Ok(())
}

/// One image as Python 2's cPickle wrote the official files.
fn pickle(key: &str, label: u8, pixels: &[u8]) -> Vec<u8> {
    let mut out = b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x0etraining batchq\x03U".to_vec();
    out.push(key.len() as u8);
    out.extend(key.as_bytes());
    out.extend(b"q\x04]q\x05(K");
    out.push(label);
    out.extend(b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08");
    out.extend(b"K\x00\x85U\x01bq\x09\x87Rq\x0a(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x0b");
    out.extend(
        b"U\x02u1K\x00K\x01\x87Rq\x0c(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T",
    );
    out.extend((pixels.len() as u32).to_le_bytes());
    out.extend(pixels);
    out.extend(b"tbU\x09filenamesq\x0d]q\x0e(U\x05a.pngq\x0fh\x09eu.");
    out
}
