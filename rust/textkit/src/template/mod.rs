//! Chat templates: minijinja, set up as transformers sets up jinja2.

mod clock;
mod environment;
mod generation;
mod methods;
mod tojson;

pub use environment::Template;
