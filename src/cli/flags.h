// Strict command-line flags of one verb, over CLI11 (which only flags.cpp includes).
// A value comes from the command line (`--x v`, `--x=v`), else the environment (TENON_X), else
// the file named by --config (TOML; `max-batch = 4` at the top or under [verb]), else stays as it
// was. All three go through the same setter, so they are checked alike and errors name where the
// value stood. Thread: one. Targets must outlive parse().
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tenon::cli {

class Flags {
 public:
  Flags(std::string verb, std::string summary);
  ~Flags();

  // The setter gets one value and returns what is wrong with it ("is not a whole number"), or "".
  using Setter = std::function<std::string(const std::string&)>;
  struct Shape {
    bool repeat = false;  // may be given more than once; else twice is an error
    bool positional = false;  // a bare argument; not in the environment or the file
    bool is_switch = false;  // no value on the command line: means "true"
  };
  void add(const std::string& name, const std::string& metavar, const std::string& help, Setter set,
           Shape shape);

  // Shorthands; `name` without dashes. The current value of the target is the default.
  void text(const std::string& name, std::string* target, const std::string& help,
            const std::string& metavar = "TEXT");
  void choice(const std::string& name, std::string* target, std::vector<std::string> allowed,
              const std::string& help);
  void integer(const std::string& name, int64_t* target, int64_t min, int64_t max,
               const std::string& help, const std::string& metavar = "N");
  void integer(const std::string& name, int* target, int min, int max, const std::string& help,
               const std::string& metavar = "N");
  void seed(const std::string& name, std::optional<uint64_t>* target, const std::string& help);
  void toggle(const std::string& name, bool* target, const std::string& help);
  void texts(const std::string& name, std::vector<std::string>* target, const std::string& help,
             const std::string& metavar = "TEXT");
  void int_list(const std::string& name, std::vector<int>* target, int min, int max,
                const std::string& help);
  void positional(const std::string& name, std::optional<std::string>* target,
                  const std::string& help);

  // Names that other verbs know: a shared --config file may hold them without being an error here.
  void known_elsewhere(std::vector<std::string> names);

  enum class Outcome { run, help };  // help: it was asked for and is in help_text()
  // Errors (Code::invalid) are usage errors.
  Result<Outcome> parse(const std::vector<std::string>& args);
  std::string help_text() const;
  std::vector<std::string> names() const;  // without dashes

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whole-string number parsing; nothing on any leftover character, overflow, NaN or infinity.
std::optional<int64_t> to_int(std::string_view text);
std::optional<uint64_t> to_uint(std::string_view text);
std::optional<double> to_double(std::string_view text);
// "1,2,3"; nothing on an empty list or a bad item.
std::optional<std::vector<int>> to_int_list(std::string_view text, int min, int max);

}  // namespace tenon::cli
