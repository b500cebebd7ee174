use std::fs;
use std::net::TcpListener;

use crate::workspace::{Workspace, names};

/// An address that refuses connections.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn without_a_network_it_says_what_to_put_where() {
    let workspace = Workspace::new();
    let text = workspace.fails(1, &["data", "get", "mnist", "--from", &nobody()]);
    assert!(text.starts_with("error: could not reach http://127.0.0.1:"), "{text}");
    assert!(text.contains("download elsewhere and put into data/mnist:"), "{text}");
    for name in ["train-images", "train-labels", "t10k-images", "t10k-labels"] {
        let line = format!("  https://ossci-datasets.s3.amazonaws.com/mnist/{name}-idx");
        assert!(text.contains(&line), "{text}");
    }
    assert_eq!(names(&workspace.path("data/mnist")), [""; 0], "nothing is left behind");
}

#[test]
fn a_file_that_is_there_is_never_replaced() {
    let workspace = Workspace::new();
    fs::create_dir_all(workspace.path("data/cifar10")).unwrap();
    workspace.write("data/cifar10/cifar-10-binary.tar.gz", "mine");
    let text = workspace.fails(1, &["data", "get", "cifar10", "--from", &nobody()]);
    assert!(text.contains("is there, but has the MD5"), "{text}");
    let kept = fs::read_to_string(workspace.path("data/cifar10/cifar-10-binary.tar.gz")).unwrap();
    assert_eq!(kept, "mine");
}

/// A PNG file of one white pixel.
pub(crate) const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3a, 0x7e, 0x9b,
    0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0x0f, 0x00, 0x01,
    0x01, 0x01, 0x00, 0xb1, 0x38, 0xf6, 0x14, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae,
    0x42, 0x60, 0x82,
];

/// Two classes, of which the second has a broken image.
fn pictures() -> Workspace {
    let workspace = Workspace::new();
    for (name, bytes) in [
        ("cat/1.png", PIXEL),
        ("cat/2.png", PIXEL),
        ("dog/1.png", PIXEL),
        ("dog/2.png", &PIXEL[..40]),
    ] {
        let path = workspace.path("pictures").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    workspace
}

#[test]
fn a_check_says_what_is_there() {
    let workspace = pictures();
    insta::assert_snapshot!(workspace.succeeds(&["data", "check", "pictures"]).stdout, @"
    pictures: images, 4 images, not divided, 2 classes, 1 x 1 pixels

    class  images
    cat         2
    dog         2

    cannot be read: 1
      pictures/dog/2.png cannot be decoded (unexpected end of file)
    ");
    let json = workspace.json(&["data", "check", "pictures"]);
    assert_eq!(json["kind"], "images");
    assert_eq!(json["usable"], true);
    assert_eq!(json["train"], 4);
    assert_eq!(json["classes"][1]["name"], "dog");
    assert_eq!(json["unreadable"][0]["name"], "pictures/dog/2.png");
}

#[test]
fn what_cannot_be_used_has_code_1() {
    let workspace = pictures();
    let text = workspace.fails(1, &["data", "check", "pictures", "--kind", "cifar10"]);
    assert!(text.contains("pictures has no cifar-10-binary.tar.gz"), "{text}");
    assert!(workspace.fails(1, &["data", "check", "none"]).contains("could not read none"));
    fs::create_dir(workspace.path("empty")).unwrap();
    let text = workspace.fails(1, &["data", "check", "empty"]);
    assert!(text.contains("empty: has no folders of classes"), "{text}");
    fs::remove_dir_all(workspace.path("pictures/dog")).unwrap();
    let text = workspace.fails(1, &["data", "check", "pictures"]);
    assert!(text.contains("images of one class"), "{text}");
    let broken = workspace.path("pictures/dog");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("1.jpg"), b"x").unwrap();
    let outcome = workspace.run(&["data", "check", "pictures"]);
    assert_eq!(outcome.code, Some(1));
    let text = &outcome.stderr;
    assert!(text.contains("no training image of the class `dog` can be read"), "{text}");
    fs::write(workspace.path("no.tar"), [b"\x1b[31m\x07".repeat(99), vec![1; 600]].concat())
        .unwrap();
    let text = workspace.fails(1, &["data", "check", "no.tar"]);
    assert!(text.contains("is no whole tar file"), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    for at in 0..101 {
        fs::write(broken.join(format!("{at}.jpg")), b"x").unwrap();
    }
    let outcome = workspace.run(&["data", "check", "pictures"]);
    let all = (0..101).all(|at| outcome.stdout.contains(&format!("  pictures/dog/{at}.jpg is ")));
    assert!(all, "{}", outcome.stdout);
    let outcome = workspace.run(&["data", "check", "pictures", "--json"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stdout.contains("\"usable\":false"), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("pictures: 101 images cannot be read"), "{}", outcome.stderr);
}

/// An IDX file of bytes.
fn idx(sizes: &[u32], value: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.resize(bytes.len() + sizes.iter().product::<u32>() as usize, value);
    bytes
}

#[test]
fn idx_files_of_ones_own_are_told_from_the_official_ones() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("digits")).unwrap();
    for (part, rows) in [("train", 3), ("t10k", 2)] {
        let write = |name: &str, bytes: Vec<u8>| {
            fs::write(workspace.path(&format!("digits/{part}-{name}-ubyte")), bytes).unwrap();
        };
        write("images-idx3", idx(&[rows, 28, 28], 9));
        write("labels-idx1", idx(&[rows], 4));
    }
    let text = workspace.succeeds(&["data", "check", "digits"]).stdout;
    assert_eq!(text.matches("not that of the official file (").count(), 4, "{text}");
    assert!(text.contains("not the official set mnist but images of your own"), "{text}");
    let json = workspace.json(&["data", "check", "digits"]);
    assert_eq!((&json["official"], &json["usable"]), (&false.into(), &true.into()));
}
