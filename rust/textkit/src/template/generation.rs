//! `{% generation %}` marks assistant text for training. Rendering needs only its contents, and the
//! trim marks of its tags.

/// `source` with the tag pair turned into `if true` and `endif`.
pub fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (text, tag_on) = rest.split_at(start);
        out.push_str(text);
        let Some(len) = tag_on[2..].find("%}").map(|end| end + 4) else {
            return out + tag_on;
        };
        let (tag, after) = tag_on.split_at(len);
        let is_trim = |c: char| matches!(c, '-' | '+') || c.is_whitespace();
        match tag[2..len - 2].trim_matches(is_trim) {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::without_generation_tags as without;

    #[test]
    fn replaces_only_the_tags() {
        assert_eq!(
            without("a{%- generation -%}b{% endgeneration %}c"),
            "a{%- if true -%}b{% endif %}c"
        );
        let other = "{% if generation %}generation{% endif %} {{ generation }} {% x";
        assert_eq!(without(other), other);
        assert_eq!(without("{%}"), "{%}");
        assert_eq!(without("é{%é%}é"), "é{%é%}é");
    }
}
