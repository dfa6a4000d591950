//! `tojson` as transformers binds it: Python's `json.dumps`, without the HTML escapes of jinja2's
//! own filter. Arguments: ensure_ascii, indent, separators, sort_keys.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Deeper than any context can be parsed; only a value that a template nested itself gets there.
const DEPTH_MAX: usize = 200;
const INDENT_MAX: usize = 32;

pub fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|v| !v.is_none() && !v.is_undefined()))
    };
    let is_true = |v: Option<Value>| v.is_some_and(|v| v.is_true());
    let ensure_ascii = is_true(argument(0, "ensure_ascii")?);
    let indent = match argument(1, "indent")? {
        Some(text) if text.as_str().is_some() => Some(text.to_string()),
        Some(count) => Some(" ".repeat(usize::try_from(count)?.min(INDENT_MAX))),
        None => None,
    };
    let separators = argument(2, "separators")?;
    let sort_keys = is_true(argument(3, "sort_keys")?);
    named.assert_all_used()?;
    let (between, colon) = match separators {
        Some(pair) => {
            (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string())
        }
        // With an indent each item has its own line, and Python drops the space before the break.
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let mut dump = Dump { out: String::new(), ensure_ascii, indent, between, colon, sort_keys };
    dump.value(value, 0)?;
    Ok(Value::from(dump.out))
}

struct Dump {
    out: String,
    ensure_ascii: bool,
    indent: Option<String>,
    between: String,
    colon: String,
    sort_keys: bool,
}

impl Dump {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(refuse("tojson: nested too deeply".into()));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(json_bool(value)),
            ValueKind::Number => self.out.push_str(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.out.push('[');
                let mut items = value.try_iter()?.peekable();
                let empty = items.peek().is_none();
                for (index, item) in items.enumerate() {
                    self.separate(index, depth + 1);
                    self.value(&item, depth + 1)?;
                }
                self.close(empty, depth, ']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.out.push('{');
                for (index, key) in keys.iter().enumerate() {
                    self.separate(index, depth + 1);
                    self.key(key)?;
                    let colon = std::mem::take(&mut self.colon);
                    self.out.push_str(&colon);
                    self.colon = colon;
                    self.value(&value.get_item(key)?, depth + 1)?;
                }
                self.close(keys.is_empty(), depth, '}');
            }
            kind => return Err(refuse(format!("tojson: {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn separate(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push_str(&self.between);
        }
        self.new_line(depth);
    }

    fn close(&mut self, empty: bool, depth: usize, bracket: char) {
        if !empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(depth));
        }
    }

    /// JSON keys are strings; Python turns the other scalars into their JSON text first.
    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None => self.string("null"),
            ValueKind::Bool => self.string(json_bool(key)),
            ValueKind::Number => self.string(&number(key)?),
            kind => return Err(refuse(format!("tojson: {kind} cannot be a key"))),
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c >= '\u{7f}') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn json_bool(value: &Value) -> &'static str {
    if value.is_true() { "true" } else { "false" }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        Ok(value.to_string())
    } else {
        f64::try_from(value.clone()).map(python_float)
    }
}

/// The shortest digits that read back as the same number, with an exponent where Python writes one.
fn python_float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{x:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn refuse(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Template;

    fn render(source: &str) -> String {
        let context = r#"{"x": {"b": [1, 2.0, null, true], "a": "<é\"\n\u0001😀>", "e": {}}}"#;
        Template::compile(source, "t").unwrap().render(context).unwrap()
    }

    #[test]
    fn matches_json_dumps() {
        assert_eq!(
            render("{{ x | tojson }}"),
            r#"{"b": [1, 2.0, null, true], "a": "<é\"\n\u0001😀>", "e": {}}"#
        );
        assert_eq!(
            render("{{ x.a | tojson(ensure_ascii=true) }}"),
            r#""<\u00e9\"\n\u0001\ud83d\ude00>""#
        );
        assert_eq!(
            render("{{ x | tojson(separators=(',', ':'), sort_keys=true) }}"),
            r#"{"a":"<é\"\n\u0001😀>","b":[1,2.0,null,true],"e":{}}"#
        );
        assert_eq!(
            render("{{ {'k': [1], 'e': [], 1: none} | tojson(indent=2) }}"),
            "{\n  \"k\": [\n    1\n  ],\n  \"e\": [],\n  \"1\": null\n}"
        );
        let undefined = Template::compile("{{ nope | tojson }}", "t").unwrap();
        assert!(undefined.render("{}").is_err());
    }

    #[test]
    fn floats_print_as_python() {
        for (x, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(python_float(x), text);
        }
    }
}
