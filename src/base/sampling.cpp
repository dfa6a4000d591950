#include "base/sampling.h"

#include <cmath>

namespace tenon {

namespace {

using S = SamplingParams;
constexpr double kContextMax = 1 << 20;  // tokens that a penalty looks back over
constexpr double kWholeMax = 1e9;

constexpr SamplingField kFields[] = {
    {"temperature", &S::temperature, 0, 5, false, "0 takes the likeliest token"},
    {"top_p", &S::top_p, 0, 1, true, "keep the likeliest tokens up to this probability; 1: off"},
    {"top_k", &S::top_k, -1, kWholeMax, false, "keep this many likeliest tokens; 0 or -1: off"},
    {"min_p", &S::min_p, 0, 1, false, "drop tokens below this share of the likeliest; 0: off"},
    {"xtc_probability", &S::xtc_probability, 0, 1, false, "chance to exclude top choices; 0: off"},
    {"xtc_threshold", &S::xtc_threshold, 0, 1, true, "probability that makes a top choice"},
    {"repetition_penalty", &S::repetition_penalty, kRepetitionPenaltyMin, 100, false,
     "divides repeated logits; 1: off"},
    {"repetition_context_size", &S::repetition_context, 1, kContextMax, false,
     "tokens looked back over"},
    {"presence_penalty", &S::presence_penalty, -2, 2, false, "subtracted once if seen; 0: off"},
    {"presence_context_size", &S::presence_context, 1, kContextMax, false,
     "tokens looked back over"},
    {"frequency_penalty", &S::frequency_penalty, -2, 2, false, "subtracted per occurrence; 0: off"},
    {"frequency_context_size", &S::frequency_context, 1, kContextMax, false,
     "tokens looked back over"},
};

}  // namespace

double SamplingField::get(const SamplingParams& params) const {
  const auto* real = std::get_if<double S::*>(&member);
  return real ? params.*(*real) : params.*std::get<int S::*>(member);
}

Status SamplingField::set(SamplingParams& params, double value) const {
  const bool inside = (above_min ? value > min : value >= min) && value <= max;
  if (!inside)  // NaN is not inside
    return invalid("must be {} {} {} {}", above_min ? "above" : "from", min,
                   above_min ? "and at most" : "to", max);
  if (is_whole() && value != std::floor(value)) return invalid("must be a whole number");
  if (const auto* real = std::get_if<double S::*>(&member))
    params.*(*real) = value;
  else
    params.*std::get<int S::*>(member) = static_cast<int>(value);
  return {};
}

std::span<const SamplingField> sampling_fields() { return kFields; }

const SamplingField* find_sampling_field(std::string_view name) {
  for (const SamplingField& field : kFields)
    if (name == field.name) return &field;
  return nullptr;
}

}  // namespace tenon
