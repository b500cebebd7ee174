//! The program from the outside: what it prints, writes and answers with.

mod bad_input;
mod compare;
mod completions;
mod damage;
mod data;
mod devices;
mod diagnose;
mod first;
mod folders;
mod help;
mod hostile;
mod images;
mod interrupt;
mod look;
mod resources;
mod samples;
mod selectors;
mod stubs;
mod subnetwork;
mod tables;
mod train;
mod version;
mod watch;
mod words;
mod workspace;
