//! One compiled chat template. Immutable; renders run on any thread, also at once.
//!
//! The settings are those of transformers' jinja2 environment: blocks trimmed on both sides, no
//! escaping, `tojson` without HTML escapes, loop controls, `raise_exception`, `strftime_now` and
//! the `generation` tag. A template is untrusted code: a render has a step budget and a depth
//! limit, sees nothing but its context, and its errors do not quote the context.

use std::error::Error as StdError;
use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use super::clock::strftime_now;
use super::generation::without_generation_tags;
use super::methods::python_method;
use super::tojson::tojson;
use crate::failure::{Failure, Kind, Outcome};

/// Steps of a render; one step also pays for 64 bytes of data, so this bounds memory too.
const STEPS_MIN: u64 = 1_000_000;
/// A long context earns more: honest templates touch each byte of it a few times.
const CONTEXT_BYTES_PER_STEP: u64 = 4;
const DEPTH_MAX: usize = 200;

pub struct Template {
    environment: Environment<'static>,
    name: String,
}

impl Template {
    /// `name` is what messages call the template.
    pub fn compile(source: &str, name: &str) -> Outcome<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(explain)?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(python_method);
        environment.set_recursion_limit(DEPTH_MAX);
        environment.set_debug(false);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(name.to_string(), without_generation_tags(source))
            .map_err(explain)?;
        let name = name.to_string();
        Ok(Template { environment, name })
    }

    /// `context`: a JSON object.
    pub fn render(&self, context: &str) -> Outcome<String> {
        let value: serde_json::Value = serde_json::from_str(context)
            .map_err(|e| Failure::new(Kind::Invalid, format!("template context: {e}")))?;
        // The budget belongs to an environment; cloning one copies a few reference counts.
        let mut environment = self.environment.clone();
        let earned = context.len() as u64 / CONTEXT_BYTES_PER_STEP;
        environment.set_fuel(Some(STEPS_MIN + earned));
        environment
            .get_template(&self.name)
            .and_then(|template| template.render(Value::from(Serde(&value))))
            .map_err(explain)
    }
}

/// The template's own refusal, carried as a source so that no wrapping can blur its text.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Raised {}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let raised = Raised(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(raised))
}

/// An error inside a macro or block arrives wrapped: what counts is anywhere on the chain of
/// sources, and the innermost message is the one that names the fault.
fn explain(error: Error) -> Failure {
    let mut innermost = error.to_string();
    let mut link: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(cause) = link {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return Failure::new(Kind::Invalid, message);
        }
        if let Some(cause) = cause.downcast_ref::<Error>() {
            if cause.kind() == ErrorKind::OutOfFuel {
                let message = "the chat template runs past its step budget";
                return Failure::new(Kind::TooLarge, message);
            }
            innermost = cause.to_string();
        }
        link = cause.source();
    }
    Failure::new(Kind::Invalid, innermost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, context: &str) -> Outcome<String> {
        Template::compile(source, "chat_template")?.render(context)
    }

    fn rendered(source: &str, context: &str) -> String {
        render(source, context).unwrap()
    }

    #[test]
    fn blocks_are_trimmed_like_transformers() {
        let source = "A\n  {% if true %}\n  x\n  {% endif %}\nB\n";
        assert_eq!(rendered(source, "{}"), "A\n  x\nB");
        assert_eq!(rendered("{{ a }}|{{ b.c }}", r#"{"b":{}}"#), "|");
        assert_eq!(rendered("{{ '<&>' }}", "{}"), "<&>");
    }

    #[test]
    fn python_values_print_as_python() {
        let source = "{{ a }} {{ b }} {{ c }} {{ d }}";
        let context = r#"{"a":true,"b":null,"c":{"z":1,"a":[1.0,"x"]},"d":2.5}"#;
        assert_eq!(rendered(source, context), "True None {'z': 1, 'a': [1.0, 'x']} 2.5");
    }

    #[test]
    fn loop_controls_and_namespaces() {
        let source = "{% set ns = namespace(n=0) %}{% for i in range(9) %}{% if i == 1 %}\
                      {% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}\
                      {% set ns.n = ns.n + i %}{{ loop.index0 }}{% endfor %}={{ ns.n }}";
        assert_eq!(rendered(source, "{}"), "023=5");
    }

    #[test]
    fn generation_tags_are_transparent() {
        let source = "a{%- generation -%} b {%- endgeneration %}\nc";
        assert_eq!(rendered(source, "{}"), "abc");
    }

    #[test]
    fn raised_text_arrives_alone() {
        for source in [
            "{{ raise_exception('Roles must alternate!') }}",
            "{% macro m() %}{{ raise_exception('Roles must alternate!') }}{% endmacro %}{{ m() }}",
            "{% for m in [1] %}{{ raise_exception('Roles must ' ~ 'alternate!') }}{% endfor %}",
        ] {
            let failure = render(source, "{}").unwrap_err();
            assert_eq!(failure.kind, Kind::Invalid);
            assert_eq!(failure.message, "Roles must alternate!");
        }
    }

    #[test]
    fn errors_name_the_line_and_hide_the_context() {
        let syntax = render("a\n{% if %}", "{}").unwrap_err();
        assert!(syntax.message.contains("chat_template:2"), "{}", syntax.message);
        let run = render("a\n\n{{ x.y.z }}", r#"{"x":{"secret":"hush"}}"#).unwrap_err();
        assert!(run.message.contains("chat_template:3"), "{}", run.message);
        assert!(!run.message.contains("hush"));
        assert_eq!(render("x", "[1").unwrap_err().kind, Kind::Invalid);
    }

    #[test]
    fn hostile_templates_end() {
        let spin = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
        assert_eq!(render(spin, "{}").unwrap_err().kind, Kind::TooLarge);
        let grow = "{% set n = namespace(s='xxxxxxxx') %}{% for a in range(99) %}\
                    {% set n.s = n.s ~ n.s %}{% endfor %}";
        assert_eq!(render(grow, "{}").unwrap_err().kind, Kind::TooLarge);
        let recurse = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
        assert_eq!(render(recurse, "{}").unwrap_err().kind, Kind::Invalid);
        let nest = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(render(&nest, "{}").unwrap_err().kind, Kind::Invalid);
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(render("{{ x }}", &deep).unwrap_err().kind, Kind::Invalid);
    }

    #[test]
    fn a_long_context_earns_steps() {
        let message = r#"{"role":"user","content":"hello there, how are you today?"},"#;
        let list = message.repeat(60_000);
        let context = format!("{{\"messages\":[{}]}}", list.trim_end_matches(','));
        let source =
            "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim }}{% endfor %}";
        assert!(rendered(source, &context).len() > 2_000_000);
    }
}
