// The server over loopback with the fake engine: framing, limits, keys, leaving, slow readers,
// stopping.
#include "server/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../tests/http/fake_engine.h"
#include "server/outbox.h"

namespace tenon::server {
namespace {

class Client {
 public:
  explicit Client(int port, int receive_bytes = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    timeval wait{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Client() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  // Until `mark` was seen (and is kept), the end, or ten seconds.
  std::string read_until(const std::string& mark) {
    char bytes[4096];
    size_t at;
    while ((at = got_.find(mark)) == std::string::npos) {
      const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
      if (n <= 0) return std::exchange(got_, {});
      got_.append(bytes, static_cast<size_t>(n));
    }
    const std::string out = got_.substr(0, at + mark.size());
    got_.erase(0, at + mark.size());
    return out;
  }
  std::string read_all() { return read_until("\x01 never"); }

 private:
  int fd_;
  std::string got_;
};

std::string post(const std::string& path, const std::string& body,
                 const std::string& headers = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{}content-length: "
      "{}\r\n\r\n{}",
      path, headers, body.size(), body);
}
const std::string kHealth = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

class ServerTest : public testing::Test {
 protected:
  void start(Options options = {}, fake::FakeOptions pace = {}) {
    options.port = 0;
    workers = api::make_workers(2, 64);
    engine = std::make_unique<fake::FakeEngine>(pace);
    api::Context context;
    context.engine = engine.get();
    context.workers = workers.get();
    auto made = Server::listen(options, context);
    ASSERT_TRUE(made.ok()) << made.error().message;
    server = std::move(*made);
    thread = std::thread([this] { server->run(); });
  }
  void TearDown() override {
    if (!server) return;
    server->stop();
    server->stop();
    thread.join();
    server.reset();
    engine->drain(0);
    workers->stop();
    engine.reset();
  }
  std::string ask(const std::string& bytes) {
    Client client(server->port());
    client.send(bytes);
    client.half_close();
    return client.read_all();
  }
  bool soon(const std::function<bool()>& holds) {
    for (int i = 0; i < 5000 && !holds(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return holds();
  }

  std::unique_ptr<api::Workers> workers;
  std::unique_ptr<fake::FakeEngine> engine;
  std::unique_ptr<Server> server;
  std::thread thread;
};

TEST_F(ServerTest, RawRequests) {
  Options options;
  options.body_bytes_max = 1000;
  start(options);
  const std::pair<std::string, std::string> table[] = {
      {kHealth, "HTTP/1.1 200 "},
      {"GET /health HTTP/1.0\r\n\r\n", "HTTP/1.1 200 "},
      {"HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 200 "},
      {"GET /%zz HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
      {"GET /a%00b HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
      {"nonsense\r\n\r\n", "HTTP/1.1 400 "},
      {"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 400 "},
      {"GET /nope HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "},
      {"GET /v1/completions HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
      {"GET /health HTTP/1.1\r\nx: " + std::string(20000, 'x') + "\r\n\r\n", "HTTP/1.1 431 "},
      {"POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
       "HTTP/1.1 400 "},
      {"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n", "HTTP/1.1 400 "},
      {"POST /v1/completions HTTP/1.1\r\nexpect: much\r\ncontent-length: 5\r\n\r\n",
       "HTTP/1.1 417 "},
      {post("/v1/completions", std::string(1001, ' ')), "HTTP/1.1 413 "},
      {"OPTIONS * HTTP/1.1\r\n\r\n", "HTTP/1.1 204 "},
  };
  for (const auto& [request, status] : table) {
    const std::string reply = ask(request);
    EXPECT_TRUE(reply.starts_with(status)) << request.substr(0, 80) << "\n" << reply;
    if (status[9] == '4') {
      EXPECT_NE(reply.find("{\"error\":{"), std::string::npos) << reply;
    }
    EXPECT_TRUE(ask(kHealth).ends_with(R"({"status":"ok"})"));
  }
  EXPECT_TRUE(ask("HEAD /health HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
  const std::string big = ask(post("/v1/completions", std::string(1001, ' ')));
  EXPECT_NE(big.find("1001"), std::string::npos);
  EXPECT_NE(big.find("1000"), std::string::npos);
}

TEST_F(ServerTest, OversizeChunkedBodyIsAnsweredNotReset) {
  Options options;
  options.body_bytes_max = 100000;
  start(options);
  Client client(server->port());
  client.send("POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n");
  const std::string piece = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  for (int i = 0; i < 40; ++i) client.send(piece);
  client.send("0\r\n\r\n");
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 413 "));
}

TEST_F(ServerTest, KeepAliveAndPipelining) {
  start();
  Client client(server->port());
  const std::string stream = post("/v1/completions", R"({"prompt":"[[say abc]]","stream":true})");
  client.send(stream + kHealth + stream);
  const std::string first = client.read_until("0\r\n\r\n");
  EXPECT_NE(first.find("transfer-encoding: chunked"), std::string::npos);
  EXPECT_NE(first.find("data: [DONE]"), std::string::npos) << first;
  EXPECT_TRUE(client.read_until(R"({"status":"ok"})").starts_with("HTTP/1.1 200 "));
  EXPECT_NE(client.read_until("0\r\n\r\n").find("data: [DONE]"), std::string::npos);
}

TEST_F(ServerTest, Continue) {
  start();
  Client client(server->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 24\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"prompt":"[[say abc]]"})");
  EXPECT_TRUE(client.read_until("}}}").find("\"text\":\"abc\"") != std::string::npos);
}

TEST_F(ServerTest, Keys) {
  Options options;
  options.keys = {{"k", "secret"}};
  options.cors_origin = "*";
  start(options);
  const auto get = [&](const std::string& path, const std::string& headers) {
    return ask("GET " + path + " HTTP/1.1\r\n" + headers + "\r\n").substr(9, 3);
  };
  EXPECT_EQ(get("/health", ""), "200");
  EXPECT_EQ(get("/ready", ""), "200");
  for (const char* path : {"/v1/models", "/stats", "/", "/nope", "/v1/completions"})
    EXPECT_EQ(get(path, ""), "401");
  EXPECT_EQ(get("/v1/models", "authorization: Bearer secret\r\n"), "200");
  EXPECT_EQ(get("/v1/models", "x-api-key: secret\r\n"), "200");
  EXPECT_EQ(get("/v1/models", "authorization: Bearer secret\r\nauthorization: Bearer secret\r\n"),
            "401");
  EXPECT_EQ(get("/v1/models", "authorization: Bearer k\xC3\xA9y\r\n"), "401");
  const std::string preflight =
      ask("OPTIONS /v1/models HTTP/1.1\r\norigin: http://a\r\n"
          "access-control-request-headers: authorization\r\n\r\n");
  EXPECT_TRUE(preflight.starts_with("HTTP/1.1 204 ")) << preflight;
  EXPECT_NE(preflight.find("access-control-allow-origin: *"), std::string::npos);
}

TEST_F(ServerTest, LeavingFreesTheRow) {
  fake::FakeOptions pace;
  pace.token_ms = 10;
  start({}, pace);
  for (const char* stream : {"true", "false"}) {
    Client client(server->port());
    client.send(post("/v1/completions",
                     fmt::format(R"({{"prompt":"x","ignore_eos":true,"stream":{}}})", stream)));
    ASSERT_TRUE(soon([&] { return engine->stats().running == 1; }));
    client.close();
    EXPECT_TRUE(soon([&] { return engine->stats().running == 0; }));
  }
  EXPECT_EQ(engine->stats().cancelled, 2u);
  EXPECT_TRUE(ask(kHealth).starts_with("HTTP/1.1 200 "));
}

TEST_F(ServerTest, ReaderThatTakesNothingIsCut) {
  start();
  Client client(server->port(), 4096);
  client.send(
      post("/v1/completions",
           R"({"prompt":["a","b","c"],"n":16,"ignore_eos":true,"stream":true})"));  // some 3 MB
  ASSERT_TRUE(soon([&] { return engine->stats().requests == 48 && engine->stats().running == 0; }));
  EXPECT_EQ(client.read_all().find("[DONE]"), std::string::npos);
  EXPECT_TRUE(ask(kHealth).starts_with("HTTP/1.1 200 "));
}

TEST_F(ServerTest, UnixSocket) {
  Options options;
  options.unix_path = testing::TempDir() + fmt::format("tenon_server_test_{}", ::getpid());
  for (int round = 0; round < 2; ++round) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    options.unix_path.copy(at.sun_path, sizeof at.sun_path - 1);
    const int left_over = ::socket(AF_UNIX, SOCK_STREAM, 0);  // as of a server that died
    EXPECT_EQ(::bind(left_over, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    ::close(left_over);
    start(options);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_GT(::send(fd, kHealth.data(), kHealth.size(), MSG_NOSIGNAL), 0);
    char bytes[12];
    EXPECT_EQ(::recv(fd, bytes, sizeof bytes, MSG_WAITALL), 12);
    EXPECT_EQ(std::string(bytes, 12), "HTTP/1.1 200");
    ::close(fd);
    TearDown();
    EXPECT_NE(::access(options.unix_path.c_str(), F_OK), 0) << "the socket file stays behind";
  }
}

TEST_F(ServerTest, CommentsDuringSilence) {
  fake::FakeOptions pace;
  pace.token_ms = 1300;
  Options options;
  options.keepalive_comment_s = 1;
  start(options, pace);
  Client client(server->port());
  client.send(
      post("/v1/completions", R"({"prompt":"x","max_tokens":2,"ignore_eos":true,"stream":true})"));
  EXPECT_NE(client.read_until("[DONE]").find("\n: keep-alive\n\n"), std::string::npos);
}

TEST_F(ServerTest, SlowHeaderIs408AndIdleIsClosed) {
  Options options;
  options.idle_timeout_s = 1;
  start(options);
  Client slow(server->port()), idle(server->port());
  slow.send("GET /health HT");
  EXPECT_TRUE(slow.read_all().starts_with("HTTP/1.1 408 "));
  EXPECT_EQ(idle.read_all(), "");
}

TEST_F(ServerTest, StopLetsStreamsEnd) {
  fake::FakeOptions pace;
  pace.token_ms = 5;
  start({}, pace);
  Client client(server->port()), idle(server->port());
  client.send(post("/v1/completions", R"({"prompt":"[[say abcdefghijklmnop]]","stream":true})"));
  client.read_until("data: ");
  server->stop();
  EXPECT_NE(client.read_all().find("[DONE]"), std::string::npos);
  EXPECT_EQ(idle.read_all(), "");
  thread.join();
  thread = std::thread([] {});
}

TEST_F(ServerTest, PortTaken) {
  start();
  Options options;
  options.port = server->port();
  const auto second = Server::listen(options, api::Context{});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
}

// The producer side alone: what a reader that takes nothing meets.
TEST(OutboxTest, BoundsAndLeaving) {
  int notified = 0;
  const auto outbox = std::make_shared<Outbox>([&] { ++notified; });
  auto response = make_response(outbox);
  bool left = false;
  response->on_disconnect([&] { left = true; });
  response->start(200, {});
  EXPECT_TRUE(response->write(std::string(Outbox::kBytesMax, 'x')));
  EXPECT_EQ(notified, 1);  // one look outstanding
  EXPECT_FALSE(response->write("y"));
  EXPECT_TRUE(outbox->broken());
  response->finish();
  EXPECT_FALSE(outbox->take().finished);
  outbox->leave();
  EXPECT_TRUE(left);
}

TEST(OutboxTest, DroppedRequestIsAnswered) {
  const auto outbox = std::make_shared<Outbox>([] {});
  make_response(outbox);
  const auto view = outbox->take();
  EXPECT_TRUE(view.finished);
  EXPECT_EQ(outbox->status(), 503);
}

}  // namespace
}  // namespace tenon::server
