// From headers to jobs (declared in conversion.h).
#include <algorithm>

#include "checkpoint/conversion.h"
#include "checkpoint/quantization.h"
#include "ops/ops.h"

namespace tenon::checkpoint {

namespace {

constexpr std::string_view kWeight = ".weight";
constexpr int kBlockGroup = 32;

bool is_float(Format format) {
  return format == Format::f32 || format == Format::f16 || format == Format::bf16 ||
         format == Format::f64;
}
bool is_blocks(Format format) { return format_block(format).elements > 1; }

class Planner {
 public:
  Planner(const Weights& weights, const Json& quantization, const ConvertOptions& options,
          const std::string& source)
      : weights_(weights),
        quantization_(quantization),
        options_(options),
        source_(source),
        used_(options.overrides.size()) {}

  Result<ConversionPlan> plan() {
    ConversionPlan plan;
    for (const std::string& name : weights_.names()) {
      if (is_part(name)) continue;
      TENON_TRY(Job job, read(name));
      TENON_OK(choose(job));
      put_headers(job, name);
      plan.jobs.push_back(std::move(job));
    }
    for (size_t i = 0; i < used_.size(); ++i)
      if (!used_[i])
        return invalid("{}: no matrix is named {}", source_, options_.overrides[i].pattern);
    plan.quantization = describe(plan.jobs);
    return plan;
  }

 private:
  // Scales and biases travel with their matrix.
  bool is_part(const std::string& name) const {
    for (std::string_view part : {".scales", ".biases"})
      if (name.ends_with(part)) {
        const std::string path = name.substr(0, name.size() - part.size());
        return weights_.has(path + ".scales") && weights_.has(path + std::string(kWeight));
      }
    return false;
  }

  Result<Job> read(const std::string& name) const {
    Job job;
    job.weight = *weights_.find(name);
    const bool named = name.ends_with(kWeight);
    job.path = named ? name.substr(0, name.size() - kWeight.size()) : name;
    job.stored.quantized = false;
    if (!job.weight.shape.empty()) job.row_len = job.weight.shape.back();
    if (named) job.scales = weights_.find(job.path + ".scales");
    if (job.scales) {
      TENON_OK(read_quantized(job));
    } else if (ops::is_affine_block(job.weight.format)) {
      job.stored = {true, ops::affine_block_bits(job.weight.format), kBlockGroup};
    }
    job.dtype = float_format(job);
    return job;
  }

  Status read_quantized(Job& job) const {
    TENON_TRY(job.stored, scheme_of(quantization_, job.path, source_));
    if (!job.stored.quantized)
      return corrupt("{}: tensor {}.scales is there, but the config says that {} is not quantized",
                     source_, job.path, job.path);
    job.biases = weights_.find(job.path + ".biases");
    const bool affine = job.stored.mode == QuantMode::affine;
    if (affine != job.biases.has_value())
      return corrupt("{}: tensor {}.biases is {}, the mode is {}", source_, job.path,
                     affine ? "missing" : "there", quant_mode_name(job.stored.mode));
    const int64_t groups = job.scales->shape.empty() ? 0 : job.scales->shape.back();
    const int64_t words = job.weight.shape.empty() ? 0 : job.weight.shape.back();
    job.row_len = groups * job.stored.group_size;
    if (job.weight.format != Format::u32 || job.row_len * job.stored.bits != words * 32 ||
        (affine && job.biases->shape != job.scales->shape))
      return corrupt("{}: {}: weight and scales do not fit {} bits in groups of {}", source_,
                     job.path, job.stored.bits, job.stored.group_size);
    return {};
  }

  Format float_format(const Job& job) const {
    const bool packed = job.scales || is_blocks(job.weight.format);
    if (!packed && !is_float(job.weight.format)) return job.weight.format;  // integers stay
    if (options_.dtype) return *options_.dtype;
    if (job.biases) return job.scales->format;
    if (job.scales) return Format::bf16;
    return packed ? Format::f16 : job.weight.format;
  }

