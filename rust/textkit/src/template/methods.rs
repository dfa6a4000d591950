//! Python methods that templates call and minijinja's own Python layer lacks.

use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

const WIDTH_MAX: usize = 4096;

pub fn python_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string_method(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq if method == "index" => Some(seq_index(value, args)?),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn string_method(s: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let argument = || from_args::<(&str,)>(args).map(|(argument,)| argument);
    Ok(Some(match method {
        "removeprefix" => Value::from(s.strip_prefix(argument()?).unwrap_or(s)),
        "removesuffix" => Value::from(s.strip_suffix(argument()?).unwrap_or(s)),
        "partition" => {
            let by = separator(argument()?)?;
            let (head, tail) = s.split_once(by).unwrap_or((s, ""));
            triple(head, if head.len() < s.len() { by } else { "" }, tail)
        }
        "rpartition" => {
            let by = separator(argument()?)?;
            let (head, tail) = s.rsplit_once(by).unwrap_or(("", s));
            triple(head, if tail.len() < s.len() { by } else { "" }, tail)
        }
        "rsplit" => rsplit(s, args)?,
        "index" => match s.find(argument()?) {
            Some(at) => Value::from(s[..at].chars().count()),
            None => return Err(refuse("substring not found")),
        },
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let missing = width.min(WIDTH_MAX).saturating_sub(s.chars().count());
            let digits = s.trim_start_matches(['+', '-']);
            // Zeros go after one sign.
            let sign = if digits.len() < s.len() { &s[..1] } else { "" };
            Value::from(format!("{sign}{}{}", "0".repeat(missing), &s[sign.len()..]))
        }
        _ => return Ok(None),
    }))
}

fn rsplit(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (by, splits_max): (Option<&str>, Option<i64>) = from_args(args)?;
    // Python: a negative count is no limit.
    let parts_max = splits_max
        .and_then(|n| usize::try_from(n).ok())
        .map_or(usize::MAX, |n| n.saturating_add(1));
    let mut parts: Vec<&str> = match by {
        Some(by) => s.rsplitn(parts_max, separator(by)?).collect(),
        None => words_from_the_right(s, parts_max),
    };
    parts.reverse();
    Ok(Value::from_iter(parts))
}

/// Words, last first; the part at the limit keeps its inner spaces.
fn words_from_the_right(s: &str, parts_max: usize) -> Vec<&str> {
    let mut words = vec![];
    let mut rest = s.trim_end();
    while !rest.is_empty() {
        let cut = rest.rfind(char::is_whitespace).filter(|_| words.len() + 1 < parts_max);
        let Some(cut) = cut else {
            words.push(rest.trim_start());
            break;
        };
        words.push(rest[cut..].trim_start());
        rest = rest[..cut].trim_end();
    }
    words
}

fn seq_index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(args)?;
    match list.try_iter()?.position(|item| item == wanted) {
        Some(at) => Ok(Value::from(at)),
        None => Err(refuse("value is not in the list")),
    }
}

fn triple(head: &str, by: &str, tail: &str) -> Value {
    Value::from_iter([head, by, tail])
}

fn separator(by: &str) -> Result<&str, Error> {
    if by.is_empty() {
        return Err(refuse("empty separator"));
    }
    Ok(by)
}

fn refuse(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

#[cfg(test)]
mod tests {
    use crate::template::Template;

    fn eval(expression: &str) -> String {
        let source = format!("{{{{ {expression} }}}}");
        match Template::compile(&source, "t").unwrap().render("{}") {
            Ok(text) => text,
            Err(failure) => failure.message,
        }
    }

    #[test]
    fn string_methods() {
        for (expression, text) in [
            ("'abab'.removeprefix('ab')", "ab"),
            ("'abab'.removesuffix('x')", "abab"),
            ("'a=b=c'.partition('=')", "['a', '=', 'b=c']"),
            ("'abc'.partition('=')", "['abc', '', '']"),
            ("'a=b=c'.rpartition('=')", "['a=b', '=', 'c']"),
            ("'abc'.rpartition('=')", "['', '', 'abc']"),
            ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
            ("'a,b,c'.rsplit(',', -1)", "['a', 'b', 'c']"),
            ("' a b  c '.rsplit()", "['a', 'b', 'c']"),
            ("' a b  c '.rsplit(none, 1)", "['a b', 'c']"),
            ("'héllo'.index('l')", "2"),
            ("'-7'.zfill(4)", "-007"),
            ("'42'.zfill(4)", "0042"),
            ("'a b'.split()[1].upper()", "B"),
            ("' x '.strip()", "x"),
        ] {
            assert_eq!(eval(expression), text, "{expression}");
        }
        assert!(eval("'a'.index('z')").contains("substring not found"));
        assert!(eval("'a'.partition('')").contains("empty separator"));
    }

    #[test]
    fn list_methods() {
        assert_eq!(eval("[3, 5].index(5)"), "1");
        assert!(eval("[3].index(5)").contains("not in the list"));
        assert_eq!(eval("{'a': 1}.items() | list"), "[('a', 1)]");
    }
}
