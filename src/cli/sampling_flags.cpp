#include "cli/sampling_flags.h"

#include <algorithm>
#include <random>

#include "base/sampling.h"
#include "cli/suggest.h"

namespace tenon::cli {

namespace {

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Sets the field from text; what is wrong with it, or "".
std::string set_from_text(SamplingParams& params, const SamplingField& field,
                          std::string_view text) {
  if (field.is_whole() && !to_int(text)) return "must be a whole number";
  const std::optional<double> number = to_double(text);
  if (!number) return "must be a number";
  const Status set = field.set(params, *number);
  return set.ok() ? "" : set.error().message;
}

}  // namespace

void SamplingFlags::declare(Flags& flags) {
  for (const SamplingField& field : sampling_fields()) {
    auto set = [this, &field](const std::string& text) {
      SamplingParams params;
      std::string wrong = set_from_text(params, field, text);
      if (wrong.empty()) given_[field.name] = field.get(params);
      return wrong;
    };
    flags.add(dashed(field.name), field.is_whole() ? "N" : "X", field.help, set, {});
  }
}

Json SamplingFlags::overrides() const {
  Json json;
  for (const auto& [name, value] : given_)
    json[name] =
        find_sampling_field(name)->is_whole() ? Json(static_cast<int64_t>(value)) : Json(value);
  return json;
}

void SamplingFlags::apply(SamplingParams& params) const {
  for (const auto& [name, value] : given_)
    static_cast<void>(find_sampling_field(name)->set(params, value));  // was checked when given
}

Status set_sampling(SamplingParams& params, std::string_view name, std::string_view value) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  if (const SamplingField* field = find_sampling_field(wanted)) {
    const std::string wrong = set_from_text(params, *field, value);
    return wrong.empty() ? Status() : invalid("{}: '{}' {}", field->name, value, wrong);
  }
  std::vector<std::string> known;
  for (const SamplingField& field : sampling_fields()) known.emplace_back(field.name);
  return invalid("no setting named '{}'{}", name, did_you_mean(wanted, known));
}

std::string show_sampling(const SamplingParams& params) {
  std::string text;
  for (const SamplingField& field : sampling_fields())
    text += fmt::format("{:<24} {}\n", field.name, field.get(params));
  return text;
}

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace tenon::cli
