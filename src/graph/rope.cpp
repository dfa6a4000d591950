#include "graph/rope.h"

#include <cmath>
#include <limits>

namespace tenon::graph {

namespace {

namespace mx = mlx::core;
constexpr const char* kWhere = "config.json rope_scaling";

mx::array f32(double v) { return mx::array(static_cast<float>(v), mx::float32); }

// base ** (arange(0, count, 2) / dims), float32
mx::array wavelengths(double base, int count, int dims) {
  const mx::array exponents = mx::arange(0.0, count, 2.0, mx::float32) / f32(dims);
  return mx::power(f32(base), exponents);
}

Result<double> factor_of(const Json& scaling) {
  TENON_TRY(const double factor, json_number(scaling, "factor", kWhere));
  if (!(factor > 0)) return invalid("{}.factor must be above 0", kWhere).at("rope_scaling");
  return factor;
}

Result<ops::Rope> make_llama3(const RopeRequest& r, ops::Rope rope) {
  TENON_TRY(const double factor, factor_of(r.scaling));
  TENON_TRY(const double low_ff, json_number_or(r.scaling, "low_freq_factor", kWhere, 1.0));
  TENON_TRY(const double high_ff, json_number_or(r.scaling, "high_freq_factor", kWhere, 4.0));
  TENON_TRY(const double old_len,
            json_number_or(r.scaling, "original_max_position_embeddings", kWhere, 8192));
  if (!(low_ff > 0 && high_ff > low_ff && old_len > 0))
    return invalid(
               "{}: low_freq_factor, high_freq_factor and original_max_position_embeddings must "
               "rise above 0",
               kWhere)
        .at("rope_scaling");
  const mx::array freqs = wavelengths(r.base, r.dims, r.dims);
  const mx::array waves = f32(2 * M_PI) * freqs;
  const mx::array low = f32(old_len / low_ff), high = f32(old_len / high_ff);
  const mx::array stretched = mx::where(waves > low, freqs * f32(factor), freqs);
  const mx::array medium = mx::logical_and(waves > high, waves < low);
  const mx::array smooth = (f32(old_len) / waves - f32(low_ff)) / f32(high_ff - low_ff);
  const mx::array blended = stretched / ((f32(1) - smooth) / f32(factor) + smooth);
  rope.freqs = mx::where(medium, blended, stretched);
  return rope;
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

Result<ops::Rope> make_yarn(const RopeRequest& r, ops::Rope rope) {
  TENON_TRY(const double factor, factor_of(r.scaling));
  TENON_TRY(const double old_len,
            json_number_or(r.scaling, "original_max_position_embeddings", kWhere, 4096));
  TENON_TRY(const double beta_fast, json_number_or(r.scaling, "beta_fast", kWhere, 32));
  TENON_TRY(const double beta_slow, json_number_or(r.scaling, "beta_slow", kWhere, 1));
  TENON_TRY(const double mscale, json_number_or(r.scaling, "mscale", kWhere, 1));
  TENON_TRY(const double mscale_all, json_number_or(r.scaling, "mscale_all_dim", kWhere, 0));
  if (!(beta_fast > 0 && beta_slow > 0 && old_len > 0))
    return invalid("{}: beta_fast, beta_slow and original_max_position_embeddings must be above 0",
                   kWhere)
        .at("rope_scaling");
  const auto correction_dim = [&](double rotations) {
    return r.dims * std::log(old_len / (rotations * 2 * M_PI)) / (2 * std::log(r.base));
  };
  const double low = std::max(std::floor(correction_dim(beta_fast)), 0.0);
  double high = std::min(std::ceil(correction_dim(beta_slow)), r.dims - 1.0);
  if (low == high) high += 0.001;  // the ramp divides by their difference
  const mx::array extra = wavelengths(r.base, r.dims, r.dims);
  const mx::array inter = f32(factor) * extra;
  const mx::array ramp = mx::clip(
      (mx::arange(0.0, r.dims / 2, 1.0, mx::float32) - f32(low)) / f32(high - low), f32(0), f32(1));
  const mx::array mask = f32(1) - ramp;
  rope.freqs = (inter * extra) / (inter * mask + extra * (f32(1) - mask));
  rope.input_scale =
      static_cast<float>(yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all));
  return rope;
}

Result<ops::Rope> make_longrope(const RopeRequest& r, ops::Rope rope) {
  TENON_TRY(const double old_len,
            json_number(r.scaling, "original_max_position_embeddings", kWhere));
  const auto it = r.scaling.find("long_factor");
  if (it == r.scaling.end() || !it->is_array() || it->size() != static_cast<size_t>(r.dims / 2))
    return invalid("{}.long_factor must be a list of {} numbers", kWhere, r.dims / 2)
        .at("rope_scaling");
  std::vector<float> factors;
  for (const Json& f : *it) {
    if (!f.is_number())
      return invalid("{}.long_factor holds {}", kWhere, f.dump()).at("rope_scaling");
    factors.push_back(f.get<float>());
  }
  rope.freqs =
      mx::array(factors.begin(), {r.dims / 2}, mx::float32) * wavelengths(r.base, r.dims, r.dims);
  const double ratio = r.max_positions / old_len;
  rope.input_scale =
      ratio <= 1 ? 1.0f : static_cast<float>(std::sqrt(1 + std::log(ratio) / std::log(old_len)));
  return rope;
}

Result<ops::Rope> make_proportional(const RopeRequest& r, ops::Rope rope) {
  TENON_TRY(const double part, json_number_or(r.scaling, "partial_rotary_factor", kWhere, 1.0));
  TENON_TRY(const double factor, json_number_or(r.scaling, "factor", kWhere, 1.0));
  const int rotated = static_cast<int>(r.dims * part);
  if (rotated < 0 || rotated > r.dims)
    return invalid("{}.partial_rotary_factor {} is outside 0..1", kWhere, part).at("rope_scaling");
  // Exponents run over the whole head (not the rotated part); unrotated pairs have angle 0.
  const mx::array turning = f32(factor) * wavelengths(r.base, rotated, r.dims);
  const mx::array still =
      mx::full({(r.dims - rotated) / 2}, std::numeric_limits<float>::infinity());
  rope.freqs = mx::concatenate({turning, still});
  return rope;
}

// default, mrope, linear, dynamic: a base, and what stretches positions.
Result<ops::Rope> make_plain(const RopeRequest& r, const std::string& type, ops::Rope rope) {
  rope.base = static_cast<float>(r.base);
  if (type == "mrope") {
    // Of text all three are the same position.
    const auto sections = r.scaling.find("mrope_section");
    if (sections == r.scaling.end() || !sections->is_array() || sections->size() != 3)
      return invalid("{}.mrope_section must be a list of 3 sizes", kWhere).at("mrope_section");
  }
  if (type == "default" || type == "mrope") return rope;
  TENON_TRY(const double factor, factor_of(r.scaling));
  if (type == "linear") {
    rope.scale = static_cast<float>(1 / factor);
  } else {
    rope.dynamic_factor = static_cast<float>(factor);
    rope.dynamic_max_positions = r.max_positions;
  }
  return rope;
}

Result<ops::Rope> make_of_type(const RopeRequest& r, const std::string& type, ops::Rope rope) {
  if (type == "llama3") return make_llama3(r, std::move(rope));
  if (type == "yarn" || type == "deepseek_yarn" || type == "telechat3-yarn")
    return make_yarn(r, std::move(rope));
  if (type == "longrope") return make_longrope(r, std::move(rope));
  if (type == "proportional") return make_proportional(r, std::move(rope));
  if (type == "default" || type == "mrope" || type == "linear" || type == "dynamic")
    return make_plain(r, type, std::move(rope));
  return unsupported("{}: type '{}' is not known", kWhere, type);
}

}  // namespace

Result<ops::Rope> make_rope(const RopeRequest& r) {
  if (r.dims <= 0 || r.dims % 2 != 0) return invalid("config.json: RoPE over {} dims", r.dims);
  ops::Rope rope;
  rope.dims = r.dims;
  rope.traditional = r.traditional;
  std::string type = "default";
  if (r.scaling.is_object()) {
    TENON_TRY(const std::string newer, json_string_or(r.scaling, "rope_type", kWhere, "default"));
    TENON_TRY(type, json_string_or(r.scaling, "type", kWhere, newer));
  }
  TENON_TRY(ops::Rope made, make_of_type(r, type, std::move(rope)));
  if (!r.factors.empty()) {
    if (static_cast<int>(r.factors.size()) != r.dims / 2)
      return invalid("rope_freqs.weight: {} factors for RoPE over {} dims", r.factors.size(),
                     r.dims);
    if (made.dynamic_max_positions > 0)
      return unsupported("rope_freqs.weight beside dynamic RoPE scaling");
    if (!made.freqs) made.freqs = wavelengths(r.base, r.dims, r.dims);
    made.base.reset();
    made.freqs = *made.freqs * mx::array(r.factors.begin(), {r.dims / 2}, mx::float32);
  }
  if (made.freqs) mx::eval(*made.freqs);
  return made;
}

}  // namespace tenon::graph
