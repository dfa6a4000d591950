// A Response over a string, and one call through dispatch() with the fake engine behind it.
#pragma once
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "../../tests/http/fake_engine.h"
#include "api/api.h"

namespace tenon::api {

class TestResponse : public Response {
 public:
  void send(int code, Headers fields, std::string content) override {
    start(code, std::move(fields));
    std::lock_guard lock(mutex_);
    body = std::move(content);
    done_ = true;
    changed_.notify_all();
  }
  void start(int code, Headers fields) override {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(status, 0) << "answered twice";
    status = code;
    headers = std::move(fields);
  }
  bool write(std::string chunk) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(done_) << "written after its end";
    body += chunk;
    changed_.notify_all();
    return true;
  }
  void finish() override {
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void on_disconnect(std::function<void()> callback) override {
    std::lock_guard lock(mutex_);
    leave_ = std::move(callback);
  }
  void leave() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      callback.swap(leave_);
    }
    if (callback) callback();
  }
  bool wait() {  // for the end
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return done_; });
  }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return "";
  }

  int status = 0;
  Headers headers;
  std::string body;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> leave_;
  bool done_ = false;
};

// Order matters: the pool outlives the engine, handlers end before it.
class ApiTest : public testing::Test {
 protected:
  void SetUp() override { restart({}); }
  void TearDown() override { stop(); }
  void restart(fake::FakeOptions options) {
    stop();
    workers = make_workers(2, 64);
    engine = std::make_unique<fake::FakeEngine>(options);
    context.engine = engine.get();
    context.workers = workers.get();
  }
  void stop() {
    if (workers) workers->stop();
    engine.reset();
    workers.reset();
  }

  std::shared_ptr<TestResponse> begin(const std::string& path, const std::string& body,
                                      const std::string& method = "POST") {
    HttpRequest request{method, path, "", {{"content-type", "application/json"}}, body};
    auto response = std::make_shared<TestResponse>();
    dispatch(context, std::move(request), response);
    return response;
  }
  std::shared_ptr<TestResponse> call(const std::string& path, const std::string& body,
                                     const std::string& method = "POST") {
    auto response = begin(path, body, method);
    EXPECT_TRUE(response->wait()) << path << " " << body;
    return response;
  }
  std::shared_ptr<TestResponse> chat(const std::string& say, const std::string& rest = "") {
    Json message{{"role", "user"}, {"content", "[[say " + say + "]]"}};
    return call("/v1/chat/completions", "{\"messages\":[" + dump_json(message) + "]" +
                                            (rest.empty() ? "" : "," + rest) + "}");
  }
  std::shared_ptr<TestResponse> complete(const std::string& prompt, const std::string& rest = "") {
    return call("/v1/completions",
                "{\"prompt\":" + dump_json(Json(prompt)) + (rest.empty() ? "" : "," + rest) + "}");
  }

  std::unique_ptr<Workers> workers;
  std::unique_ptr<fake::FakeEngine> engine;
  Context context;
};

// The JSON of each SSE event; "[DONE]" as a string.
inline std::vector<Json> events(const std::string& body) {
  std::vector<Json> all;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) {
      ADD_FAILURE() << "not an event: " << body.substr(at, 100);
      break;
    }
    const std::string data = body.substr(at + 6, end - at - 6);
    all.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
    at = end + 2;
  }
  return all;
}

}  // namespace tenon::api
