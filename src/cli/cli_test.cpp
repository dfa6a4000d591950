// Flags, suggestions, and what verbs do before a model is loaded.
#include "cli/cli.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "cli/command.h"
#include "cli/sampling_flags.h"
#include "cli/suggest.h"

namespace tenon::cli {
namespace {

int run_words(std::vector<std::string> words) {
  words.insert(words.begin(), "tenon");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return run(static_cast<int>(argv.size()), argv.data());
}

TEST(Suggest, Distance) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("port", "prot"), 1);
  EXPECT_EQ(edit_distance("--temprature", "--temperature"), 1);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

TEST(Suggest, NearestOrNothing) {
  std::vector<std::string> verbs{"serve", "chat", "generate", "ls"};
  EXPECT_EQ(nearest("serv", verbs), "serve");
  EXPECT_EQ(nearest("gen", verbs), "generate");
  EXPECT_EQ(nearest("sl", verbs), "ls");
  EXPECT_EQ(nearest("frobnicate", verbs), "");
}

class FlagsTest : public testing::Test {
 protected:
  void SetUp() override {
    flags_.integer("port", &port_, 0, 65535, "port");
    flags_.text("model", &model_, "model");
    flags_.choice("kv", &kv_, {"auto", "f32"}, "kv");
    flags_.toggle("json", &json_, "json");
    flags_.texts("stop", &stops_, "stop");
    flags_.int_list("batch", &batch_, 1, 64, "batch");
    flags_.positional("PROMPT", &prompt_, "prompt");
    flags_.known_elsewhere({"repeat"});
  }
  void TearDown() override {
    unsetenv("TENON_PORT");
    unsetenv("TENON_JSON");
  }
  std::string wrong(const std::vector<std::string>& args) {
    auto parsed = flags_.parse(args);
    return parsed ? "" : parsed.error().message;
  }
  std::string config(const std::string& text) {
    std::string path = testing::TempDir() + "/flags_test.toml";
    std::ofstream(path) << text;
    return path;
  }