  Status choose(Job& job) {
    const bool matrix = job.weight.shape.size() >= 2 && job.weight.name != job.path &&
                        (job.scales || is_blocks(job.weight.format) || is_float(job.weight.format));
    job.wanted = job.stored;
    if (!matrix) return {};
    const auto fits = [&](const Scheme& scheme) {
      return !scheme.quantized || job.row_len % scheme.group_size == 0;
    };
    if (options_.scheme)
      job.wanted = fits(*options_.scheme) ? *options_.scheme : Scheme{.quantized = false};
    for (size_t i = 0; i < options_.overrides.size(); ++i) {
      const ConvertOptions::Override& own = options_.overrides[i];
      if (!matches(own.pattern, job.path)) continue;
      used_[i] = true;
      job.wanted = own.scheme;
    }
    if (!fits(job.wanted))
      return invalid("{}: rows of {} are not whole groups of {}", job.path, job.row_len,
                     job.wanted.group_size);
    // mlx-lm quantizes no 64-bit floats either.
    if (job.wanted.quantized && job.dtype == Format::f64) job.dtype = Format::f32;
    return {};
  }

  static void put_headers(Job& job, const std::string& name) {
    std::vector<int64_t> shape = job.weight.shape;
    const auto with_rows_of = [&](int64_t len) {
      if (!shape.empty()) shape.back() = len;
      return shape;
    };
    if (!job.wanted.quantized) {
      job.out.push_back({name, job.dtype, with_rows_of(job.row_len)});
      return;
    }
    const auto& [quantized, bits, group, mode] = job.wanted;
    const bool affine = mode == QuantMode::affine;
    job.out.push_back({name, Format::u32, with_rows_of(job.row_len * bits / 32)});
    const auto scales_shape = with_rows_of(job.row_len / group);
    job.out.push_back({job.path + ".scales", affine ? job.dtype : Format::u8, scales_shape});
    if (affine) job.out.push_back({job.path + ".biases", job.dtype, scales_shape});
  }

  static Json object_of(const Scheme& scheme) {
    return {{"group_size", scheme.group_size},
            {"bits", scheme.bits},
            {"mode", quant_mode_name(scheme.mode)}};
  }

  // The scheme asked for is the default, or that of most weights; the others are named.
  Json describe(const std::vector<Job>& jobs) const {
    std::vector<std::pair<Scheme, uint64_t>> seen;
    for (const Job& job : jobs) {
      if (!job.wanted.quantized) continue;
      auto it = std::find_if(seen.begin(), seen.end(),
                             [&](const auto& entry) { return entry.first == job.wanted; });
      if (it == seen.end()) it = seen.insert(seen.end(), {job.wanted, 0});
      it->second += job.elements();
    }
    if (seen.empty()) return Json();
    const auto usual_entry = std::max_element(seen.begin(), seen.end(), [&](auto& a, auto& b) {
      if (a.first == options_.scheme || b.first == options_.scheme)
        return b.first == options_.scheme;
      return a.second < b.second;
    });
    const Scheme usual = usual_entry->first;
    Json object = object_of(usual);
    for (const Job& job : jobs)
      if (job.wanted.quantized && job.wanted != usual) object[job.path] = object_of(job.wanted);
    return object;
  }

  const Weights& weights_;
  const Json& quantization_;
  const ConvertOptions& options_;
  const std::string& source_;
  std::vector<bool> used_;  // of the overrides
};

}  // namespace

uint64_t Job::source_bytes() const {
  return weight.bytes.size() + (scales ? scales->bytes.size() : 0) +
         (biases ? biases->bytes.size() : 0);
}

uint64_t Job::elements() const {
  uint64_t count = static_cast<uint64_t>(weight.shape.empty() ? 1 : row_len);
  for (size_t i = 0; i + 1 < weight.shape.size(); ++i)
    count *= static_cast<uint64_t>(weight.shape[i]);
  return count;
}

Result<ConversionPlan> plan_conversion(const Weights& weights, const Json& quantization,
                                       const ConvertOptions& options, const std::string& source) {
  return Planner(weights, quantization, options, source).plan();
}

bool matches(std::string_view pattern, std::string_view text) {
  // The last * seen and where the text stood: on a mismatch it takes one character more.
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace tenon::checkpoint
