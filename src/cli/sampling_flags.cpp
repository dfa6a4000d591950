#include "cli/sampling_flags.h"

#include <algorithm>
#include <random>
#include <variant>

#include "cli/suggest.h"

namespace tenon::cli {

namespace {

struct Field {
  const char* name;  // JSON; the flag has dashes
  std::variant<double SamplingParams::*, int SamplingParams::*> member;
  double min, max;
  const char* help;
};

using S = SamplingParams;
const Field kFields[] = {
    {"temperature", &S::temperature, 0, 5, "0 takes the likeliest token"},
    {"top_p", &S::top_p, 0, 1, "keep the likeliest tokens up to this probability; 1: off"},
    {"top_k", &S::top_k, 0, 1e9, "keep this many likeliest tokens; 0: off"},
    {"min_p", &S::min_p, 0, 1, "drop tokens below this share of the likeliest; 0: off"},
    {"xtc_probability", &S::xtc_probability, 0, 1, "chance to exclude top choices; 0: off"},
    {"xtc_threshold", &S::xtc_threshold, 0, 0.5, "probability that makes a top choice"},
    {"repetition_penalty", &S::repetition_penalty, kRepetitionPenaltyMin, 100,
     "divides repeated logits; 1: off"},
    {"repetition_context_size", &S::repetition_context, 1, 1e9, "tokens looked back over"},
    {"presence_penalty", &S::presence_penalty, -2, 2, "subtracted once if seen; 0: off"},
    {"presence_context_size", &S::presence_context, 1, 1e9, "tokens looked back over"},
    {"frequency_penalty", &S::frequency_penalty, -2, 2, "subtracted per occurrence; 0: off"},
    {"frequency_context_size", &S::frequency_context, 1, 1e9, "tokens looked back over"},
};

bool is_whole(const Field& field) { return field.member.index() == 1; }

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

void set_field(SamplingParams& params, const Field& field, double value) {
  if (auto* real = std::get_if<double S::*>(&field.member)) params.*(*real) = value;
  if (auto* whole = std::get_if<int S::*>(&field.member))
    params.*(*whole) = static_cast<int>(value);
}

// What is wrong with `text` for this field, or "" and the value.
std::string parse_field(const Field& field, std::string_view text, double* value) {
  std::optional<double> number = to_double(text);
  if (is_whole(field) && !to_int(text)) return "must be a whole number";
  if (!number) return "must be a number";
  bool above_zero = std::string_view(field.name) == "top_p";  // (0, 1]: nothing would be left at 0
  if (*number < field.min || *number > field.max || (above_zero && *number <= 0)) {
    return fmt::format("must be {} {} to {}", above_zero ? "above" : "from", field.min, field.max);
  }
  *value = *number;
  return "";
}

}  // namespace

void SamplingFlags::declare(Flags& flags) {
  for (const Field& field : kFields) {
    auto set = [this, &field](const std::string& text) {
      double value = 0;
      std::string wrong = parse_field(field, text, &value);
      if (wrong.empty()) given_[field.name] = value;
      return wrong;
    };
    flags.add(dashed(field.name), is_whole(field) ? "N" : "X", field.help, set, {});
  }
}

Json SamplingFlags::overrides() const {
  Json json;
  for (const Field& field : kFields) {
    auto found = given_.find(field.name);
    if (found == given_.end()) continue;
    if (is_whole(field)) {
      json[field.name] = static_cast<int64_t>(found->second);
    } else {
      json[field.name] = found->second;
    }
  }
  return json;
}

void SamplingFlags::apply(SamplingParams& params) const {
  for (const Field& field : kFields) {
    auto found = given_.find(field.name);
    if (found != given_.end()) set_field(params, field, found->second);
  }
}

Status set_sampling(SamplingParams& params, std::string_view name, std::string_view value) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  std::vector<std::string> known;
  for (const Field& field : kFields) {
    known.push_back(field.name);
    if (wanted != field.name) continue;
    double number = 0;
    std::string wrong = parse_field(field, value, &number);
    if (!wrong.empty()) return invalid("{}: '{}' {}", field.name, value, wrong);
    set_field(params, field, number);
    return {};
  }
  return invalid("no setting named '{}'{}", name, did_you_mean(wanted, known));
}

std::string show_sampling(const SamplingParams& params) {
  std::string text;
  for (const Field& field : kFields) {
    double value = 0;
    if (auto* real = std::get_if<double S::*>(&field.member)) value = params.*(*real);
    if (auto* whole = std::get_if<int S::*>(&field.member)) value = params.*(*whole);
    text += fmt::format("{:<24} {}\n", field.name, value);
  }
  return text;
}

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace tenon::cli
