// Listening sockets, the accept loops, signals and stopping.
#include "server/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "server/connection.h"

namespace tenon::server {
namespace {

using boost::system::error_code;
using net::ip::tcp;
using Local = net::local::stream_protocol;
constexpr size_t kConnectionsMax = 4096;

class AsioServer : public Server {
 public:
  AsioServer(const Options& options, const api::Context& context)
      : shared_{options, context, KeyRing(options.keys), {}, false, {}}, signals_(io_) {
    shared_.on_closed = [this] {
      if (shared_.stopping && shared_.open.empty()) io_.stop();
    };
  }

  ~AsioServer() override {
    shared_.on_closed = {};
    const auto open = shared_.open;
    for (Connection* connection : open) connection->close();  // producers stop posting to io_
    if (unix_acceptor_.is_open()) ::unlink(shared_.options.unix_path.c_str());
  }

  Status bind();
  int port() const override { return port_; }

  void run() override {
    net::co_spawn(io_, accept(tcp_acceptor_), net::detached);
    if (unix_acceptor_.is_open()) net::co_spawn(io_, accept(unix_acceptor_), net::detached);
    while (!io_.stopped()) {
      try {
        io_.run();
      } catch (const std::exception& e) {
        log_warn("I/O loop: {}", e.what());
      }
    }
  }

  void stop() override {
    net::post(io_, [this] { do_stop(); });
  }

  void on_signals(std::function<void(int)> on_signal) override {
    on_signal_ = std::move(on_signal);
    error_code ignored;
    signals_.add(SIGINT, ignored);
    signals_.add(SIGTERM, ignored);
    await_signal();
  }

 private:
  Status bind_tcp();
  Status bind_unix();

  template <class Acceptor>
  net::awaitable<void> accept(Acceptor& acceptor);

  void await_signal() {
    signals_.async_wait([this](error_code ec, int signal) {
      if (ec) return;
      on_signal_(signal);
      await_signal();
    });
  }

  void do_stop() {
    const bool again = shared_.stopping;
    shared_.stopping = true;
    error_code ignored;
    tcp_acceptor_.close(ignored);
    if (unix_acceptor_.is_open()) {
      unix_acceptor_.close(ignored);
      ::unlink(shared_.options.unix_path.c_str());
    }
    const auto open = shared_.open;
    for (Connection* connection : open) {
      if (again)
        connection->cut();
      else
        connection->stop_if_idle();
    }
    shared_.on_closed();
  }

  Shared shared_;  // outlives the connections, which io_ may own
  net::io_context io_{1};
  tcp::acceptor tcp_acceptor_{io_};
  Local::acceptor unix_acceptor_{io_};
  net::signal_set signals_;
  std::function<void(int)> on_signal_;
  int port_ = 0;
};

template <class Acceptor>
net::awaitable<void> AsioServer::accept(Acceptor& acceptor) {
  while (acceptor.is_open()) {
    error_code ec;
    auto socket = co_await acceptor.async_accept(net::redirect_error(net::use_awaitable, ec));
    if (ec == net::error::operation_aborted) co_return;
    if (ec) {  // out of descriptors: connections that end free some
      net::steady_timer pause(io_, std::chrono::milliseconds(50));
      co_await pause.async_wait(net::redirect_error(net::use_awaitable, ec));
      continue;
    }
    if (shared_.open.size() >= kConnectionsMax) continue;
    if constexpr (std::is_same_v<Acceptor, tcp::acceptor>)
      socket.set_option(tcp::no_delay(true), ec);
    auto connection = std::make_shared<Connection>(Socket(std::move(socket)), shared_);
    auto running = connection->run(connection);
    net::co_spawn(io_, std::move(running), net::detached);
  }
}

Status AsioServer::bind() {
  TENON_OK(bind_tcp());
  return shared_.options.unix_path.empty() ? Status() : bind_unix();
}

Status AsioServer::bind_tcp() {
  const Options& o = shared_.options;
  if (o.port < 0 || o.port > 65535)
    return invalid("--port {}: must be between 0 and 65535", o.port);
  error_code ec;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(o.host, std::to_string(o.port), tcp::resolver::passive, ec);
  if (ec || found.empty()) return invalid("--host {}: {}", o.host, ec.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp_acceptor_.open(endpoint.protocol(), ec);
  if (!ec) tcp_acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) tcp_acceptor_.bind(endpoint, ec);
  if (!ec) tcp_acceptor_.listen(net::socket_base::max_listen_connections, ec);
  if (ec == net::error::address_in_use)
    return unavailable(
        "cannot listen on {}:{}: another program does; choose another port with --port, "
        "or 0 for any free one",
        o.host, o.port);
  if (ec == net::error::access_denied)
    return unavailable("cannot listen on {}:{}: not allowed; choose a port above 1023 with --port",
                       o.host, o.port);
  if (ec) return unavailable("cannot listen on {}:{}: {}", o.host, o.port, ec.message());
  port_ = tcp_acceptor_.local_endpoint().port();
  return {};
}

// Left over by a server that died: a socket nobody answers.
bool is_stale_socket(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  net::io_context io;
  Local::socket probe(io);
  error_code ec;
  probe.connect(Local::endpoint(path), ec);
  return ec == net::error::connection_refused;
}

Status AsioServer::bind_unix() {
  const std::string& path = shared_.options.unix_path;
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return invalid("--unix {}: the path is longer than {} bytes", path,
                   sizeof(sockaddr_un::sun_path) - 1);
  if (is_stale_socket(path)) ::unlink(path.c_str());
  error_code ec;
  unix_acceptor_.open(Local(), ec);
  const mode_t before = ::umask(0177);  // for its owner alone, from the first moment
  if (!ec) unix_acceptor_.bind(Local::endpoint(path), ec);
  ::umask(before);
  if (!ec) unix_acceptor_.listen(net::socket_base::max_listen_connections, ec);
  if (!ec) return {};
  error_code ignored;
  unix_acceptor_.close(ignored);
  if (ec == net::error::address_in_use)
    return unavailable("--unix {}: the path is taken; remove it or choose another", path);
  return unavailable("--unix {}: {}", path, ec.message());
}

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(const Options& options,
                                               const api::Context& context) {
  auto server = std::make_unique<AsioServer>(options, context);
  TENON_OK(server->bind());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace tenon::server