  Flags flags_{"try", "for tests"};
  int port_ = 8080;
  std::string model_, kv_ = "auto";
  bool json_ = false;
  std::vector<std::string> stops_;
  std::vector<int> batch_{1};
  std::optional<std::string> prompt_;
};

TEST_F(FlagsTest, BothSpellingsAndRepeats) {
  EXPECT_EQ(wrong({"--port", "1", "--model=a=b", "--stop", "[x,y]", "--stop=--z", "--json",
                   "--batch", "1,2,4", "hello there"}),
            "");
  EXPECT_EQ(port_, 1);
  EXPECT_EQ(model_, "a=b");
  EXPECT_EQ(stops_, (std::vector<std::string>{"[x,y]", "--z"}));
  EXPECT_TRUE(json_);
  EXPECT_EQ(batch_, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(prompt_, "hello there");
}

TEST_F(FlagsTest, ErrorsNameTheFlag) {
  EXPECT_NE(wrong({"--prot", "1"}).find("unknown flag --prot; did you mean --port?"),
            std::string::npos);
}
TEST_F(FlagsTest, UnknownFlagWithEqualsSign) {
  EXPECT_NE(wrong({"--modle=x"}).find("did you mean --model?"), std::string::npos);
}
TEST_F(FlagsTest, NotANumber) {
  EXPECT_EQ(wrong({"--port", "80x"}), "--port: '80x' must be a whole number");
}
TEST_F(FlagsTest, OutOfRange) {
  EXPECT_EQ(wrong({"--port=65536"}), "--port: '65536' must be from 0 to 65535");
}
TEST_F(FlagsTest, NotAChoice) {
  EXPECT_EQ(wrong({"--kv", "f23"}), "--kv: 'f23' must be one of auto, f32; did you mean f32?");
}
TEST_F(FlagsTest, TwiceIsAnError) {
  EXPECT_EQ(wrong({"--port", "1", "--port", "2"}), "--port: given 2 times, takes one value");
}
TEST_F(FlagsTest, MissingValue) { EXPECT_NE(wrong({"--port"}).find("--port"), std::string::npos); }
TEST_F(FlagsTest, SecondPositional) {
  EXPECT_NE(wrong({"a", "b"}).find("unexpected argument 'b'"), std::string::npos);
}
TEST_F(FlagsTest, SwitchWithValue) {
  EXPECT_EQ(wrong({"--json=false"}), "");
  EXPECT_FALSE(json_);
}

TEST_F(FlagsTest, FlagOverEnvironmentOverFile) {
  std::string path = config("port = 3\nbatch = [1, 2]\nkv = \"f32\"\n[try]\nmodel = \"m\"\n");
  setenv("TENON_PORT", "2", 1);
  setenv("TENON_JSON", "1", 1);
  EXPECT_EQ(wrong({"--config", path}), "");
  EXPECT_EQ(port_, 2);
  EXPECT_EQ(kv_, "f32");
  EXPECT_EQ(model_, "m");
  EXPECT_TRUE(json_);
  EXPECT_EQ(batch_, (std::vector<int>{1, 2}));
}
TEST_F(FlagsTest, EnvironmentErrorsNameTheVariable) {
  setenv("TENON_PORT", "x", 1);
  EXPECT_EQ(wrong({}), "TENON_PORT: 'x' must be a whole number");
}
TEST_F(FlagsTest, SectionOfTheVerbWins) {
  EXPECT_EQ(wrong({"--config", config("port = 3\n[other]\nport = 4\nx = 1\n[try]\nport = 5\n")}),
            "");
  EXPECT_EQ(port_, 5);
}
TEST_F(FlagsTest, FileErrors) {
  EXPECT_NE(
      wrong({"--config", config("prot = 3\n")}).find("unknown key 'prot'; did you mean port?"),
      std::string::npos);
  EXPECT_NE(wrong({"--config", "/nowhere.toml"}).find("cannot read /nowhere.toml"),
            std::string::npos);
}
TEST_F(FlagsTest, KeysOfOtherVerbsAreFineInASharedFile) {
  EXPECT_EQ(wrong({"--config", config("repeat = 3\nport = 9\n")}), "");
  EXPECT_EQ(port_, 9);
}
TEST_F(FlagsTest, KeysOfOtherVerbsAreWrongInOwnSection) {
  EXPECT_NE(wrong({"--config", config("[try]\nrepeat = 3\n")}), "");
}

TEST(Sampling, OneTableForFlagsAndParams) {
  SamplingFlags sampling;
  Flags flags("try", "");
  sampling.declare(flags);
  EXPECT_TRUE(sampling.overrides().is_null());
  ASSERT_TRUE(flags.parse({"--temperature", "0.5", "--top-k=40"}).ok());
  EXPECT_EQ(sampling.overrides().dump(), R"({"temperature":0.5,"top_k":40})");
  SamplingParams params;
  EXPECT_TRUE(set_sampling(params, "top-p", "0.9").ok());
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_TRUE(set_sampling(params, "top_k", "7").ok());
  EXPECT_EQ(params.top_k, 7);
  EXPECT_FALSE(set_sampling(params, "top_p", "0").ok());
  EXPECT_FALSE(set_sampling(params, "top_k", "1.5").ok());
  EXPECT_FALSE(set_sampling(params, "temperature", "nan").ok());
  EXPECT_NE(set_sampling(params, "tmperature", "1").error().message.find("temperature"),
            std::string::npos);
}

TEST(Cli, ExitCodes) {
  EXPECT_EQ(run_words({"--version"}), 0);
  EXPECT_EQ(run_words({"--help"}), 0);
  EXPECT_EQ(run_words({"serv"}), 2);
  EXPECT_EQ(run_words({"serve", "--prot", "1"}), 2);
  EXPECT_EQ(run_words({"--prot", "1"}), 2);  // no verb: serve
  EXPECT_EQ(run_words({"logits"}), 2);
  EXPECT_EQ(run_words({"generate", "--raw", "--system", "x", "hi"}), 2);
  EXPECT_EQ(run_words({"info", "--model", "/nowhere/model"}), 1);
}

TEST(Cli, EveryVerbHasHelpAndUniqueFlags) {
  for (const Command& command : commands()) {
    Flags flags(command.name, command.summary);
    command.make()->declare(flags);
    std::vector<std::string> names = flags.names();
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
    EXPECT_EQ(run_words({command.name, "--help"}), 0);
  }
}

// A flag for something that does not exist must be unknown, not accepted and ignored.
TEST(Cli, FlagsOfMissingFeaturesAreUnknown) {
  for (const char* flag :
       {"--memory-budget", "--prefix-cache", "--disk-cache", "--models-dir", "--pin", "--idle-ttl",
        "--admin-key-file", "--tls-cert", "--deadline", "--expert-budget"}) {
    EXPECT_EQ(run_words({"serve", flag, "1"}), 2) << flag;
  }
}

}  // namespace
}  // namespace tenon::cli
