#include "hub/hub.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "hub/paths.h"

namespace tenon::hub {
namespace {

namespace fs = std::filesystem;

class HubTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("hub_test_" + std::to_string(getpid()));
    fs::remove_all(root_);
    setenv("HF_HUB_CACHE", (root_ / "cache").c_str(), 1);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text = "{}") {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  fs::path root_;
};

TEST_F(HubTest, RepoNamesCannotLeaveTheCache) {
  EXPECT_TRUE(is_repo_name("org/repo"));
  EXPECT_TRUE(is_repo_name("mlx-community/Qwen3-0.6B-4bit"));
  for (const char* bad : {"", "repo", "../etc", "../../etc", "org/..", "org/a/b", "/etc", "org/",
                          "a..b/c", "./x", "org/re po", "org/x\n", "org\\x/y"}) {
    EXPECT_FALSE(is_repo_name(bad)) << bad;
    EXPECT_FALSE(snapshot_of(root_ / "cache", bad)) << bad;
  }
}

TEST_F(HubTest, TheSnapshotIsTheOneThatMainNames) {
  fs::path repo = "cache/models--org--repo";
  write(repo / "snapshots/old/config.json");
  write(repo / "snapshots/new/config.json");
  write(repo / "refs/main", "old");
  auto found = locate_model("org/repo");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(fs::path(found->path).filename(), "old");
  EXPECT_EQ(found->name, "org/repo");
  ASSERT_EQ(list_cached().size(), 1u);
  EXPECT_EQ(list_cached()[0].name, "org/repo");
}

TEST_F(HubTest, ARefThatPointsOutsideIsIgnored) {
  fs::path repo = "cache/models--org--repo";
  write(repo / "snapshots/good/config.json");
  write("cache/config.json");
  write(repo / "refs/main", "../..");
  auto found = locate_model("org/repo");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(fs::path(found->path).filename(), "good");
}

TEST_F(HubTest, FoldersAndFilesByPath) {
  write("tiny/config.json");
  write("some.gguf", "GGUF");
  write("empty/readme.txt");
  EXPECT_EQ(locate_model((root_ / "tiny/").string())->name, "tiny");
  EXPECT_EQ(locate_model((root_ / "some.gguf").string())->name, "some");
  auto empty = locate_model((root_ / "empty").string());
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.error().message.find("config.json"), std::string::npos);
  auto absent = locate_model("org/absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Code::not_found);
}

TEST_F(HubTest, TheDefaultModelIsFoundInTheBuildTreeAndAfterInstall) {
  write(fs::path("share/models") / kDefaultFile, "GGUF");
  auto built = locate_default(default_model_dirs(root_ / "build/release"));
  ASSERT_TRUE(built.ok());
  EXPECT_EQ(built->name, kDefaultName);
  write(fs::path("usr/share/tenon/models") / kDefaultFile, "GGUF");
  EXPECT_TRUE(locate_default(default_model_dirs(root_ / "usr/bin")).ok());
  auto nowhere = locate_default(default_model_dirs(root_ / "a/b/c/bin"));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("scripts/setup"), std::string::npos);
}

}  // namespace
}  // namespace tenon::hub
