//! Tenon's text kit: the `tokenizers` and `minijinja` crates behind the C ABI of
//! `include/textkit.h`.
//!
//! Modules under `tokenizer` and `template` are safe Rust and carry the behaviour; `abi` is the
//! only place with raw pointers. Nothing here prints, exits or keeps global state other than the
//! silenced panic hook.

mod abi;
mod failure;
mod template;
mod tokenizer;
