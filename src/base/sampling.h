// The numeric sampling settings, in one table: what requests, flags, generation_config.json and a
// chat's /set call them, where they live and what they may be. Thread: immutable.
#pragma once
#include <span>
#include <string_view>
#include <variant>

#include "base/generation.h"
#include "base/result.h"

namespace tenon {

struct SamplingField {
  const char* name;  // as in JSON; a flag has dashes
  std::variant<double SamplingParams::*, int SamplingParams::*> member;
  double min, max;
  bool above_min;  // the minimum itself is out
  const char* help;

  bool is_whole() const { return member.index() == 1; }
  double get(const SamplingParams& params) const;
  // Errors: invalid, "must be ..." without the field's name.
  Status set(SamplingParams& params, double value) const;
};
std::span<const SamplingField> sampling_fields();
const SamplingField* find_sampling_field(std::string_view name);  // null: no such field

}  // namespace tenon
